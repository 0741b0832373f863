"""Avro payloads: references across subjects and files, schema ids in headers, and decoders that are sent to other processes."""

from __future__ import annotations

import io
import json
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import fastavro
import pyarrow.parquet
import pytest

from kseg.cli.main import run
from kseg.internal_topics.registry.decoder_choice import read_schemas
from kseg.internal_topics.registry.payload_decoder import Format, PayloadDecoder
from kseg.internal_topics.registry.schema_store import RegisteredSchema, SchemaStore
from kseg.internal_topics.registry.schema_topic import read_schema_topic
from kseg.segment.errors import FormatError
from kseg.segment.model import Headers
from tests.support.command_rows import rows_of
from tests.support.registry_dirs import partition, schema_entry

MONEY = {
    "type": "record",
    "name": "Money",
    "namespace": "shop",
    "fields": [
        {"name": "units", "type": {"type": "bytes", "logicalType": "decimal", "precision": 20, "scale": 3}},
        {"name": "currency", "type": {"type": "enum", "name": "Currency", "symbols": ["EUR", "USD"]}},
    ],
}
ORDER = {
    "type": "record",
    "name": "Order",
    "namespace": "shop",
    "fields": [
        {"name": "total", "type": "Money"},
        {"name": "parts", "type": {"type": "array", "items": ["null", "shop.Money"]}},
    ],
}
VALUE = {
    "total": {"units": "1.500", "currency": "USD"},
    "parts": [None, {"units": "-0.001", "currency": "EUR"}],
}


def payload() -> bytes:
    from decimal import Decimal

    named: dict[str, Any] = {}
    fastavro.parse_schema(json.loads(json.dumps(MONEY)), named)
    schema = fastavro.parse_schema(json.loads(json.dumps(ORDER)), named)
    total = {"units": Decimal("1.500"), "currency": "USD"}
    out = io.BytesIO()
    value = {"total": total, "parts": [None, {"units": Decimal("-0.001"), "currency": "EUR"}]}
    fastavro.schemaless_writer(out, schema, value)
    return out.getvalue()


def shown(decoder: PayloadDecoder, data: bytes, headers: Headers = ()) -> Any:
    from kseg.internal_topics.registry.json_text import plain_json

    found = decoder.decode(data, headers, "orders", is_key=False)
    assert found is not None
    return plain_json(found.value)


def test_avro_references_to_other_subjects_are_resolved(tmp_path: Path) -> None:
    entries = [
        schema_entry("order-value", 1, 5, json.dumps(ORDER), references=[("shop.Money", "money", 2)]),
        schema_entry("money", 1, 3, '"string"'),
        schema_entry("money", 2, 4, json.dumps(MONEY)),
        schema_entry("broken", 1, 6, json.dumps(ORDER), references=[("shop.Money", "money", 9)]),
        schema_entry("circle", 1, 7, json.dumps(ORDER), references=[("shop.Money", "circle", 1)]),
        schema_entry("latest", 1, 8, json.dumps(ORDER), references=[("shop.Money", "money", -1)]),
    ]
    store, _ = read_schema_topic(str(partition(tmp_path / "_schemas-0", entries)))
    decoder = PayloadDecoder(Format.BYTES, Format.AVRO, store)
    assert shown(decoder, b"\0\0\0\0\x05" + payload()) == VALUE
    assert shown(decoder, b"\0\0\0\0\x08" + payload()) == VALUE
    assert shown(pickle.loads(pickle.dumps(decoder)), b"\0\0\0\0\x05" + payload()) == VALUE
    with pytest.raises(FormatError, match="version 9 of subject money"):
        shown(decoder, b"\0\0\0\0\x06" + payload())
    with pytest.raises(FormatError, match=r"shop\.Money"):
        shown(decoder, b"\0\0\0\0\x07" + payload())


def test_avro_types_in_other_files_of_a_folder_are_resolved(tmp_path: Path) -> None:
    (tmp_path / "5.avsc").write_text(json.dumps(ORDER))
    (tmp_path / "money.avsc").write_text(json.dumps(MONEY))
    store, _ = read_schemas(str(tmp_path))
    assert shown(PayloadDecoder(Format.BYTES, Format.AUTO, store), b"\0\0\0\0\x05" + payload()) == VALUE


