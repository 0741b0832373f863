"""Avro payloads: references across subjects and files, schema ids in headers, what travels to other processes."""

from __future__ import annotations

import io
import json
import pickle
from pathlib import Path
from typing import Any

import fastavro
import pyarrow.parquet
import pytest

from kseg.cli.main import run
from kseg.internal_topics.registry.payload_decoder import Format, PayloadDecoder
from kseg.internal_topics.registry.schema_files import read_schemas
from kseg.internal_topics.registry.schema_store import RegisteredSchema
from kseg.internal_topics.registry.schema_topic import read_schema_topic
from kseg.segment.errors import FormatError
from kseg.segment.model import Headers
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


def test_references_to_other_subjects(tmp_path: Path) -> None:
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


def test_types_in_other_files_of_a_folder(tmp_path: Path) -> None:
    (tmp_path / "5.avsc").write_text(json.dumps(ORDER))
    (tmp_path / "money.avsc").write_text(json.dumps(MONEY))
    store, _ = read_schemas(str(tmp_path))
    assert shown(PayloadDecoder(Format.BYTES, Format.AUTO, store), b"\0\0\0\0\x05" + payload()) == VALUE


def test_schema_ids_in_headers(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """`dump` and `export` of records whose headers name the schema: by its GUID, and by its id."""
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
    assert run(["dump", "--json", "--print-data-log", *place]) == 0
    found = [json.loads(line) for line in capfd.readouterr().out.splitlines()]
    records = [row for row in found if row["type"] == "record"]
    assert [(row["key"], row["value"]) for row in records] == [(1, 2), ("\x06", 4), (None, "\x04")]
    assert "GUID 00000000" in records[2]["value_error"]
    assert run(["export", "--to", "parquet", "--quiet", "--output", str(tmp_path / "out"), *place]) == 0
    (file,) = (tmp_path / "out").glob("*.parquet")
    table = pyarrow.parquet.read_table(file)
    assert table.column("value").to_pylist() == [2, 4, None]
    assert table.column("key").to_pylist() == [1, None, None]
    assert table.column("key_raw").to_pylist() == [None, b"\x06", None]
