"""`export` with decoded payloads: typed columns for all schema versions of a topic, payloads that cannot be decoded, JSON and CSV."""

from __future__ import annotations

import json
from datetime import UTC, date, datetime, time
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.dataset
import pytest

from kseg.cli.main import run
from tests.support.command_lines import Capfd
from tests.support.registry_dirs import Registry, partition

V1: dict[str, Any] = {
    "type": "record",
    "name": "Order",
    "fields": [
        {"name": "id", "type": "int"},
        {"name": "price", "type": {"type": "bytes", "logicalType": "decimal", "precision": 10, "scale": 2}},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {"name": "day", "type": {"type": "int", "logicalType": "date"}},
        {"name": "hour", "type": {"type": "int", "logicalType": "time-millis"}},
        {"name": "tags", "type": {"type": "map", "values": {"type": "array", "items": "string"}}},
        {"name": "code", "type": "string"},
        {"name": "next", "type": ["null", "Order"], "default": None},
        {
            "name": "who",
            "type": {"type": "record", "name": "Who", "fields": [{"name": "n", "type": "bytes"}]},
        },
    ],
}
V2: dict[str, Any] = {
    "type": "record",
    "name": "Order",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "code", "type": {"type": "array", "items": "int"}},
        {"name": "note", "type": ["null", "string", "double"], "default": None},
        {
            "name": "who",
            "type": {"type": "record", "name": "Who", "fields": [{"name": "m", "type": "float"}]},
        },
    ],
}
FIRST: dict[str, Any] = {
    "id": 7,
    "price": Decimal("12.30"),
    "at": datetime(2024, 5, 1, 12, tzinfo=UTC),
    "day": date(2024, 5, 1),
    "hour": time(12, 30),
    "tags": {"a": ["x"], "b": []},
    "code": "A",
    "next": None,
    "who": {"n": b"\0\xff"},
}
SECOND: dict[str, Any] = {"id": 2**40, "code": [1, 2], "note": 1.5, "who": {"m": 0.5}}


@pytest.fixture
def log_dir(tmp_path: Path) -> Path:
    registry = Registry()
    first = registry.avro("orders", V1, FIRST)
    later = first[:5] + registry.avro("orders", V1, FIRST | {"next": FIRST})[5:]
    entries = [
        (b"a", first),
        (b"b", registry.avro("orders", V2, SECOND)),
        (b"c", None),
        (b"d", b"\0\0\0\0\x63"),
        (b"e", first[:-1]),
        (b"f", later),
    ]
    partition(tmp_path / "data" / "orders-0", entries[:3])
    partition(tmp_path / "data" / "orders-1", entries[3:])
    registry.write(tmp_path / "data")
    return tmp_path / "data"


def exported(log_dir: Path, output: Path, *words: str, topic: str = "orders") -> pa.Table:
    where = ["--output", str(output), "--topic", topic, str(log_dir)]
    assert run(["export", "--to", "parquet", "--value-format", "avro", "--quiet", *words, *where]) == 0
    table = pyarrow.dataset.dataset(output, format="parquet").to_table()
    return table.sort_by([("partition", "ascending"), ("offset", "ascending")])


def test_exported_columns_hold_both_schema_versions(log_dir: Path, tmp_path: Path) -> None:
    table = exported(log_dir, tmp_path / "out")
    kind = table.schema.field("value").type
    assert {each.name: each.type for each in kind} == {
        "id": pa.int64(),
        "price": pa.decimal128(10, 2),
        "at": pa.timestamp("ms", "UTC"),
        "day": pa.date32(),
        "hour": pa.time32("ms"),
        "tags": pa.map_(pa.string(), pa.list_(pa.field("element", pa.string()))),
        "code": pa.string(),  # text in one version and a list in another, so JSON
        "next": pa.string(),  # recursive, so JSON
        "who": pa.struct([("n", pa.binary()), ("m", pa.float32())]),
        "note": pa.string(),
    }
    first, second, null, unknown, cut, nested = table.column("value").to_pylist()
    assert (
        first["id"] == 7
        and first["price"] == Decimal("12.30")
        and first["who"] == {"n": b"\0\xff", "m": None}
    )
    assert (first["at"], first["day"], first["hour"]) == (FIRST["at"], FIRST["day"], FIRST["hour"])
    assert dict(first["tags"]) == FIRST["tags"] and first["code"] == '"A"' and first["next"] is None
    assert second["id"] == 2**40 and json.loads(second["code"]) == [1, 2] and second["note"] == "1.5"
    assert second["price"] is None and second["who"] == {"n": None, "m": 0.5}
    assert null is unknown is cut is None
    assert json.loads(nested["next"])["price"] == "12.30"
    assert table.column("value_schema_id").to_pylist() == [1, 2, None, None, None, 1]
    raw, errors = table.column("value_raw").to_pylist(), table.column("value_error").to_pylist()
    assert (
        [each is None for each in raw]
        == [each is None for each in errors]
        == [True] * 3 + [False] * 2 + [True]
    )
    assert raw[3] == b"\0\0\0\0\x63" and "no schema 99" in errors[3] and "schema 1: " in errors[4]


