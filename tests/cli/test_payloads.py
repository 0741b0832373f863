"""Payloads of Confluent's serializers, decoded by `dump`, `lookup` and `read` with the schemas of the `_schemas` topic."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path
from typing import Any

import pytest

from kseg.cli.main import run
from tests.support.command_lines import Capfd
from tests.support.registry_dirs import Registry, partition

ORDER: dict[str, Any] = {
    "type": "record",
    "name": "Order",
    "namespace": "com.acme",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "customer", "type": ["null", "string"], "default": None},
        {"name": "blob", "type": "bytes"},
        {
            "name": "price",
            "type": {"type": "bytes", "logicalType": "decimal", "precision": 10, "scale": 2},
        },
        {"name": "weight", "type": "double"},
        {"name": "state", "type": {"type": "enum", "name": "State", "symbols": ["NEW", "PAID"]}},
        {"name": "tags", "type": {"type": "map", "values": {"type": "array", "items": "int"}}},
    ],
}
ORDER_2 = ORDER | {"fields": [*ORDER["fields"], {"name": "note", "type": "string", "default": ""}]}


def order(number: int) -> dict[str, Any]:
    from decimal import Decimal

    return {
        "id": 2**60 + number,
        "customer": None if number else "Ada",
        "blob": bytes([0, 255, number]),
        "price": Decimal("-12.30"),
        "weight": float("nan") if number else 1.5,
        "state": "PAID",
        "tags": {"a": [1, 2], "b": []},
    }


def shown(number: int) -> dict[str, Any]:
    return {
        "id": 2**60 + number,
        "customer": None if number else "Ada",
        "blob": ["AP8A", "AP8B", "AP8C"][number],
        "price": "-12.30",
        "weight": "NaN" if number else 1.5,
        "state": "PAID",
        "tags": {"a": [1, 2], "b": []},
    }


@pytest.fixture
def log_dir(tmp_path: Path) -> Path:
    registry = Registry()
    key = registry.avro("orders", '"string"', "k0", "key")
    values = [
        (key, registry.avro("orders", ORDER, order(0))),
        (b"plain", registry.avro("orders", ORDER_2, order(1) | {"note": "é"})),
        (key, None),
        (key, b"\0\0\0\0\x63abc"),
        (key, b"just text"),
        (key, registry.avro("orders", ORDER, order(2))[:-1]),
    ]
    partition(tmp_path / "data" / "orders-0", values)
    registry.write(tmp_path / "data")
    return tmp_path / "data"


def rows(capfd: Capfd, kind: str = "record") -> list[dict[str, Any]]:
    lines = [json.loads(line, parse_constant=pytest.fail) for line in capfd.readouterr().out.splitlines()]
    return [line for line in lines if line["type"] == kind]


def test_dump_decodes_keys_and_values(log_dir: Path, capfd: Capfd) -> None:
    formats = ["--value-format", "avro", "--key-format", "auto"]
    assert run(["dump", "--json", "--print-data-log", *formats, str(log_dir / "orders-0")]) == 0
    found = rows(capfd)
    assert [row["value"] for row in found[:3]] == [shown(0), shown(1) | {"note": "é"}, None]
    assert [row["value_encoding"] for row in found[:3]] == ["avro", "avro", None]
    assert found[0]["value_schema"] == {"id": 2, "subject": "orders-value", "version": 1}
    assert found[1]["value_schema"] == {"id": 3, "subject": "orders-value", "version": 2}
    assert [row["key"] for row in found[:3]] == ["k0", "plain", "k0"]
    assert [row["key_encoding"] for row in found[:3]] == ["avro", "utf8", "avro"]
    assert "value_schema" not in found[2] and "value_error" not in found[2]


def test_undecodable_payload_is_shown_as_bytes_with_the_reason(log_dir: Path, capfd: Capfd) -> None:
    assert (
        run(["dump", "--json", "--print-data-log", "--value-format", "avro", str(log_dir / "orders-0")]) == 0
    )
    unknown, text, cut = rows(capfd)[3:]
    assert (unknown["value"], unknown["value_encoding"]) == ("\0\0\0\0cabc", "utf8")
    assert unknown["value_error"].endswith("has no schema 99")
    assert (text["value"], text["value_encoding"]) == ("just text", "utf8")
    assert "no schema id" in text["value_error"]
    assert cut["value_encoding"] == "base64" and cut["value_error"].startswith("schema 2: ")
    assert "bytes end before" in cut["value_error"]


def test_auto_format_leaves_other_payloads_alone(log_dir: Path, capfd: Capfd) -> None:
    assert (
        run(["dump", "--json", "--print-data-log", "--value-format", "auto", str(log_dir / "orders-0")]) == 0
    )
    text = rows(capfd)[4]
    assert text["value"] == "just text" and "value_error" not in text


def test_schemas_are_found_in_another_log_dir_of_the_broker(
    log_dir: Path, tmp_path: Path, capfd: Capfd
) -> None:
    other = tmp_path / "other"
    other.mkdir()
    (log_dir / "_schemas-0").rename(other / "_schemas-0")
    assert (
        run(["dump", "--json", "--print-data-log", "--value-format", "avro", str(log_dir / "orders-0")]) == 0
    )
    assert rows(capfd)[0]["value"] == shown(0)
    elsewhere = tmp_path / "deep" / "er"
    elsewhere.mkdir(parents=True)
    (other / "_schemas-0").rename(elsewhere / "copied")
    ask = ["dump", "--json", "--print-data-log", "--value-format", "avro", str(log_dir / "orders-0")]
    assert run(ask) == 2
    assert "no _schemas topic" in capfd.readouterr().err
    assert run([*ask, "--schemas", str(elsewhere / "copied")]) == 0
    assert rows(capfd)[0]["value"] == shown(0)


def test_lookup_and_read_decode_payloads(log_dir: Path, capfd: Capfd) -> None:
    place = [str(log_dir / "orders-0"), "--value-format", "avro"]
    assert run(["lookup", "--json", "--offset", "0", *place]) == 0
    (answer,) = rows(capfd, "lookup")
    assert answer["record"]["value"] == shown(0)
    assert run(["read", "--json", "--offset", "0", *place]) == 0
    assert rows(capfd)[0]["value"] == shown(0)
    assert run(["lookup", "--offset", "0", *place]) == 0
    assert '"customer": "Ada"' in capfd.readouterr().out
    assert run(["dump", "--format", "table", *place]) == 0
    assert '"customer": "Ada"' in capfd.readouterr().out


@pytest.mark.parametrize("jobs", ["1", "2"])
def test_payloads_are_decoded_alike_for_any_number_of_jobs(log_dir: Path, jobs: str, capfd: Capfd) -> None:
    ask = ["dump", "--json", "--print-data-log", "--value-format", "auto", "--jobs", jobs, str(log_dir)]
    assert run(ask) == 0
    assert [row["value"] for row in rows(capfd) if "orders-0" in row["file"]][:2] == [
        shown(0),
        shown(1) | {"note": "é"},
    ]


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["dump", "--print-data-log", "--value-format", "avro"], "--json or --format table"),
        (["dump", "--json", "--bytes", "redacted", "--value-format", "avro"], "--bytes redacted"),
        (["dump", "--json", "--schemas", "x"], "--schemas requires"),
        (["read", "--raw", "--offset", "0", "--value-format", "avro"], "--raw"),
    ],
)
def test_contradictory_payload_options_are_refused(
    log_dir: Path, words: list[str], sentence: str, capfd: Capfd
) -> None:
    assert run([*words, str(log_dir / "orders-0")]) == 2
    assert sentence in capfd.readouterr().err


def test_append_refuses_decoded_payload_lines(log_dir: Path, tmp_path: Path, capfd: Capfd) -> None:
    assert (
        run(["dump", "--json", "--print-data-log", "--value-format", "avro", str(log_dir / "orders-0")]) == 0
    )
    (tmp_path / "lines").write_text(capfd.readouterr().out)
    assert run(["append", "--from", str(tmp_path / "lines"), str(tmp_path / "copy-0")]) == 2
    assert "was dumped as avro" in capfd.readouterr().err


@pytest.mark.parametrize(
    ("form", "data", "value"),
    [
        ("integer", b"\0\0\0\x07", 7),
        ("long", (-3).to_bytes(8, "big", signed=True), -3),
        ("short", b"\0\1", 1),
        ("double", b"\x7f\xf0" + bytes(6), "Infinity"),
        ("json", b'{"a":[1]}', {"a": [1]}),
        ("string", "é".encode(), "é"),
    ],
)
def test_payloads_of_kafkas_own_serializers_are_decoded(
    tmp_path: Path, form: str, data: bytes, value: object, capfd: Capfd
) -> None:
    partition(tmp_path / "t-0", [(data, b"{'no':json}\xff")])
    assert (
        run(
            [
                "dump",
                "--json",
                "--print-data-log",
                "--key-format",
                form,
                "--value-format",
                form,
                str(tmp_path),
            ]
        )
        == 0
    )
    (row,) = rows(capfd)
    assert row["key"] == value and row["value_encoding"] == "base64" and row["value_error"]


def test_missing_schema_libraries_say_what_to_install(
    log_dir: Path, monkeypatch: pytest.MonkeyPatch, capfd: Capfd
) -> None:
    found = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == "fastavro" else found(name))
    ask = ["dump", "--json", "--print-data-log", str(log_dir / "orders-0"), "--value-format"]
    assert run([*ask, "avro"]) == 2
    assert "pip install 'kseg[schemas]'" in capfd.readouterr().err
    assert run([*ask, "auto"]) == 0
    first = rows(capfd)[0]
    assert first["value_encoding"] == "base64" and "kseg[schemas]" in first["value_error"]
