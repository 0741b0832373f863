"""Keys and values in a registry's wire format, decoded for rows of JSON and for tables.

A decoder is a picklable value: the requested formats and the schemas. Compiled schemas are cached separately in each
process. It never raises for the content of a record: the reason is part of the result.
"""

import importlib.util
import os
import struct
from collections.abc import MutableMapping
from enum import StrEnum
from typing import Any, Self

from kseg.internal_topics.registry.json_text import plain_json, read_json
from kseg.internal_topics.registry.schema_store import AVRO, JSON, PROTOBUF, RegisteredSchema, SchemaStore
from kseg.internal_topics.registry.wire_format import Frame, frame_of, message_indexes
from kseg.segment.errors import FormatError
from kseg.segment.model import Headers, Record
from kseg.segment.partition.directory import own_partition_name
from kseg.segment.values import dataclass


class Format(StrEnum):
    """How bytes are interpreted. BYTES: shown according to --bytes. AUTO: as wire format if they have it, else BYTES."""

    BYTES = "bytes"
    AUTO = "auto"
    AVRO = "avro"
    PROTOBUF = "protobuf"
    JSON_SCHEMA = "json-schema"
    JSON = "json"
    STRING = "string"
    SHORT = "short"
    INTEGER = "integer"
    LONG = "long"
    FLOAT = "float"
    DOUBLE = "double"


NEEDS_SCHEMAS = (Format.AUTO, Format.AVRO, Format.PROTOBUF, Format.JSON_SCHEMA)
KIND_OF_FORMAT = {Format.AVRO: AVRO, Format.PROTOBUF: PROTOBUF, Format.JSON_SCHEMA: JSON}
_NUMBERS = {
    Format.SHORT: struct.Struct(">h"),
    Format.INTEGER: struct.Struct(">i"),
    Format.LONG: struct.Struct(">q"),
    Format.FLOAT: struct.Struct(">f"),
    Format.DOUBLE: struct.Struct(">d"),
}
_LIBRARIES = {
    AVRO: ("fastavro",),
    PROTOBUF: ("google.protobuf", "proto_schema_parser"),
    JSON: (),
}


@dataclass(frozen=True, slots=True)
class Payload:
    """A decoded key or value. value: bytes as bytes, decimals as Decimal. encoding: its format. schema, message: with which it
    was written, None without a registry. converts: whether it may contain what JSON does not support."""

    value: Any
    encoding: str
    schema: RegisteredSchema | None = None
    message: str | None = None
    converts: bool = True


class _JsonDecoder:
    encoding = "json-schema"
    converts = False

    def decode(self, data: bytes, indexes: bytes | None = None) -> Any:
        return read_json(data)


