"""Control records: records that brokers write between the data, distinguished by their key.

    key    int16 version   read as 0 if higher, rejected if negative
           int16 type      0 ABORT, 1 COMMIT, 2-6 KRaft (see kraft_messages), anything else UNKNOWN
           …               further bytes are ignored
    value  of ABORT and COMMIT: int16 version (the same tolerance), int32 coordinator epoch, … ignored
           of KRaft types:      a flexible message (kraft_messages)
           of UNKNOWN:          ignored, may be null

If Kafka's readers reject a record, ControlRecordError names their exception; what they tolerate is read the
same way here. Sources: Kafka's ControlRecordType, EndTransactionMarker, ControlRecordUtils; fact sheet §2.5.
"""

import re
import struct
from collections.abc import Mapping
from dataclasses import field
from typing import Final

from kseg.segment import layout as L
from kseg.segment.java.java_output import json_text
from kseg.segment.model import NewBatch, Record
from kseg.segment.state import kraft_messages as kraft
from kseg.segment.state.kraft_messages import ControlRecordError
from kseg.segment.values import dataclass

ABORT: Final = "ABORT"
COMMIT: Final = "COMMIT"
UNKNOWN: Final = "UNKNOWN"

_TYPE_IDS: Final[Mapping[str, int]] = {
    kind: type_id for type_id, kind in enumerate((ABORT, COMMIT, *kraft.KINDS))
}
_KINDS: Final[Mapping[int, str]] = {type_id: kind for kind, type_id in _TYPE_IDS.items()}

_KEY = struct.Struct(">hh")
_MARKER_VALUE = struct.Struct(">hi")
_MARKER_VERSION_BYTES = 2

# the words that Kafka's dump tool prints before the JSON of a value; only the first of them has a colon
_LABELS: Final[Mapping[str, str]] = {
    kraft.LEADER_CHANGE: "LeaderChange: ",
    kraft.SNAPSHOT_HEADER: "SnapshotHeader ",
    kraft.SNAPSHOT_FOOTER: "SnapshotFooter ",
    kraft.KRAFT_VERSION: "KRaftVersion ",
    kraft.KRAFT_VOTERS: "KRaftVoters ",
}
_ZERO_UUID = kraft.uuid_text(bytes(16))


@dataclass(frozen=True, slots=True)
class ControlRecord:
    """One parsed control record.

    type_id: as in the key. kind: ABORT, COMMIT, one of kraft_messages.KINDS, or UNKNOWN. fields: the value by
    Kafka's JSON names in schema order; `coordinatorEpoch` for ABORT and COMMIT, empty for UNKNOWN.
    """

    type_id: int
    kind: str
    fields: Mapping[str, object] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class EndTransactionMarker:
    """The fields of a transaction marker that replay needs. timestamp_ms: of the marker *record*, not of its batch."""

    is_abort: bool
    coordinator_epoch: int
    timestamp_ms: int


def parse_control_record(key: bytes | None, value: bytes | None) -> ControlRecord:
    """Parse a control record. Raises ControlRecordError (a FormatError) where Kafka's readers fail."""
    type_id = _type_id(key)
    kind = _KINDS.get(type_id, UNKNOWN)
    if kind == UNKNOWN:
        return ControlRecord(type_id, UNKNOWN)
    if value is None:
        raise ControlRecordError(f"a {kind} record has no value", "NullPointerException")
    if kind in (ABORT, COMMIT):
        return ControlRecord(type_id, kind, {"coordinatorEpoch": _coordinator_epoch(value)})
    return ControlRecord(type_id, kind, kraft.read_message(kind, value))


def end_transaction_marker(record: Record) -> EndTransactionMarker:
    """The marker in the first record of a control batch that has a producer id.

    Raises ControlRecordError for any other control record: Kafka's replay accepts nothing else in such a batch.
    """
    kind = _KINDS.get(_type_id(record.key), UNKNOWN)
    if kind not in (ABORT, COMMIT):
        sentence = f"a {kind} record in a producer's control batch ends no transaction"
        raise ControlRecordError(sentence, "IllegalArgumentException")
    if record.value is None:
        raise ControlRecordError(f"a {kind} record has no value", "NullPointerException")
    return EndTransactionMarker(kind == ABORT, _coordinator_epoch(record.value), record.timestamp_ms)


