"""Tampered payloads and schemas give a value or a reason, never an exception, in bounded time and memory."""

from __future__ import annotations

import io
import json
import os
import random
import resource
from typing import Any

import fastavro
import pytest

from kseg.internal_topics.registry.avro_decoder import AvroDecoder
from kseg.internal_topics.registry.column_fit import fit
from kseg.internal_topics.registry.json_text import plain_json, read_json
from kseg.internal_topics.registry.payload_columns import PayloadSurvey
from kseg.internal_topics.registry.payload_decoder import Format, PayloadDecoder
from kseg.internal_topics.registry.protobuf_decoder import ProtobufDecoder
from kseg.internal_topics.registry.schema_columns import (
    MAX_FIELDS,
    avro_columns,
    json_columns,
    protobuf_columns,
)
from kseg.internal_topics.registry.schema_store import RegisteredSchema, SchemaStore
from kseg.segment.column_types import ListOf, MapOf, Scalar, StructOf
from kseg.segment.errors import FormatError
from kseg.segment.json_line import json_line
from kseg.segment.model import Headers

COUNT = int(os.environ.get("KSEG_PAYLOADS", "20000"))
SEED = int(os.environ.get("KSEG_PAYLOADS_SEED", "15"))

TREE: dict[str, Any] = {
    "type": "record",
    "name": "Tree",
    "fields": [
        {"name": "name", "type": "string"},
        {"name": "children", "type": {"type": "array", "items": "Tree"}},
        {"name": "weights", "type": {"type": "map", "values": ["null", "double", "bytes"]}},
        {"name": "kind", "type": {"type": "enum", "name": "Kind", "symbols": ["A", "B"]}},
        {"name": "nothing", "type": {"type": "array", "items": "null"}},
        {
            "name": "price",
            "type": ["null", {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}],
        },
    ],
}
FLAT: dict[str, Any] = {
    "type": "record",
    "name": "Flat",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "text", "type": "string"},
        {"name": "list", "type": {"type": "array", "items": {"type": "fixed", "name": "Four", "size": 4}}},
        {"name": "choice", "type": ["null", "int", "string", {"type": "map", "values": "float"}]},
        {"name": "flag", "type": "boolean"},
    ],
}
PROTO = """syntax = "proto3"; message M { string a = 1; repeated M all = 2; map<string, bytes> m = 3; double d = 4;
  repeated sint64 n = 5; E e = 6; oneof o { bool b = 7; fixed32 f = 8; } enum E { X = 0; } message In { int32 i = 1; } }"""


def avro(schema: dict[str, Any], value: Any) -> bytes:
    out = io.BytesIO()
    fastavro.schemaless_writer(out, fastavro.parse_schema(json.loads(json.dumps(schema))), value)
    return out.getvalue()


def tree(depth: int) -> dict[str, Any]:
    return {
        "name": f"é{depth}",
        "children": [tree(depth - 1) for _ in range(2)] if depth else [],
        "weights": {"x": 1.5, "y": b"\xff", "z": None},
        "kind": "B",
        "nothing": [None, None],
        "price": None,
    }


def samples() -> list[bytes]:
    flat = {"id": 5, "text": "abc", "list": [b"1234"], "choice": {"k": 0.5}, "flag": True}
    proto = (
        b"\0\x0a\x01a\x12\x05\x0a\x03abc\x1a\x05\x0a\x01k\x12\0\x21"
        + bytes(8)
        + b"\x2a\x02\x01\x03\x30\x05\x38\x01"
    )
    return [
        b"\0\0\0\0\x01" + avro(TREE, tree(2)),
        b"\0\0\0\0\x02" + avro(FLAT, flat),
        b"\0\0\0\0\x03" + proto,
        b"\0\0\0\0\x04" + json.dumps({"a": [1, 2.5, None, {"b": "c"}]}).encode(),
    ]


def store() -> SchemaStore:
    texts = [("AVRO", json.dumps(TREE)), ("AVRO", json.dumps(FLAT)), ("PROTOBUF", PROTO), ("JSON", "{}")]
    return SchemaStore(
        "schemas",
        [RegisteredSchema(schema_id=at + 1, kind=kind, text=text) for at, (kind, text) in enumerate(texts)],
    )


def mutated(rng: random.Random, data: bytes) -> bytes:
    changed = bytearray(data)
    for _ in range(rng.randrange(1, 4)):
        at = rng.randrange(len(changed) + 1)
        match rng.randrange(5):
            case 0:
                changed[at : at + 1] = bytes([rng.randrange(256)])
            case 1:
                del changed[at:]
            case 2:
                changed[at:at] = rng.randbytes(rng.randrange(12))
            case 3:
                changed[at:at] = b"\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01"
            case 4:
                changed[at:at] = changed[at : at + 40] * rng.randrange(50)
    return bytes(changed)