class PayloadDecoder:
    """key_format, value_format: how keys and values are written. schemas: None if neither needs any."""

    def __init__(self, key_format: Format, value_format: Format, schemas: SchemaStore | None) -> None:
        self.key_format = key_format
        self.value_format = value_format
        self.schemas = schemas
        self._compiled: dict[int, Any] = {}  # by schema in the store
        self._topics: dict[str, str | None] = {}  # by the path of a log
        self._found: dict[tuple[object, str | None], RegisteredSchema] = {}

    def __reduce__(self) -> tuple[object, ...]:
        return PayloadDecoder, (self.key_format, self.value_format, self.schemas)

    def format(self, is_key: bool) -> Format:
        """The format of keys, or of values."""
        return self.key_format if is_key else self.value_format

    def has_schemas(self, is_key: bool) -> bool:
        """Whether keys, or values, refer to schemas."""
        return self.format(is_key) in NEEDS_SCHEMAS

    def for_log(self, path: str) -> Self:  # every log may contain payloads
        return self

    def program(self) -> None:
        """See `LogRowDecoder`."""

    def amend(self, row: MutableMapping[str, object], record: Record) -> None:
        """Put decoded keys and values into the row of a record: see docs/payloads.md for its members."""
        file = str(row["file"])
        if file not in self._topics:
            name = own_partition_name(os.path.dirname(file))
            self._topics[file] = None if name is None else name.topic
        topic = self._topics[file]
        for side, form, data in (
            ("key", self.key_format, record.key),
            ("value", self.value_format, record.value),
        ):
            if data is None or form is Format.BYTES:
                continue
            try:
                payload = self.decode(data, record.headers, topic, is_key=side == "key")
            except FormatError as error:
                row[f"{side}_error"] = str(error)
                continue
            if payload is None:
                continue
            row[side] = plain_json(payload.value) if payload.converts else payload.value
            row[f"{side}_encoding"] = payload.encoding
            if payload.schema is not None:
                named = payload.schema.as_row()
                row[f"{side}_schema"] = named | ({"message": payload.message} if payload.message else {})

    def decode(self, data: bytes, headers: Headers, topic: str | None, *, is_key: bool) -> Payload | None:
        """Decode bytes; None if AUTO leaves them as they are. Raises FormatError with the reason why they cannot be decoded."""
        form = self.format(is_key)
        if form not in NEEDS_SCHEMAS:
            return _simple(form, data)
        frame = frame_of(data, headers, is_key)
        if frame is None or (form is Format.AUTO and frame.schema_id == 0):
            if form is Format.AUTO:
                return None
            raise FormatError(
                "it has no schema id: it does not begin with the byte 0 and an id, and no header has one"
            )
        schema = self.schema_of(frame, topic)
        wanted = KIND_OF_FORMAT.get(form, schema.kind)
        if schema.kind != wanted:
            raise FormatError(f"schema {schema.schema_id} is of type {schema.kind}, not {wanted}")
        try:
            decoder = self.compiled(schema)
            value = decoder.decode(frame.data, frame.indexes)
        except FormatError as error:
            raise FormatError(f"schema {schema.schema_id}: {error}") from None
        message = None
        if schema.kind == PROTOBUF:
            message = decoder.name(
                message_indexes(frame.data if frame.indexes is None else frame.indexes or b"\0")[0]
            )
        return Payload(value, decoder.encoding, schema, message, decoder.converts)

    def schema_of(self, frame: Frame, topic: str | None) -> RegisteredSchema:
        """The schema that a frame refers to. Raises FormatError."""
        assert self.schemas is not None
        place = (frame.schema_id if frame.guid is None else frame.guid, topic)
        found = self._found.get(place)
        if found is None:
            if frame.guid is not None:
                found = self.schemas.by_guid(frame.guid)
            else:
                assert frame.schema_id is not None
                found = self.schemas.by_id(frame.schema_id, topic)
            self._found[place] = found
        return found

    def compiled(self, schema: RegisteredSchema) -> Any:
        """The decoder of a schema. Raises FormatError for one that cannot be used, each time."""
        known = self._compiled.get(id(schema))
        if known is None:
            try:
                known = self._made(schema)
            except FormatError as error:
                known = error
            self._compiled[id(schema)] = known
        if isinstance(known, FormatError):
            raise known
        return known

    def _made(self, schema: RegisteredSchema) -> Any:
        assert self.schemas is not None
        missing = missing_library(schema.kind)
        if missing is not None:
            raise FormatError(missing)
        if schema.kind == AVRO:
            from kseg.internal_topics.registry.avro_decoder import AvroDecoder

            return AvroDecoder(schema, self.schemas)
        if schema.kind == PROTOBUF:
            from kseg.internal_topics.registry.protobuf_decoder import ProtobufDecoder

            return ProtobufDecoder(schema, self.schemas)
        return _JsonDecoder()


def missing_library(kind: str) -> str | None:
    """A sentence about the library for this type of schema if it is not installed; else None."""
    for name in _LIBRARIES[kind]:
        if not _is_installed(name):
            package = name.replace("google.", "").replace("_", "-")
            return f"{kind} payloads need {package}, which is not installed: pip install 'kseg[schemas]'"
    return None


def _is_installed(name: str) -> bool:
    try:
        return importlib.util.find_spec(name) is not None
    except ModuleNotFoundError:
        return False


def _simple(form: Format, data: bytes) -> Payload | None:
    """Decoders without a schema: the serializers that come with Kafka."""
    if form is Format.BYTES:
        return None
    if form is Format.JSON:
        return Payload(read_json(data), "json", converts=False)
    if form is Format.STRING:
        try:
            return Payload(data.decode("utf-8"), "utf8", converts=False)
        except UnicodeDecodeError:
            raise FormatError("it is not UTF-8 text") from None
    number = _NUMBERS[form]
    if len(data) != number.size:
        raise FormatError(f"it has {len(data)} bytes, a {form} has {number.size}")
    return Payload(number.unpack(data)[0], str(form))