def control_key(kind: str) -> bytes:
    """The key of a control record. Raises ControlRecordError for UNKNOWN, which cannot be written."""
    if kind not in _TYPE_IDS:
        raise ControlRecordError(
            f"a control record of kind {kind} cannot be written", "IllegalArgumentException"
        )
    return _KEY.pack(0, _TYPE_IDS[kind])


def control_value(kind: str, fields: Mapping[str, object]) -> bytes:
    """The value of a control record, the inverse of `parse_control_record`; raises ControlRecordError."""
    if kind not in (ABORT, COMMIT):
        control_key(kind)
        return kraft.write_message(kind, fields)
    epoch = fields.get("coordinatorEpoch")
    if not isinstance(epoch, int) or not -(2**31) <= epoch < 2**31:
        raise ControlRecordError(f"a coordinator epoch cannot be {epoch!r}", "IllegalArgumentException")
    return _MARKER_VALUE.pack(0, epoch)


def end_transaction_batch(
    marker: EndTransactionMarker, offset: int, producer_id: int, producer_epoch: int, leader_epoch: int
) -> NewBatch:
    """The batch that a broker writes to end a transaction: one record, control and transactional, no sequence."""
    kind = ABORT if marker.is_abort else COMMIT
    value = control_value(kind, {"coordinatorEpoch": marker.coordinator_epoch})
    return NewBatch(
        records=(Record(offset, marker.timestamp_ms, control_key(kind), value),),
        leader_epoch=leader_epoch,
        transactional=True,
        control=True,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        base_sequence=L.NO_SEQUENCE,
    )


def kafka_text(control: ControlRecord) -> str:
    """The text that Kafka's DumpLogSegments 4.3 prints after the fields of a control record, with the leading blank."""
    if control.kind == UNKNOWN:
        return f" controlType: UNKNOWN({control.type_id})"
    if control.kind in (ABORT, COMMIT):
        return f" endTxnMarker: {control.kind} coordinatorEpoch: {control.fields['coordinatorEpoch']}"
    return f" {_LABELS[control.kind]}{json_text(_as_kafka_prints(control))}"


def as_row(control: ControlRecord) -> dict[str, object]:
    """The `control` member of a JSON line: `kind`, then the value with snake_case names."""
    if control.kind == UNKNOWN:
        return {"kind": UNKNOWN, "type_id": control.type_id}
    return {"kind": control.kind} | {
        _snake(name): _snake_values(value) for name, value in control.fields.items()
    }


def _type_id(key: bytes | None) -> int:
    if key is None:
        raise ControlRecordError("a control record has no key", "NullPointerException")
    if len(key) < _KEY.size:
        raise ControlRecordError(f"a control record's key has {len(key)} bytes", "InvalidRecordException")
    version, type_id = _KEY.unpack_from(key)
    if version < 0:
        raise ControlRecordError(f"a control record's key has version {version}", "InvalidRecordException")
    return int(type_id)


def _coordinator_epoch(value: bytes) -> int:
    version = int.from_bytes(value[:_MARKER_VERSION_BYTES], "big", signed=True)
    if len(value) >= _MARKER_VERSION_BYTES and version < 0:
        raise ControlRecordError(f"an end-transaction marker has version {version}", "InvalidRecordException")
    if len(value) < _MARKER_VALUE.size:
        sentence = f"an end-transaction marker has {len(value)} bytes"
        raise ControlRecordError(sentence, "BufferUnderflowException")
    return int(_MARKER_VALUE.unpack_from(value)[1])


def _as_kafka_prints(control: ControlRecord) -> Mapping[str, object]:
    """Kafka prints by the schema of the payload's version, although it never reads by it: a leader change
    of version 1 or later gets directory ids, which were not read and hence are zero."""
    version = control.fields["version"]
    if control.kind != kraft.LEADER_CHANGE or not isinstance(version, int) or version < 1:
        return control.fields
    printed = dict(control.fields)
    for name in ("voters", "grantingVoters"):
        voters = printed[name]
        if isinstance(voters, list):
            printed[name] = [voter | {"voterDirectoryId": _ZERO_UUID} for voter in voters]
    return printed


def _snake(name: str) -> str:
    return re.sub(r"(?<!^)([A-Z])", r"_\1", name.replace("kRaft", "kraft")).lower()


def _snake_values(value: object) -> object:
    if isinstance(value, Mapping):
        return {_snake(name): _snake_values(member) for name, member in value.items()}
    if isinstance(value, list):
        return [_snake_values(member) for member in value]
    return value
