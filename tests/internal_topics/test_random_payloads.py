"""Random schemas and values, written by fastavro and by protobuf: kseg shows the values that were written, also through `_schemas` with its
references. Truncated payloads give a value or a reason."""

from __future__ import annotations

import json
import math
import os
import random
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.schema_registry.common.serde import SchemaId
from google.protobuf.descriptor_pb2 import DescriptorProto, FieldDescriptorProto, FileDescriptorProto
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.json_format import MessageToDict
from google.protobuf.message_factory import GetMessageClass

from kseg.internal_topics.registry.json_text import plain_json
from kseg.internal_topics.registry.payload_columns import PayloadSurvey
from kseg.internal_topics.registry.payload_decoder import Format, PayloadDecoder
from kseg.internal_topics.registry.schema_topic import read_schema_topic
from kseg.segment.errors import FormatError
from tests.internal_topics.avro_cases import AvroCase, _avro_bytes
from tests.internal_topics.proto_printing import printed
from tests.support.registry_dirs import Entry, Registry, partition, schema_entry

SCHEMAS = int(os.environ.get("KSEG_RANDOM_SCHEMAS", "60"))
SEED = int(os.environ.get("KSEG_RANDOM_SCHEMAS_SEED", "15"))
# for each schema
VALUES = 4


def _framed(schema_id: int, data: bytes, indexes: bytes = b"") -> bytes:
    return b"\0" + schema_id.to_bytes(4, "big") + indexes + data


def _decoder(directory: Path, entries: list[Entry]) -> PayloadDecoder:
    store, problems = read_schema_topic(str(partition(directory / "_schemas-0", entries)))
    assert problems == ()
    return PayloadDecoder(Format.BYTES, Format.AUTO, store)


def _shown(decoder: PayloadDecoder, payload: bytes) -> Any:
    found = decoder.decode(payload, (), "t", is_key=False)
    assert found is not None
    return plain_json(found.value)


def _check_columns(decoder: PayloadDecoder, payloads: list[bytes]) -> None:
    """Each value fits into its column, except for integers that a column of doubles (for a union of long and double) would round."""
    survey = PayloadSurvey(decoder)
    survey.note("t", False, payloads)
    column = survey.columns().decoded("t", False, payloads, None)
    assert {each for each in column.errors if "more digits than a double" not in (each or "")} <= {None}


def _cut(decoder: PayloadDecoder, payload: bytes) -> None:
    for end in range(5, len(payload)):
        try:
            decoder.decode(payload[:end], (), "t", is_key=False)
        except FormatError as error:
            assert str(error)


# --- Avro


