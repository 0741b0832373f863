"""The topic `_schemas` read into a `SchemaStore`.

Keys and values are JSON (Confluent: `SchemaRegistrySerializer`):

    {"keytype":"SCHEMA","subject":S,"version":V,"magic":1}    {"subject","version","id","schemaType","schema","references","deleted"}
    {"keytype":"DELETE_SUBJECT","subject":S,"magic":0}        {"subject":S,"version":V}      versions 1 … V are deleted
    {"keytype":"CLEAR_SUBJECT", …}                            the subject's versions are deleted for good

`schemaType` is left out for Avro. Other key types (CONFIG, MODE, NOOP, CONTEXT) do not concern schemas. Deleted schemas, even those
deleted by a tombstone whose record has not been compacted away, are kept: records that were written with them still exist. Any
other record is counted in `problems` and skipped, and so is damage.
"""

import json
import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any

from kseg.internal_topics.registry.schema_store import (
    AVRO,
    JSON,
    PROTOBUF,
    RegisteredSchema,
    SchemaReference,
    SchemaStore,
)
from kseg.segment.errors import FormatError, KsegError, UnreadableInput
from kseg.segment.layout import INT32_MAX
from kseg.segment.model import Record
from kseg.segment.partition.partition_log import PartitionLog
from kseg.segment.partition.targets import PartitionTarget
from kseg.segment.scanning.damage import Damage
from kseg.segment.scanning.decode import Decoder, record_at
from kseg.segment.scanning.scan import Scanner
from kseg.segment.storage import places

SCHEMAS_DIRECTORY = "_schemas-0"
MAX_TEXT_BYTES = 16 * 1024 * 1024
MAX_REFERENCES = 1000
_KINDS = (AVRO, PROTOBUF, JSON)


def read_schema_topic(directory: str) -> tuple[SchemaStore, tuple[str, ...]]:
    """The schemas of a `_schemas-0` directory, and sentences about what is missing. Raises UnreadableInput when it cannot be listed."""
    replay = _Replay()
    with PartitionLog(PartitionTarget(directory, os.path.dirname(places.abspath(directory)))) as log:
        if log.is_kafka07 or not log.segments:
            raise UnreadableInput(f"{directory} has no segments of a _schemas topic")
        for record in _records(log, replay):
            replay.apply(record)
    problems = []
    if replay.damaged_bytes:
        problems.append(f"{directory}: {replay.damaged_bytes} bytes are damaged; schemas may be missing")
    if replay.unknown:
        problems.append(f"{directory}: {replay.unknown} records are not those of a schema registry")
    return SchemaStore(directory, replay.schemas()), tuple(problems)


def _records(log: PartitionLog, replay: "_Replay") -> Iterator[Record]:
    for segment in log.segments:
        try:
            decoder = Decoder(segment.file.view)
            scanner = Scanner.over(segment.file, segment.base_offset, next_base=segment.following_base)
            for block in scanner.blocks(0, segment.file.size_bytes):
                if isinstance(block, Damage):
                    replay.damaged_bytes += block.length
                    continue
                for chunk in decoder.chunks(block):
                    if not chunk.control:
                        for at in range(chunk.records.count):
                            yield record_at(chunk, at)
                    if chunk.problem is not None:
                        replay.unknown += 1
        except KsegError:
            replay.unknown += 1
        finally:
            segment.close()


class _Replay:
    """The records of the topic, in log order. unknown: records that a schema registry does not write."""

    def __init__(self) -> None:
        self._by_subject: dict[str, dict[tuple[int, int], RegisteredSchema]] = {}  # by version and id
        self.unknown = 0
        self.damaged_bytes = 0

    def schemas(self) -> list[RegisteredSchema]:
        return [schema for versions in self._by_subject.values() for schema in versions.values()]

    def apply(self, record: Record) -> None:
        try:
            key = _object(record.key)
            value = None if record.value is None else _object(record.value)
            match key.get("keytype"):
                case "SCHEMA" if value is None:
                    self._delete(str(key.get("subject")), lambda version: version == key.get("version"))
                case "SCHEMA" if value is not None:
                    schema = _schema(value)
                    versions = self._by_subject.setdefault(schema.subject, {})
                    versions[schema.version, schema.schema_id] = schema
                case "DELETE_SUBJECT" | "CLEAR_SUBJECT" if value is not None:
                    till = value.get("version")
                    last = till if isinstance(till, int) else INT32_MAX
                    self._delete(str(value.get("subject")), lambda version: version <= last)
        except (FormatError, ValueError, RecursionError):
            self.unknown += 1

    def _delete(self, subject: str, concerns: Callable[[int], bool]) -> None:
        versions = self._by_subject.get(subject, {})
        for place, schema in versions.items():
            if concerns(place[0]) and not schema.is_deleted:
                versions[place] = replace(schema, is_deleted=True)


def _object(data: bytes | None) -> Mapping[str, Any]:
    if data is None or len(data) > MAX_TEXT_BYTES:
        raise FormatError("no JSON object")
    found = json.loads(data)
    if not isinstance(found, dict):
        raise FormatError("no JSON object")
    return found


def _schema(value: Mapping[str, Any]) -> RegisteredSchema:
    kind = value.get("schemaType") or AVRO
    text, subject = value.get("schema"), value.get("subject")
    schema_id, version = _number(value.get("id")), _number(value.get("version"))
    if kind not in _KINDS or not isinstance(text, str) or not isinstance(subject, str):
        raise FormatError("no schema")
    references = value.get("references") or ()
    if not isinstance(references, (list, tuple)) or len(references) > MAX_REFERENCES:
        raise FormatError("no schema")
    return RegisteredSchema(
        schema_id=schema_id,
        kind=kind,
        text=text,
        subject=subject,
        version=version,
        references=tuple(map(_reference, references)),
        is_deleted=value.get("deleted") is True,
        has_rules=bool(value.get("metadata") or value.get("ruleSet")),
    )


def _reference(value: object) -> SchemaReference:
    if not isinstance(value, dict):
        raise FormatError("no reference")
    name, subject, version = value.get("name"), value.get("subject"), value.get("version")
    if not isinstance(name, str) or not isinstance(subject, str) or not isinstance(version, int):
        raise FormatError("no reference")
    return SchemaReference(name, subject, version if 0 < version <= INT32_MAX else -1)


def _number(value: object) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= INT32_MAX:
        raise FormatError("no schema")
    return value