def test_schema_ids_in_record_headers_are_used(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """`dump` and `export` of records whose headers name the schema, by its GUID or by its id."""
    text = '"long"'
    guid = RegisteredSchema(schema_id=1, kind="AVRO", text=text).guid
    assert guid is not None
    entries: list[tuple[bytes | None, bytes | None, Headers]] = [
        (
            b"\x02",
            b"\x04",
            ((b"__value_schema_id", b"\1" + guid.bytes), (b"__key_schema_id", b"\0\0\0\0\x01")),
        ),
        (b"\x06", b"\0\0\0\0\x01\x08", ()),
        (None, b"\x04", ((b"__value_schema_id", b"\1" + bytes(16)),)),
    ]
    partition(tmp_path / "data" / "orders-0", entries)
    partition(tmp_path / "data" / "_schemas-0", [schema_entry("orders-value", 1, 1, text)])
    place = ["--topic", "orders", "--value-format", "avro", "--key-format", "auto", str(tmp_path / "data")]
    found = rows_of(capfd, "dump", "--print-data-log", *place, status=0)
    records = [row for row in found if row["type"] == "record"]
    assert [(row["key"], row["value"]) for row in records] == [(1, 2), ("\x06", 4), (None, "\x04")]
    assert "GUID 00000000" in records[2]["value_error"]
    assert run(["export", "--to", "parquet", "--quiet", "--output", str(tmp_path / "out"), *place]) == 0
    (file,) = (tmp_path / "out").glob("*.parquet")
    table = pyarrow.parquet.read_table(file)
    assert table.column("value").to_pylist() == [2, 4, None]
    assert table.column("key").to_pylist() == [1, None, None]
    assert table.column("key_raw").to_pylist() == [None, b"\x06", None]


def decoded(schema: Any, data: bytes) -> Any:
    """A value of this schema as it is shown."""
    registered = RegisteredSchema(schema_id=1, kind="AVRO", text=json.dumps(schema))
    decoder = PayloadDecoder(Format.BYTES, Format.AVRO, SchemaStore("schemas", [registered]))
    return shown(decoder, b"\0\0\0\0\x01" + data)


def decimal(kind: dict[str, Any], scale: int, precision: int = 9) -> dict[str, Any]:
    return kind | {"logicalType": "decimal", "precision": precision, "scale": scale}


def fixed(name: str) -> dict[str, Any]:
    return {"type": "fixed", "name": name, "size": 4}


def test_union_of_decimals_is_decoded_by_its_branch() -> None:
    number = (1234).to_bytes(4, "big")
    by_scale = [decimal(fixed("A"), 1), decimal(fixed("B"), 3), fixed("C")]
    assert decoded(by_scale, b"\x00" + number) == "123.4"
    assert decoded(by_scale, b"\x02" + number) == "1.234"
    assert decoded(by_scale, b"\x04" + number) == "AAAE0g=="
    records = [
        {"type": "record", "name": name, "fields": [{"name": "p", "type": decimal({"type": "bytes"}, scale)}]}
        for name, scale in (("X", 1), ("Y", 3))
    ]
    assert decoded(records, b"\x02\x04\x04\xd2") == {"p": "1.234"}


@pytest.mark.parametrize(
    ("schema", "data", "value"),
    [
        (decimal({"type": "bytes"}, 3, 2), b"\x04\x04\xd2", "BNI="),  # scale larger than the precision
        (decimal(fixed("F"), 0, 10), b"abcd", "YWJjZA=="),  # more digits than four bytes can have
        ({"type": "bytes", "logicalType": "decimal"}, b"\x02\x01", "AQ=="),  # no precision
        ({"type": "bytes", "logicalType": ["x"]}, b"\x02\x01", "AQ=="),
        ({"type": "string", "logicalType": "decimal", "precision": 4}, b"\x02a", "a"),
    ],
)
def test_invalid_logical_types_are_ignored(schema: Any, data: bytes, value: str) -> None:
    """As the specification requires and Java does (LogicalTypes.fromSchemaIgnoreInvalid)."""
    assert decoded(schema, data) == value


def test_defaults_of_another_type_are_accepted() -> None:
    """Registries before 5.5 accepted them, and they do not affect the written data."""
    fields = [
        {"name": "n", "type": "int", "default": "none"},
        {"name": "m", "type": ["int", "null"], "default": None},
    ]
    assert decoded({"type": "record", "name": "R", "fields": fields}, b"\x02\x00\x04") == {"n": 1, "m": 2}


def test_named_type_inside_a_type_object_is_resolved() -> None:
    fields = [
        {"name": "a", "type": {"type": "enum", "name": "E", "symbols": ["X", "Y"]}},
        {"name": "b", "type": {"type": "E"}},
    ]
    assert decoded({"type": "record", "name": "R", "fields": fields}, b"\x00\x02") == {"a": "X", "b": "Y"}


def test_java_byte_arrays_are_decoded_without_a_length() -> None:
    """KafkaAvroSerializer writes a byte[] with the schema "bytes" without a length, confluent-kafka writes it in Avro's encoding."""
    for schema in ("bytes", {"type": "bytes", "avro.java.string": "String"}):
        assert decoded(schema, b"raw bytes") == "cmF3IGJ5dGVz"
        assert decoded(schema, b"\x06raw") == "cmF3"
    with pytest.raises(FormatError):
        decoded({"type": "record", "name": "R", "fields": [{"name": "b", "type": "bytes"}]}, b"raw bytes")


@pytest.mark.parametrize("name", ["shop.Money", "Money"])
@pytest.mark.parametrize("kind", ["union", "array", "name"])
def test_references_from_a_union_schema_are_resolved(kind: str, name: str, tmp_path: Path) -> None:
    """The schema of a topic with several kinds of events is a union of references."""
    around: Any = {"union": ["null", name], "array": {"type": "array", "items": name}, "name": name}[kind]
    entries = [
        schema_entry("money", 1, 4, json.dumps(MONEY | {"namespace": name.rpartition(".")[0]})),
        schema_entry("events-value", 1, 5, json.dumps(around), references=[(name, "money", 1)]),
    ]
    store, _ = read_schema_topic(str(partition(tmp_path / "_schemas-0", entries)))
    decoder = PayloadDecoder(Format.BYTES, Format.AVRO, store)
    before, behind = {"union": (b"\x02", b""), "array": (b"\x02", b"\0"), "name": (b"", b"")}[kind]
    money = {"units": "1.500", "currency": "USD"}
    found = shown(decoder, b"\0\0\0\0\x05" + before + b"\x04\x05\xdc\x02" + behind)
    assert found == ([money] if kind == "array" else money)


@pytest.mark.parametrize("index", [b"\x01", b"\x03", b"\x04"])
def test_negative_union_and_enum_indexes_are_errors(index: bytes) -> None:
    """Indexes -1, -2 and 2 with two branches or symbols, at the top level and in a named type."""
    enum = {"type": "enum", "name": "E", "symbols": ["A", "B"]}
    record = {"type": "record", "name": "R", "fields": [{"name": "e", "type": enum}]}
    fields = [{"name": "r", "type": record}, {"name": "again", "type": ["null", "R"]}]
    for schema, before in (
        (enum, b""),
        (["null", "boolean"], b""),
        ({"type": "record", "name": "S", "fields": fields}, b"\x02\x02"),
    ):
        with pytest.raises(FormatError, match="is not a valid branch of a union or symbol of an enum"):
            decoded(schema, before + index + b"\x00")


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "fixed", "name": "F", "size": None},
        {"type": "fixed", "name": "F", "size": -1},
        {"type": "record", "name": "R", "fields": [{"name": ["n"], "type": "int"}]},
        {"type": "record", "name": "R", "fields": [{"name": "n", "type": "int"}] * 2},
        {"type": "record", "name": "R", "fields": 5},
    ],
)
def test_unparsable_avro_schemas_are_errors(schema: Any) -> None:
    with pytest.raises(FormatError, match="its schema has a"):
        decoded(schema, b"\0\0")