@pytest.mark.slow
def test_mutated_payloads_give_a_value_or_a_reason() -> None:
    rng = random.Random(SEED)
    decoder = PayloadDecoder(Format.AVRO, Format.AUTO, store())
    known = samples()
    # unchanged payloads can be decoded
    for each in known:
        assert decoder.decode(each, (), "t", is_key=False) is not None
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    decoded = 0
    for _ in range(COUNT):
        data = mutated(rng, rng.choice(known))
        guid = rng.choice([b"\0\0\0\0\x03", b"\1" + rng.randbytes(16), b"\1", b""])
        headers: Headers = ((b"__value_schema_id", guid),) if not rng.randrange(10) else ()
        try:
            payload = decoder.decode(data, headers, "t", is_key=False)
        except FormatError as error:
            assert str(error)
            continue
        if payload is not None:
            decoded += 1
            json.loads(json_line({"value": plain_json(payload.value) if payload.converts else payload.value}))
    # the others give a reason
    assert decoded > COUNT // 50
    grown_kib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    assert grown_kib < 200 * 1024


def test_decoded_values_fit_their_columns_or_give_a_reason() -> None:
    rng = random.Random(SEED)
    schemas = store()
    for schema_id in (1, 2):
        decoder = AvroDecoder(schemas.by_id(schema_id), schemas)
        fitted = fit(avro_columns(decoder.schema, decoder.named))
        data = samples()[schema_id - 1][5:]
        for _ in range(COUNT // 20):
            try:
                fitted(decoder.decode(mutated(rng, data)))
            except FormatError as error:
                assert str(error)


@pytest.mark.parametrize("kind", ["AVRO", "PROTOBUF", "JSON"])
def test_mutated_schemas_give_a_value_or_a_reason(kind: str, capfd: pytest.CaptureFixture[str]) -> None:
    rng = random.Random(SEED)
    number = {"AVRO": 1, "PROTOBUF": 3, "JSON": 4}[kind]
    text = store().by_id(number).text.encode()
    payload = samples()[number - 1]
    for _ in range(COUNT // (200 if kind == "PROTOBUF" else 20)):
        changed = mutated(rng, text).decode("utf-8", "replace")
        schemas = SchemaStore("schemas", [RegisteredSchema(schema_id=number, kind=kind, text=changed)])
        try:
            PayloadDecoder(Format.BYTES, Format.AUTO, schemas).decode(payload, (), None, is_key=False)
        except FormatError as error:
            assert str(error)
    assert capfd.readouterr() == ("", "")


ODD: list[Any] = [
    *(
        None,
        True,
        -1,
        0,
        2**40,
        10**30,
        1.5,
        "",
        "x",
        "int",
        "shop.Tree",
        "record",
        "fixed",
        "é",
        [],
        {},
        ["null"],
    ),
    *(
        [[]],
        {"type": "int"},
        {"type": "Tree"},
        {"type": "array"},
        {"type": "fixed", "name": "Q", "size": None},
    ),
]
ATTRIBUTES = (
    *(
        "type",
        "name",
        "fields",
        "size",
        "symbols",
        "items",
        "values",
        "namespace",
        "logicalType",
        "precision",
    ),
    *("scale", "aliases", "properties", "$ref", "oneOf", "additionalProperties"),
)
OBJECT: dict[str, Any] = {
    "type": "object",
    "properties": {
        "a": {"type": "integer"},
        "b": {"$ref": "#/definitions/n"},
        "c": {"type": "array", "items": {"oneOf": [{"type": "null"}, {"type": "string"}]}},
    },
    "definitions": {
        "n": {"type": ["object", "null"], "properties": {"x": {"$ref": "#/definitions/n"}}},
    },
}


def reshaped(rng: random.Random, schema: Any) -> Any:
    """The schema with one node replaced, removed or added, so that it is still JSON."""
    copy = json.loads(json.dumps(schema))
    nodes: list[Any] = [copy]
    for node in nodes:
        nodes += [
            each
            for each in (node.values() if isinstance(node, dict) else node)
            if isinstance(each, (dict, list))
        ]
    for _ in range(rng.randrange(1, 3)):
        node = rng.choice(nodes)
        odd = json.loads(json.dumps(rng.choice(ODD)))
        if isinstance(node, list):
            node[rng.randrange(len(node) + 1) :] = [odd]
        elif node and rng.random() < 0.3:
            del node[rng.choice(list(node))]
        else:
            node[rng.choice([*node, *ATTRIBUTES])] = odd
    return copy


@pytest.mark.parametrize("kind", ["AVRO", "JSON"])
def test_schemas_of_an_unexpected_shape_give_a_reason(kind: str) -> None:
    """The columns for the decoded values are checked as well."""
    rng = random.Random(SEED)
    for _ in range(COUNT // 10):
        schema, data = rng.choice(
            [(OBJECT, b'{"a":1}')]
            if kind == "JSON"
            else [(TREE, avro(TREE, tree(1))), (FLAT, samples()[1][5:])]
        )
        text = json.dumps(reshaped(rng, schema))
        schemas = SchemaStore("schemas", [RegisteredSchema(schema_id=1, kind=kind, text=text)])
        survey = PayloadSurvey(PayloadDecoder(Format.BYTES, Format.AUTO, schemas))
        payload = b"\0\0\0\0\x01" + data
        survey.note("t", False, [payload])
        column = survey.columns().decoded("t", False, [payload], None)
        assert (column.errors[0] is None) == (column.schema_ids[0] is not None), text


def test_payloads_that_overflow_fastavro_give_a_reason() -> None:
    """fastavro overflows its stack on the first, and creates a list of a billion elements for the second."""
    long_list = b"\x80\xa8\xd6\xb9\x07" + b"\0"
    cases = [
        (
            {"type": "record", "name": "N", "fields": [{"name": "n", "type": ["null", "N"]}]},
            b"\x02" * 1_000_000,
        ),
        ({"type": "array", "items": "null"}, long_list),
        ({"type": "array", "items": {"type": "record", "name": "E", "fields": []}}, long_list),
        ({"type": "array", "items": {"type": "fixed", "name": "Z", "size": 0}}, long_list),
        (["null", "bytes"], b"\x02\x80\xa8\xd6\xb9\x07"),
        (
            {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2},
            b"\x80\x89\x7a" + bytes(999_424),
        ),
    ]
    for schema, data in cases:
        registered = RegisteredSchema(schema_id=1, kind="AVRO", text=json.dumps(schema))
        with pytest.raises(FormatError):
            AvroDecoder(registered, SchemaStore("schemas", [registered])).decode(data)
    deep: Any = "null"
    for _ in range(5000):
        deep = [deep]
    text = "[" * 5000 + '"null"' + "]" * 5000
    registered = RegisteredSchema(schema_id=1, kind="AVRO", text=text)
    with pytest.raises(FormatError):
        AvroDecoder(registered, SchemaStore("schemas", [registered]))
    for data in (b"[" * 150 + b"]" * 150, b"[" * 100_000, b"1e999", b"NaN", b"9" * 10_000, b'"\xff"', b""):
        with pytest.raises(FormatError):
            read_json(data)
    for data in (rb'"\ud800"', rb'{"\uDFFF":1}', rb'[["\ude00\ud83d"]]'):
        with pytest.raises(FormatError, match="unpaired surrogate"):
            read_json(data)
    assert read_json(rb'["\ud83d\ude00", "\\ud800"]') == ["\U0001f600", r"\ud800"]


def test_numbers_that_a_column_would_change_are_refused() -> None:
    """A number of JSON Schema may be an integer of any size, but a column of doubles has only 53 bits."""
    fitted = fit(Scalar("double"))
    assert (fitted(2**60), fitted(-5), fitted(0.1)) == (2.0**60, -5.0, 0.1)
    with pytest.raises(FormatError, match="more digits than a double"):
        fitted(2**60 + 1)


def fields_of(kind: Any) -> int:
    match kind:
        case StructOf(fields):
            return sum(1 + fields_of(each) for _, each in fields)
        case ListOf(inner) | MapOf(inner):
            return fields_of(inner)
    return 0


def test_columns_of_types_that_double_with_each_level_are_bounded() -> None:
    """14 levels have 32,000 fields; 30 would exhaust a process."""
    text = 'syntax = "proto3"; message M14 { M13 a = 1; M13 b = 2; } message M0 { int32 x = 1; }'
    text += "".join(f"message M{at} {{ M{at - 1} a = 1; M{at - 1} b = 2; }}" for at in range(1, 14))
    registered = RegisteredSchema(schema_id=1, kind="PROTOBUF", text=text)
    file = ProtobufDecoder(registered, SchemaStore("schemas", [registered])).file
    assert 0 < fields_of(protobuf_columns(file.message_types_by_name["M14"])) <= MAX_FIELDS
    wide = {"type": "object", "properties": {f"p{at}": {"type": "string"} for at in range(500)}}
    schema = {"type": "object", "properties": {f"q{at}": wide for at in range(500)}}
    assert 0 < fields_of(json_columns(schema)) <= MAX_FIELDS
