"""The result of a lookup, and its JSON line (design §7)."""

from kseg.inspection.query import LookupQuery
from kseg.segment.json_rows import record_row, show_bytes
from kseg.segment.model import Batch, Record
from kseg.segment.partition.bounds import Bounds
from kseg.segment.partition.log_segment import LogSegment, Step
from kseg.segment.partition.partition_log import PartitionLog
from kseg.segment.values import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """offset, timestamp_ms, leader_epoch: as in the broker's answer, None if that has none.

    segment, batch: where it was found. record: a record with its own segment and batch, which can come after the batch of the
    answer. reason: why nothing was found. is_aborted: of the record, for a read_committed lookup.
    """

    found: bool = True
    offset: int | None = None
    timestamp_ms: int | None = None
    leader_epoch: int | None = None
    segment: str | None = None
    batch: Batch | None = None
    record: Record | None = None
    record_file: str | None = None
    record_batch: Batch | None = None
    reason: str | None = None
    is_aborted: bool | None = None


@dataclass(frozen=True, slots=True)
class AnsweredAt:
    """Where an answer was found, for checks that depend on it. segment: path of the log. position: of the batch."""

    segment: str | None
    position: int | None
    offset: int | None


def not_found(reason: str) -> Answer:
    return Answer(found=False, reason=reason)


def at_record(segment: LogSegment, batch: Batch, record: Record) -> Answer:
    """An answer that is one record."""
    batch = segment.decoded(batch)
    return Answer(
        offset=record.offset,
        timestamp_ms=record.timestamp_ms,
        leader_epoch=epoch_of(batch),
        segment=segment.path,
        batch=batch,
        record=record,
        record_file=segment.path,
        record_batch=batch,
    )


def epoch_of(batch: Batch) -> int | None:
    """None for a value that a broker does not treat as an epoch: old formats, and -1."""
    return None if batch.leader_epoch < 0 else batch.leader_epoch


def answer_row(log: PartitionLog, query: LookupQuery, answer: Answer) -> dict[str, object]:
    """The line `{"type":"lookup", …}`."""
    partition = log.directory if log.name is None else log.name.text
    return lookup_row(partition, log.directory, query, answer, log.bytes_read, log.path)


def lookup_row(
    partition: str,
    directory: str,
    query: LookupQuery,
    answer: Answer,
    bytes_read: int,
    path: list[Step],
) -> dict[str, object]:
    """The same from its parts."""
    batch = answer.batch
    producer = answer.record_batch or batch
    if producer is not None and producer.producer_id < 0:
        producer = None
    row: dict[str, object] = {
        "type": "lookup",
        "partition": partition,
        "query": query_row(query),
        "found": answer.found,
        "offset": answer.offset,
        "timestamp": answer.timestamp_ms,
        "leader_epoch": answer.leader_epoch,
        "segment": answer.segment,
        "position": None if batch is None else batch.position,
        "batch_base_offset": None if batch is None else batch.base_offset,
        "batch_last_offset": None if batch is None else batch.last_offset,
        "bytes_read": bytes_read,
        "path": list(path),
        "record": None,
        "producer_id": None if producer is None else producer.producer_id,
        "producer_epoch": None if producer is None else producer.producer_epoch,
        "directory": directory,
    }
    if answer.record is not None and answer.record_batch is not None and answer.record_file is not None:
        decoder = None if query.row_decoder is None else query.row_decoder.for_log(answer.record_file)
        row["record"] = record_row(
            answer.record_file, answer.record_batch, answer.record, query.bytes_mode, decoder
        )
    if answer.is_aborted is not None:
        row["aborted"] = answer.is_aborted
    if answer.reason is not None:
        row["reason"] = answer.reason
    return row


def query_row(query: LookupQuery) -> dict[str, object]:
    """The question, with its operand under its own name."""
    row: dict[str, object] = {"kind": query.kind}
    match query.kind:
        case "offset":
            row["offset"] = query.offset
        case "timestamp":
            row["timestamp"] = query.timestamp_ms
        case "leader-epoch":
            row["leader_epoch"] = query.leader_epoch
        case "key":
            row["key"], row["key_encoding"] = show_bytes(query.key, query.bytes_mode)
            row["all"] = query.every_version
            row |= _bounds_row(query.bounds)
    row["isolation"] = "read_committed" if query.read_committed else "read_uncommitted"
    return row


def _bounds_row(bounds: Bounds) -> dict[str, object]:
    """The bounds of the search, if there are any."""
    everywhere = Bounds()
    named = {
        "from_offset": (bounds.from_offset, everywhere.from_offset),
        "to_offset": (bounds.to_offset, everywhere.to_offset),
        "from_time": (bounds.from_ms, everywhere.from_ms),
        "to_time": (bounds.to_ms, everywhere.to_ms),
    }
    return {name: value for name, (value, default) in named.items() if value != default}