def test_json_and_csv_exports_hold_decoded_values_as_json(log_dir: Path, capfd: Capfd) -> None:
    place = ["--value-format", "avro", "--quiet", "--no-meta", str(log_dir / "orders-0")]
    assert run(["export", "--to", "json", "--output", "-", *place]) == 0
    first, second, null = map(json.loads, capfd.readouterr().out.splitlines())
    assert first["value"]["price"] == "12.30" and first["value"]["who"] == {"n": "AP8="}
    assert second["value"] == SECOND and second["value_schema_id"] == 2
    assert "value" not in null and "value_error" not in null
    assert run(["export", "--to", "csv", "--output", "-", *place]) == 0
    header, line, *_ = capfd.readouterr().out.splitlines()
    assert header.startswith(
        '"key","key_encoding","value","value_raw","value_error","value_schema_id","topic"'
    )
    assert '""price"":""12.30""' in line


def test_topics_with_different_columns_need_separate_directories(
    log_dir: Path, tmp_path: Path, capfd: Capfd
) -> None:
    registry = Registry()
    payload = registry.avro("users", '"string"', "Ada")
    partition(log_dir / "users-0", [(None, payload)])
    schemas = tmp_path / "schemas"
    schemas.mkdir()
    (schemas / "1.avsc").write_text('"string"')
    ask = ["export", "--to", "parquet", "--value-format", "avro", "--quiet"]
    out = tmp_path / "out"
    assert run([*ask, "--output", str(out), "--topic", "users", "--schemas", str(schemas), str(log_dir)]) == 0
    assert pyarrow.dataset.dataset(out).to_table().column("value").to_pylist() == ["Ada"]
    both = [*ask, "--topic", "users", "--topic", "orders", str(log_dir), "--output"]
    assert run([*both, str(tmp_path / "both")]) == 2
    assert "different columns" in capfd.readouterr().err and not (tmp_path / "both").exists()
    assert run([*both, str(tmp_path / "both"), "--partition-by", "topic"]) == 0
    assert (tmp_path / "both" / "topic=orders").is_dir()


def test_keys_of_kafkas_own_serializers_are_exported_typed(tmp_path: Path) -> None:
    partition(tmp_path / "data" / "t-0", [((5).to_bytes(8, "big"), b"\x07"), (b"short", b"[1]")])
    words = ["--key-format", "long", "--value-format", "json"]
    table = exported(tmp_path / "data", tmp_path / "out", *words, topic="t")
    assert table.column("key").to_pylist() == [5, None]
    assert table.column("key_raw").to_pylist() == [None, b"short"]
    assert table.column("value").to_pylist() == [None, "[1]"]
    assert "key_schema_id" not in table.column_names


def test_json_schema_and_protobuf_payloads_are_exported_typed(tmp_path: Path) -> None:
    registry = Registry()
    schema = {
        "title": "Order",
        "type": "object",
        "properties": {
            "id": {"type": "integer"},
            "lines": {"type": "array", "items": {"$ref": "#/definitions/line"}},
            "any": {"oneOf": [{"type": "string"}, {"type": "number"}]},
        },
        "definitions": {"line": {"type": "object", "properties": {"n": {"type": "number"}}}},
    }
    value = {"id": 1, "lines": [{"n": 2}], "any": "x"}
    text = 'syntax = "proto3"; message M { int64 id = 1; optional bytes b = 2; map<string, M> m = 3; }'
    schema_id = registry.register("proto", text, "PROTOBUF")
    proto = b"\0" + schema_id.to_bytes(4, "big") + b"\0\x08\x05"
    partition(tmp_path / "data" / "j-0", [(None, registry.json_schema("j", schema, value))])
    partition(tmp_path / "data" / "p-0", [(None, proto)])
    registry.write(tmp_path / "data")
    table = exported(tmp_path / "data", tmp_path / "j", "--value-format", "auto", topic="j")
    assert table.column("value").to_pylist() == [{"id": 1, "lines": [{"n": 2.0}], "any": '"x"'}]
    table = exported(tmp_path / "data", tmp_path / "p", "--value-format", "auto", topic="p")
    assert table.column("value").to_pylist() == [{"id": 5, "b": None, "m": []}]
