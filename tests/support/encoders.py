"""Encoders for formats that some version of the broker writes and kseg only reads."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from kseg.segment import layout as L
from kseg.segment.codecs.codec import compress
from kseg.segment.errors import FormatError, UsageError
from kseg.segment.java import uuids
from kseg.segment.kafka07.encoding07 import encode_message
from kseg.segment.kafka07.fetch_response import NO_ERROR, message_set_header
from kseg.segment.kafka07.messages07 import KNOWN_CODECS
from kseg.segment.model import NewBatch, Record
from kseg.segment.sidecar.index import OffsetIndexEntry, TimeIndexEntry
from kseg.segment.sidecar.index_writer import OffsetIndexBuilder, TimeIndexBuilder
from kseg.segment.sidecar.metadata_files import CleanShutdown, QuorumState
from kseg.segment.state.control import control_key, control_value

if TYPE_CHECKING:
    from typing_extensions import Buffer


def control_batch(
    notes: Sequence[tuple[str, Mapping[str, object]]], *, offset: int, timestamp_ms: int, leader_epoch: int
) -> NewBatch:
    """A control batch of a KRaft leader, with records (kind, fields) as in `control.control_value`, from `offset` on.

    Only the control bit is set, and there is no producer (fact sheet §2.5). Ends of transactions are `control.end_transaction_batch`.
    Raises ControlRecordError for a kind or fields that cannot be written.
    """
    records = tuple(
        Record(offset + row, timestamp_ms, control_key(kind), control_value(kind, fields))
        for row, (kind, fields) in enumerate(notes)
    )
    return NewBatch(records=records, control=True, leader_epoch=leader_epoch)


def encode_set(
    payloads: Iterable[Buffer], codec: int = L.NONE, magic: int = 1, level: int | None = None
) -> bytes:
    """Encode the entries of a message set; with a codec, as one wrapper entry that contains them compressed."""
    entries = b"".join(encode_message(payload, magic) for payload in payloads)
    if codec == L.NONE:
        return entries
    if codec not in KNOWN_CODECS:
        raise UsageError(f"Kafka 0.7 does not support codec {codec}")
    return encode_message(compress(codec, 1, entries, level), 1, codec)


def message_set_send(messages: Buffer, error_code: int = NO_ERROR) -> bytes:
    """The complete fetch response for one partition."""
    data = bytes(messages)
    return message_set_header(len(data), error_code) + data


def encode_offset_index(entries: Iterable[OffsetIndexEntry], base_offset: int) -> bytes:
    """Encode a trimmed index file with exactly these entries; raises FormatError for an entry that a broker would not append."""
    builder = OffsetIndexBuilder(base_offset, L.INT32_MAX)
    for entry in entries:
        builder.append(entry.offset, entry.position)
    return builder.to_bytes()


def encode_time_index(entries: Iterable[TimeIndexEntry], base_offset: int) -> bytes:
    """Encode a trimmed index file with exactly these entries; raises FormatError for an entry that a broker would not append, and for one
    that it would silently skip because its timestamp does not increase."""
    builder = TimeIndexBuilder(base_offset, L.INT32_MAX)
    for entry in entries:
        if not builder.maybe_append(entry.timestamp_ms, entry.offset):
            last = builder.last_entry.timestamp_ms
            raise FormatError(
                f"timestamp {entry.timestamp_ms} is not greater than {last}, the last one indexed"
            )
    return builder.to_bytes()


def encode_clean_shutdown(shutdown: CleanShutdown) -> bytes:
    """The clean-shutdown file as of Kafka 3.7; empty, as in earlier versions, without a broker epoch."""
    if shutdown.broker_epoch is None:
        return b""
    return json.dumps({"version": 0, "brokerEpoch": shutdown.broker_epoch}, separators=(",", ":")).encode(
        "ascii"
    )


def encode_quorum_state(state: QuorumState) -> bytes:
    """The single line without a line break, fields in Kafka's order."""
    common = {"leaderId": state.leader_id, "leaderEpoch": state.leader_epoch, "votedId": state.voted_id}
    content: dict[str, object]
    if state.data_version == 1:
        content = {**common, "votedDirectoryId": state.voted_directory_id or uuids.ZERO, "data_version": 1}
    else:
        content = {
            "clusterId": state.cluster_id or "",
            **common,
            "appliedOffset": state.applied_offset or 0,
            "currentVoters": [{"voterId": voter} for voter in state.current_voters or ()],
            "data_version": 0,
        }
    return json.dumps(content, separators=(",", ":"), ensure_ascii=False).encode("utf-8", "replace")