@pytest.mark.parametrize(
    ("kind", "around"),
    [
        ("int", lambda number: number),
        ({"type": "int"}, lambda number: number),
        ({"type": "int", "logicalType": "date"}, lambda number: number),
        (["null", "int"], lambda number: number),
        ({"type": "array", "items": "int"}, lambda number: [1, number]),
        ({"type": "map", "values": {"type": "int"}}, lambda number: {"a": number}),
    ],
    ids=["int", "type", "logical", "union", "array", "map"],
)
def test_avro_int_is_limited_to_32_bits(kind: Any, around: Callable[[int], Any]) -> None:
    """fastavro does not check this, so payloads written with another schema used to show wrong numbers."""
    schema = {
        "type": "record",
        "name": "R",
        "fields": [{"name": "a", "type": kind}, {"name": "b", "type": "long"}],
    }
    wide = json.dumps(schema).replace('"int"', '"long"').replace(', "logicalType": "date"', "")
    for number in (-(2**31), -1, 0, 2**31 - 1, -(2**31) - 1, 2**31, 2**60):
        written = io.BytesIO()
        value = {"a": around(number), "b": 2**40}
        fastavro.schemaless_writer(written, fastavro.parse_schema(json.loads(wide)), value)
        if -(2**31) <= number < 2**31:
            assert decoded(schema, written.getvalue()) == value
        else:
            with pytest.raises(FormatError, match=f"{number} is not a valid int32"):
                decoded(schema, written.getvalue())