@pytest.mark.parametrize("batch", range(4))
def test_random_values_written_by_fastavro_are_decoded(batch: int, tmp_path: Path) -> None:
    """Some schemas refer to types of another subject, in one of its versions."""
    draw = random.Random(f"{SEED} {batch}")
    for number in range(-(-SCHEMAS // 4)):
        case = AvroCase(draw, number)
        defined: set[str] = set()
        base, schema = case.record(), case.schema()
        texts = [json.dumps(case.written(each, defined)) for each in (base, schema)]
        entries = [
            schema_entry("base", 1, 1, '"string"'),
            schema_entry("base", 2, 2, texts[0]),
            schema_entry(
                "t-value", 1, 3, texts[1], references=[("base", "base", 2)], deleted=number % 3 == 0
            ),
        ]
        alone = case.written(schema, set())
        decoder = _decoder(tmp_path / str(number), entries)
        payloads = []
        for _ in range(VALUES):
            made = case.value(schema)
            payload = _framed(3, _avro_bytes(alone, made.given))
            payloads.append(payload)
            assert _shown(decoder, payload) == made.shown, (SEED, batch, number, schema)
        _check_columns(decoder, payloads)
        _cut(decoder, payloads[0])


# --- JSON Schema


class JsonCase:
    """A random schema and random values that it allows."""

    def __init__(self, draw: random.Random) -> None:
        self._draw = draw
        self.definitions: dict[str, Any] = {}

    def schema(self, depth: int = 0) -> Any:
        draw = self._draw
        kinds = ["string", "integer", "number", "boolean", "nullable", "enum"]
        if depth < 4:
            kinds += ["object", "object", "array", "map", "ref", "oneOf"]
        match draw.choice(kinds) if depth else "object":
            case "object":
                names = draw.sample(("a", "b", "é", "x.y", "with space"), draw.randrange(1, 4))
                properties = {name: self.schema(depth + 1) for name in names}
                return {"type": "object", "properties": properties, "additionalProperties": False}
            case "array":
                return {"type": "array", "items": self.schema(depth + 1)}
            case "map":
                return {"type": "object", "additionalProperties": self.schema(depth + 1)}
            case "ref":
                name = f"d{len(self.definitions)}"
                # reserves the name while the definition is made
                self.definitions[name] = None
                self.definitions[name] = self.schema(depth + 1)
                return {"$ref": f"#/definitions/{name}"}
            case "oneOf":
                return {
                    "oneOf": [{"type": "null"}, {"type": "object", "properties": {"n": {"type": "integer"}}}]
                }
            case "nullable":
                return {"type": draw.choice((["string", "null"], ["null", "integer"], ["integer", "string"]))}
            case "enum":
                return {"enum": ["A", 5, None]}
            case kind:
                return {"type": kind}

    def value(self, schema: Any) -> Any:
        draw = self._draw
        if "$ref" in schema:
            return self.value(self.definitions[schema["$ref"].rpartition("/")[2]])
        if "enum" in schema:
            return draw.choice(schema["enum"])
        if "oneOf" in schema:
            return draw.choice((None, {"n": draw.randrange(100)}, {}))
        kind = draw.choice(schema["type"]) if isinstance(schema["type"], list) else schema["type"]
        match kind:
            case "object" if "properties" in schema:
                return {
                    name: self.value(each)
                    for name, each in schema["properties"].items()
                    if draw.random() < 0.8
                }
            case "object":
                inner = schema["additionalProperties"]
                return {f"k{at}": self.value(inner) for at in range(draw.randrange(3))}
            case "array":
                return [self.value(schema["items"]) for _ in range(draw.randrange(3))]
            case "integer":
                return draw.choice((0, -1, 2**63 - 1, 7))
            case "number":
                return draw.choice((0, 0.1, -1.5e300, 12))
            case "boolean":
                return draw.random() < 0.5
            case "null":
                return None
        return draw.choice(("", "é😀", "a\0b", "text"))


def test_random_values_of_confluents_json_serializer_are_decoded(tmp_path: Path) -> None:
    """Written by Confluent's serializer, which validates the values with jsonschema."""
    draw = random.Random(SEED)
    # fewer, because the serializer checks its schema for each value
    for number in range(-(-SCHEMAS // 4)):
        case, registry = JsonCase(draw), Registry()
        schema = case.schema()
        text = schema | {"title": "T", "$schema": "http://json-schema.org/draft-07/schema#"}
        text["definitions"] = case.definitions
        values = [case.value(schema) for _ in range(VALUES)]
        payloads = [registry.json_schema("t", text, value) for value in values]
        decoder = _decoder(tmp_path / str(number), registry.entries)
        assert [_shown(decoder, each) for each in payloads] == values
        _check_columns(decoder, payloads)
        _cut(decoder, payloads[0])


# --- protobuf

_SCALARS = (*range(1, 10), 12, 13, 15, 16, 17, 18)


class ProtobufCase:
    """Random files, each of which imports those before it."""

    def __init__(self, draw: random.Random) -> None:
        self._draw = draw
        self._is_proto3 = draw.random() < 0.6
        self.files: list[FileDescriptorProto] = []
        # types that fields may have
        self._messages: list[str] = []
        self._enums: list[str] = []
        for number in range(draw.randrange(1, 4)):
            self.files.append(self._file(number))

    def _file(self, number: int) -> FileDescriptorProto:
        package = self._draw.choice(("", "p", "p.q"))
        file = FileDescriptorProto(name=f"file{number}.proto", package=package)
        if self._is_proto3:
            file.syntax = "proto3"
        file.dependency.extend(each.name for each in self.files)
        scope = f".{package}." if package else "."
        enum = file.enum_type.add(name=f"E{number}")
        self._fill_enum(enum, f"E{number}")
        self._enums.append(scope + enum.name)
        for at in range(self._draw.randrange(1, 4)):
            self._message(file.message_type.add(name=f"M{number}_{at}"), scope, 0)
        return file

    def _fill_enum(self, enum: Any, prefix: str) -> None:
        for at, value in enumerate((0, 1, -5, 7)):
            enum.value.add(name=f"{prefix}_{at}", number=value)

    def _message(self, message: DescriptorProto, scope: str, depth: int) -> None:
        draw = self._draw
        own = scope + message.name
        if depth < 3:
            for at in range(draw.randrange(3 - depth)):
                self._message(message.nested_type.add(name=f"N{at}"), f"{own}.", depth + 1)
        if draw.random() < 0.3:
            self._fill_enum(message.enum_type.add(name="In"), "IN")
            self._enums.append(f"{own}.In")
        # a message may contain itself
        self._messages.append(own)
        number = 0
        for at in range(draw.randrange(7)):
            number += draw.choice((1, 1, 3, 500))
            kind = draw.random()
            if kind < 0.15:
                self._map(message, f"map_field{at}", number, own)
                continue
            field = message.field.add(name=f"field_{at}", number=number, label=1)
            self._type(field)
            if kind < 0.35:
                field.label = FieldDescriptorProto.LABEL_REPEATED
                if field.type not in (9, 11, 12) and draw.random() < 0.5:
                    field.options.packed = draw.random() < 0.5
            elif kind < 0.55:
                if not message.oneof_decl:
                    message.oneof_decl.add(name="choice")
                field.oneof_index = 0
            elif kind < 0.7 and self._is_proto3:
                field.proto3_optional = True
        # the oneofs that represent presence come last
        for field in message.field:
            if field.proto3_optional:
                field.oneof_index = len(message.oneof_decl)
                message.oneof_decl.add(name=f"_{field.name}")

    def _type(self, field: FieldDescriptorProto) -> None:
        kind = self._draw.random()
        if kind < 0.25:
            field.type, field.type_name = FieldDescriptorProto.TYPE_MESSAGE, self._draw.choice(self._messages)
        elif kind < 0.4:
            field.type, field.type_name = FieldDescriptorProto.TYPE_ENUM, self._draw.choice(self._enums)
        else:
            field.type = self._draw.choice(_SCALARS)

    def _map(self, message: DescriptorProto, name: str, number: int, own: str) -> None:
        entry = message.nested_type.add(name=name.title().replace("_", "") + "Entry")
        entry.options.map_entry = True
        key = entry.field.add(name="key", number=1, label=1)
        key.type = self._draw.choice((3, 5, 8, 9, 13))
        self._type(entry.field.add(name="value", number=2, label=1))
        message.field.add(name=name, number=number, label=3, type=11, type_name=f"{own}.{entry.name}")

    def indexes(self) -> list[int]:
        """The message indexes of a random message of the last file, as Java counts them: without the entry messages of maps."""
        path: list[int] = []
        place = list(self.files[-1].message_type)
        while place and (not path or self._draw.random() < 0.5):
            path.append(self._draw.randrange(len(place)))
            place = [each for each in place[path[-1]].nested_type if not each.options.map_entry]
        return path

    def fill(self, message: Any, depth: int = 0) -> Any:
        for field in message.DESCRIPTOR.fields:
            if self._draw.random() < 0.3 or (field.message_type is not None and depth > 4):
                continue
            entry = field.message_type is not None and field.message_type.GetOptions().map_entry
            if entry:
                key, value = field.message_type.fields
                for _ in range(self._draw.randrange(3)):
                    made = self._scalar(key)
                    if value.message_type is None:
                        getattr(message, field.name)[made] = self._scalar(value)
                    elif depth < 4:
                        self.fill(getattr(message, field.name)[made], depth + 1)
            elif field.is_repeated:
                for _ in range(self._draw.randrange(3)):
                    if field.message_type is None:
                        getattr(message, field.name).append(self._scalar(field))
                    else:
                        self.fill(getattr(message, field.name).add(), depth + 1)
            elif field.message_type is None:
                setattr(message, field.name, self._scalar(field))
            else:
                getattr(message, field.name).SetInParent()
                self.fill(getattr(message, field.name), depth + 1)
        return message

    def _scalar(self, field: Any) -> Any:
        draw = self._draw
        match field.type:
            case 1 | 2:
                return draw.choice((0.0, 0.5, -1.25, math.inf, -math.inf, math.nan))
            case 8:
                return draw.random() < 0.5
            case 9:
                return draw.choice(("", "é😀", "a\0b", "text"))
            case 12:
                return draw.randbytes(draw.randrange(5))
            case 14:
                known = [each.number for each in field.enum_type.values]
                return draw.choice(known)
            case 4 | 6:
                return draw.choice((0, 1, 2**64 - 1))
            case 7 | 13:
                return draw.choice((0, 1, 2**32 - 1))
            case 3 | 16 | 18:
                return draw.choice((0, -1, 2**63 - 1, -(2**63)))
        return draw.choice((0, -1, 2**31 - 1, -(2**31)))


def _as_json(value: Any) -> Any:
    """Numbers as text, because protobuf's JSON has 64-bit numbers as text."""
    if isinstance(value, dict):
        return {name: _as_json(each) for name, each in value.items()}
    if isinstance(value, list):
        return [_as_json(each) for each in value]
    if isinstance(value, float):
        return repr(float(value))
    return value if value is None or isinstance(value, bool) else str(value)


@pytest.mark.parametrize("batch", range(4))
def test_random_values_written_by_protobuf_are_decoded(batch: int, tmp_path: Path) -> None:
    draw = random.Random(f"{SEED} {batch}")
    for number in range(-(-SCHEMAS // 4)):
        case = ProtobufCase(draw)
        pool = DescriptorPool()
        entries = []
        for at, file in enumerate(case.files):
            pool.Add(file)
            references = [(each, each, 1) for each in file.dependency]
            entries.append(schema_entry(file.name, 1, at + 1, printed(file), "PROTOBUF", references))
        decoder = _decoder(tmp_path / str(number), entries)
        last, schema_id = pool.FindFileByName(case.files[-1].name), len(case.files)
        payloads = []
        indexes = case.indexes()
        frame = SchemaId("PROTOBUF", 1, None, indexes).id_to_bytes()[5:]
        kind = next(iter([last.message_types_by_name[case.files[-1].message_type[indexes[0]].name]]))
        for index in indexes[1:]:
            kind = [each for each in kind.nested_types if not each.GetOptions().map_entry][index]
        for _ in range(VALUES):
            message = case.fill(GetMessageClass(kind)())
            wanted = MessageToDict(
                message, preserving_proto_field_name=True, always_print_fields_with_no_presence=True
            )
            payload = _framed(schema_id, message.SerializeToString(), frame)
            payloads.append(payload)
            assert _as_json(_shown(decoder, payload)) == _as_json(wanted), (SEED, batch, number)
        _check_columns(decoder, payloads)
        _cut(decoder, payloads[0])
