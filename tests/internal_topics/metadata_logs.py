"""Handmade metadata logs: records encoded by their schemas, in batches of a log or of a snapshot."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from kseg.internal_topics import schemas
from kseg.internal_topics.schemas import Field, Message
from kseg.segment.encoding.batch import encode_batch
from kseg.segment.java.uuids import ZERO, uuid_bytes, uuid_text
from kseg.segment.model import NewBatch, Record
from kseg.segment.state.control import control_key, control_value
from kseg.segment.state.kraft_messages import SNAPSHOT_FOOTER, SNAPSHOT_HEADER

T0 = 1_795_250_580_883
CLUSTER = "Mz9XvQe1R0mU7bTq2LkP5w"
NODE = 1
DIRECTORY = uuid_text(bytes([7] * 16))

Made = bytes  # an encoded record
_NUMBERS = {
    "int8": "b",
    "int16": "h",
    "uint16": "H",
    "int32": "i",
    "uint32": "I",
    "int64": "q",
    "float64": "d",
}


def record(message_name: str, /, version: int | None = None, **values: Any) -> Made:
    """A framed metadata record; fields that are not given have their defaults."""
    (message,) = [each for each in schemas.messages() if each.name == message_name]
    version = message.last_version if version is None else version
    assert message.type is not None
    head = _uvarint(1) + _uvarint(message.type) + _uvarint(version)
    return head + encoded(message, values, version)


def topic(name: str, topic_id: str, partitions: int = 1, **more: Any) -> list[Made]:
    """The records of a topic and its partitions, all on this node."""
    made = [record("TopicRecord", name=name, topicId=topic_id)]
    for number in range(partitions):
        values = {"replicas": [NODE], "isr": [NODE], "directories": [DIRECTORY], "leader": NODE, **more}
        made.append(record("PartitionRecord", partitionId=number, topicId=topic_id, **values))
    return made


def config(topic_name: str, name: str, value: str | None) -> Made:
    """The record of a topic property."""
    return record("ConfigRecord", resourceType=2, resourceName=topic_name, name=name, value=value)


def broker_config(node: str, name: str, value: str | None) -> Made:
    """The record of a dynamic broker property; an empty node means the default for all brokers."""
    return record("ConfigRecord", resourceType=4, resourceName=node, name=name, value=value)


def topic_id(number: int) -> str:
    """Topic ids that are easy to tell apart."""
    return uuid_text(bytes([number]) * 16)


def write_log(
    directory: Path,
    *batches: Sequence[Made],
    base_offset: int = 0,
    epoch: int = 1,
    times_ms: Sequence[int] | None = None,
) -> int:
    """Write a segment with these batches of records, by default all at T0; returns the offset after it."""
    directory.mkdir(parents=True, exist_ok=True)
    offset, data = base_offset, b""
    for made, at_ms in zip(batches, times_ms or [T0] * len(batches), strict=True):
        records = tuple(Record(offset + at, at_ms, None, value) for at, value in enumerate(made))
        data += encode_batch(NewBatch(records=records, leader_epoch=epoch))
        offset += len(made)
    (directory / f"{base_offset:020}.log").write_bytes(data)
    return offset


def write_snapshot(
    directory: Path,
    end_offset: int,
    made: Iterable[Made],
    *,
    epoch: int = 1,
    footer: bool = True,
    time_ms: int = T0,
) -> Path:
    """Write a snapshot of the state before `end_offset`, whose last record has the timestamp `time_ms`."""
    directory.mkdir(parents=True, exist_ok=True)
    values = [*made]
    records = tuple(Record(1 + at, T0, None, value) for at, value in enumerate(values))
    data = _control(0, SNAPSHOT_HEADER, {"version": 0, "lastContainedLogTimestamp": time_ms})
    if records:
        data += encode_batch(NewBatch(records=records, leader_epoch=epoch))
    if footer:
        data += _control(1 + len(values), SNAPSHOT_FOOTER, {"version": 0})
    path = directory / f"{end_offset:020}-{epoch:010}.checkpoint"
    path.write_bytes(data)
    return path


def write_meta_properties(
    log_dir: Path, node: int = NODE, cluster: str = CLUSTER, directory: str = DIRECTORY
) -> None:
    """Write the meta.properties of a log dir."""
    log_dir.mkdir(parents=True, exist_ok=True)
    text = f"version=1\nnode.id={node}\ncluster.id={cluster}\ndirectory.id={directory}\n"
    (log_dir / "meta.properties").write_text(text)


def _control(offset: int, kind: str, fields: Mapping[str, object]) -> bytes:
    made = Record(offset, T0, control_key(kind), control_value(kind, fields))
    return encode_batch(NewBatch(records=(made,), control=True, leader_epoch=1))


def encoded(message: Message, values: Mapping[str, Any], version: int) -> bytes:
    """A message in one of its versions, without a frame; fields that are not given have their defaults."""
    return _struct(message.fields, values, version, version in message.flexible)


def _struct(fields: Sequence[Field], values: Mapping[str, Any], version: int, flexible: bool) -> bytes:
    data, tags = b"", []
    for field in fields:
        if version in field.tagged and field.name in values:
            tags.append((field.tag or 0, _value(field, values[field.name], version, flexible)))
        elif version in field.versions and version not in field.tagged:
            data += _value(field, values.get(field.name, _default(field)), version, flexible)
    if not flexible:
        return data
    data += _uvarint(len(tags))
    for tag, content in sorted(tags):
        data += _uvarint(tag) + _uvarint(len(content)) + content
    return data


def _default(field: Field) -> Any:
    if field.default == "null":
        return None
    if field.is_array:
        return []
    if field.type in ("string", "bytes"):
        return field.default or ("" if field.type == "string" else b"")
    if field.type == "uuid":
        return ZERO
    return field.default == "true" if field.type == "bool" else int(field.default or 0)


def _value(field: Field, value: Any, version: int, flexible: bool) -> bytes:
    if field.is_array:
        head = _length(None if value is None else len(value), "i", flexible)
        return head + b"".join(_one(field, each, version, flexible) for each in value or ())
    return _one(field, value, version, flexible)


def _length(length: int | None, width: str, flexible: bool) -> bytes:
    if flexible:
        return _uvarint(0 if length is None else length + 1)
    return struct.pack(">" + width, -1 if length is None else length)


def _one(field: Field, value: Any, version: int, flexible: bool) -> bytes:
    if field.fields:
        return _nullable(field, value, version, flexible)
    if field.type in ("string", "bytes"):
        data = value.encode() if isinstance(value, str) else value
        width = "h" if field.type == "string" else "i"
        return _length(None if data is None else len(data), width, flexible) + (data or b"")
    if field.type == "uuid":
        return uuid_bytes(value)
    if field.type == "bool":
        return bytes([value])
    return struct.pack(">" + _NUMBERS[field.type], value)


def _nullable(field: Field, value: Any, version: int, flexible: bool) -> bytes:
    """A struct. If it may be null, its marker differs between tagged and other fields."""
    head = b""
    if version in field.nullable and not field.is_array:
        if version in field.tagged:
            head = b"\0" if value is None else b"\1"
        else:
            head = b"\xff" if value is None else b"\1"
    return head if value is None else head + _struct(field.fields, value, version, flexible)


def _uvarint(value: int) -> bytes:
    data = b""
    while value > 0x7F:
        data, value = data + bytes([value & 0x7F | 0x80]), value >> 7
    return data + bytes([value])
