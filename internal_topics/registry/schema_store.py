"""Registered schemas, found by id, by GUID, or by subject and version.

Ids are unique within a context (`:.context:subject`, the default context has no prefix). A payload names only the id: the default
context takes precedence, then the only other context that has the id; if several do, the one whose subject names the topic.

A GUID (Schema Registry 8.0, in the headers `__key_schema_id` and `__value_schema_id`) is the MD5 of the schema text followed, for
each reference, by its name, its subject and its version as int32 (Confluent: `MD5.ofSchema`). For schemas with metadata or
rules the hash covers more, which is not reproduced: they have no GUID here.
"""

import hashlib
from collections.abc import Iterable, Mapping
from uuid import UUID

from kseg.segment.errors import FormatError
from kseg.segment.values import dataclass

AVRO, PROTOBUF, JSON = "AVRO", "PROTOBUF", "JSON"
LATEST = -1
DEFAULT_CONTEXT = ""


@dataclass(frozen=True, slots=True)
class SchemaReference:
    """name: as used in the schema (a full name in Avro, a file in protobuf, a URL in JSON Schema). version: LATEST or a number."""

    name: str
    subject: str
    version: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RegisteredSchema:
    """kind: AVRO, PROTOBUF or JSON. is_deleted: by a soft delete, a deleted subject, or a tombstone; records still name its id.
    has_rules: it has metadata or rules."""

    schema_id: int
    kind: str
    text: str
    subject: str = ""
    version: int = 0
    references: tuple[SchemaReference, ...] = ()
    is_deleted: bool = False
    has_rules: bool = False

    @property
    def guid(self) -> UUID | None:
        if self.has_rules:
            return None
        digest = hashlib.md5(self.text.encode("utf-8", "surrogatepass"), usedforsecurity=False)
        for each in self.references:
            digest.update(each.name.encode("utf-8", "surrogatepass"))
            digest.update(each.subject.encode("utf-8", "surrogatepass"))
            digest.update((each.version & 0xFFFFFFFF).to_bytes(4, "big"))
        return UUID(bytes=digest.digest())

    @property
    def context(self) -> str:
        return context_of(self.subject)

    def as_row(self) -> dict[str, object]:
        """Its representation in a JSON line."""
        row: dict[str, object] = {"id": self.schema_id}
        if self.subject:
            row |= {"subject": self.subject, "version": self.version}
        return row


def context_of(subject: str) -> str:
    """`:.name:subject` → `.name`, else the default context."""
    if subject.startswith(":."):
        return subject[1:].partition(":")[0]
    return DEFAULT_CONTEXT


class SchemaStore:
    """Schemas in the order of their registration; the first of two with the same id in one context counts, as in the registry.
    files: texts by file name, for references between schemas in a folder. path: where they come from."""

    def __init__(
        self, path: str, schemas: Iterable[RegisteredSchema], files: Mapping[str, str] | None = None
    ) -> None:
        self.path = path
        self.schemas = tuple(schemas)
        self.files = dict(files or {})
        self._by_id: dict[int, dict[str, RegisteredSchema]] = {}
        self._by_guid: dict[UUID, RegisteredSchema] = {}
        self._by_version: dict[tuple[str, int], RegisteredSchema] = {}
        self._latest: dict[str, RegisteredSchema] = {}
        for schema in self.schemas:
            self._by_id.setdefault(schema.schema_id, {}).setdefault(schema.context, schema)
            if not schema.subject:
                continue
            self._by_version[schema.subject, schema.version] = schema
            latest = self._latest.get(schema.subject)
            if latest is None or schema.version >= latest.version:
                self._latest[schema.subject] = schema

    def __reduce__(self) -> tuple[object, ...]:
        return SchemaStore, (self.path, self.schemas, self.files)

    def __len__(self) -> int:
        return len(self.schemas)

    def by_id(self, schema_id: int, topic: str | None = None) -> RegisteredSchema:
        """Raises FormatError if none, or more than one, has this id."""
        by_context = self._by_id.get(schema_id)
        if by_context is None:
            raise FormatError(f"{self.path} has no schema {schema_id}")
        if DEFAULT_CONTEXT in by_context:
            return by_context[DEFAULT_CONTEXT]
        candidates = list(by_context.values())
        if len(candidates) > 1 and topic is not None:
            named = {
                schema.context
                for schema in self.schemas
                if schema.subject.removeprefix(f":{schema.context}:") in (f"{topic}-key", f"{topic}-value")
            }
            candidates = [schema for schema in candidates if schema.context in named] or candidates
        if len(candidates) > 1:
            contexts = ", ".join(sorted(by_context))
            raise FormatError(f"schema {schema_id} is a different one in each of the contexts {contexts}")
        return candidates[0]

    def by_guid(self, guid: UUID) -> RegisteredSchema:
        """Raises FormatError if none has it."""
        if not self._by_guid:
            for schema in reversed(self.schemas):
                own = schema.guid
                if own is not None:
                    self._by_guid[own] = schema
        if guid not in self._by_guid:
            raise FormatError(f"{self.path} has no schema with the GUID {guid}")
        return self._by_guid[guid]

    def referenced(self, reference: SchemaReference, by: RegisteredSchema) -> RegisteredSchema:
        """The schema to which a reference refers, in the context of the schema that contains it. Raises FormatError."""
        subject = reference.subject
        if by.context != DEFAULT_CONTEXT and not subject.startswith(":."):
            subject = f":{by.context}:{subject}"
        if reference.version == LATEST:
            found = self._latest.get(subject)
        else:
            found = self._by_version.get((subject, reference.version))
        if found is None:
            raise FormatError(
                f"{by.kind} schema {by.schema_id} refers to version {reference.version} of subject {subject}, "
                f"which {self.path} does not have"
            )
        return found
