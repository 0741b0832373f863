"""Log dirs with payloads from Confluent's own serializers, and the `_schemas` topic that a registry would have written.

The serializers are those of confluent-kafka with its mock registry, so the wire format is theirs. The records of `_schemas` follow
Confluent's `SchemaRegistrySerializer`.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from confluent_kafka.schema_registry import Schema
from confluent_kafka.schema_registry._sync.mock_schema_registry_client import MockSchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroSerializer
from confluent_kafka.schema_registry.json_schema import JSONSerializer
from confluent_kafka.schema_registry.protobuf import ProtobufSerializer
from confluent_kafka.serialization import MessageField, SerializationContext

from kseg.segment.encoding.batch import encode_batch
from kseg.segment.model import Headers, NewBatch, Record

LOG = "00000000000000000000.log"
Entry = tuple[bytes, bytes | None]
TIME_MS = 1_700_000_000_000


class Registry:
    """A registry whose schemas become a `_schemas` topic. entries: its records so far."""

    def __init__(self) -> None:
        self.client = MockSchemaRegistryClient({"url": "mock://registry"})
        self.entries: list[Entry] = []
        self._known: set[tuple[str, int]] = set()

    def avro(self, topic: str, schema: Mapping[str, Any] | str, value: Any, field: str = "value") -> bytes:
        text = schema if isinstance(schema, str) else json.dumps(schema)
        payload = AvroSerializer(self.client, text)(value, SerializationContext(topic, MessageField(field)))
        self._note(f"{topic}-{field}")
        assert isinstance(payload, bytes)
        return payload

    def json_schema(self, topic: str, schema: Mapping[str, Any], value: Any) -> bytes:
        serializer = JSONSerializer(json.dumps(schema), self.client)
        payload = serializer(value, SerializationContext(topic, MessageField.VALUE))
        self._note(f"{topic}-value")
        assert isinstance(payload, bytes)
        return payload

    def protobuf(self, topic: str, message: Any) -> bytes:
        """Serialize a message, which registers its schema. The files that its file imports become subjects of their own."""
        serializer = ProtobufSerializer(type(message), self.client)
        payload = serializer(message, SerializationContext(topic, MessageField.VALUE))
        for imported in message.DESCRIPTOR.file.dependencies:
            self._note(imported.name)
        self._note(f"{topic}-value")
        assert isinstance(payload, bytes)
        return payload

    def register(
        self, subject: str, text: str, kind: str, references: Sequence[tuple[str, str, int]] = ()
    ) -> int:
        """Register a schema as it is; returns its id."""
        schema_id = self.client.register_schema(subject, Schema(text, kind))
        self._note(subject, references)
        return int(schema_id)

    def _note(self, subject: str, references: Sequence[tuple[str, str, int]] = ()) -> None:
        found = self.client.get_latest_version(subject)
        text, kind = found.schema.schema_str, found.schema.schema_type
        own: list[Any] = [(each.name, each.subject, each.version) for each in found.schema.references or ()]
        assert (
            found.version is not None
            and found.schema_id is not None
            and text is not None
            and kind is not None
        )
        if (subject, found.version) in self._known:
            return
        self._known.add((subject, found.version))
        self.entries.append(
            schema_entry(
                subject,
                found.version,
                found.schema_id,
                text,
                kind,
                references or own,
            )
        )

    def write(self, log_dir: Path) -> Path:
        """Write `_schemas-0` into the log dir."""
        return partition(log_dir / "_schemas-0", self.entries)


def schema_entry(
    subject: str,
    version: int,
    schema_id: int,
    text: str,
    kind: str = "AVRO",
    references: Sequence[tuple[str, str, int]] = (),
    *,
    deleted: bool = False,
) -> Entry:
    """A record of type SCHEMA."""
    value: dict[str, Any] = {"subject": subject, "version": version, "id": schema_id}
    if references:
        value["references"] = [{"name": n, "subject": s, "version": v} for n, s, v in references]
    if kind != "AVRO":
        value["schemaType"] = kind
    value |= {"schema": text, "deleted": deleted}
    return schema_key(subject, version), json.dumps(value).encode()


def schema_key(subject: str, version: int) -> bytes:
    return json.dumps({"keytype": "SCHEMA", "subject": subject, "version": version, "magic": 1}).encode()


def deleted_subject(subject: str, version: int) -> Entry:
    """A record of type DELETE_SUBJECT."""
    key = json.dumps({"keytype": "DELETE_SUBJECT", "subject": subject, "magic": 0}).encode()
    return key, json.dumps({"subject": subject, "version": version}).encode()


def partition(
    directory: Path,
    entries: Iterable[tuple[bytes | None, bytes | None] | tuple[bytes | None, bytes | None, Headers]],
    *,
    batch_records: int = 3,
) -> Path:
    """A partition directory with one segment of the given keys, values and headers."""
    directory.mkdir(parents=True)
    records = [
        Record(offset, TIME_MS + offset, entry[0], entry[1], entry[2] if len(entry) > 2 else ())
        for offset, entry in enumerate(entries)
    ]
    batches = [
        encode_batch(NewBatch(records=tuple(records[at : at + batch_records])))
        for at in range(0, len(records), batch_records)
    ]
    (directory / LOG).write_bytes(b"".join(batches))
    return directory
