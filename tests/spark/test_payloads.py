"""Decoded payloads with Spark: the columns of the data source, and exports equal to those without a cluster."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.dataset
import pytest

pytest.importorskip("pyspark")

from kseg.cli.main import run
from kseg.segment.column_types import DecimalOf, ListOf, MapOf, Scalar, StructOf, as_plain, from_plain
from kseg.segment.errors import UsageError
from kseg.spark.source.options import read_options
from kseg.spark.source.payload_fields import spark_type, without_large_decimals
from kseg.spark.source.source import KafkaLog, register
from tests.cli.test_export_payloads import FIRST, SECOND, V1, V2
from tests.support.command_lines import Capfd
from tests.support.expected_exports import files_of, text_of
from tests.support.registry_dirs import Registry, partition

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

FAR: dict[str, Any] = {
    "type": "record",
    "name": "Far",
    "fields": [{"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}}],
}
# milliseconds that do not fit into 64 bits as microseconds
BEYOND = 2**62


@pytest.fixture
def log_dir(tmp_path: Path) -> Path:
    registry = Registry()
    first = registry.avro("orders", V1, FIRST)
    entries = [
        (b"a", first),
        (b"b", registry.avro("orders", V2, SECOND)),
        (b"c", None),
        (b"d", b"\0\0\0\0\x63"),
        (b"e", first[:-1]),
    ]
    partition(tmp_path / "data" / "orders-0", entries)
    users = [(b"\0\0\0\7", registry.avro("users", '"string"', "Ada"))]
    partition(tmp_path / "data" / "users-0", users)
    far = registry.avro("far", FAR, {"at": 5})
    partition(tmp_path / "data" / "far-0", [(None, far), (None, far[:5] + _zigzag(BEYOND))])
    registry.write(tmp_path / "data")
    return tmp_path / "data"


def _zigzag(number: int) -> bytes:
    number *= 2
    out = bytearray()
    while number > 127:
        out.append(number & 127 | 128)
        number >>= 7
    return bytes(out) + bytes((number,))


def source(log_dir: Path, topic: str, **given: str) -> KafkaLog:
    return KafkaLog({"path": str(log_dir), "subscribe": topic} | given)


def read(asked: KafkaLog, *names: str) -> list[dict[str, Any]]:
    """The rows of a read in this process, as Spark's tasks do it. names: the columns of the requested schema, by default all."""
    from pyspark.sql.types import StructType

    schema = asked.schema()
    if names:
        schema = StructType([schema[name] for name in names])
    reader = asked.reader(schema)
    found: list[dict[str, Any]] = []
    for task in reader.partitions():
        for batch in reader.read(task):
            assert isinstance(batch, pa.RecordBatch)
            batch.validate(full=True)
            assert batch.schema.names == schema.names
            found += batch.to_pylist()
    return found


# --- without a session


KINDS = (
    Scalar("uint64"),
    DecimalOf(10, 2),
    StructOf((("a", ListOf(Scalar("json"))), ("b", MapOf(StructOf((("c", DecimalOf(76, 3)),)))))),
)


@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_column_type_round_trips_as_json(kind: Any) -> None:
    assert from_plain(json.loads(json.dumps(as_plain(kind)))) == kind


@pytest.mark.parametrize(
    "plain", [None, "int", {"list": 7}, {"struct": []}, {"decimal": ["a", 2]}, [], {"map": {}}]
)
def test_invalid_column_type_is_rejected(plain: Any) -> None:
    with pytest.raises(ValueError, match="not a column type"):
        from_plain(plain)


def test_types_spark_lacks_are_replaced() -> None:
    kind = without_large_decimals(KINDS[2])
    assert spark_type(kind).simpleString() == "struct<a:array<string>,b:map<string,struct<c:string>>>"
    assert [
        spark_type(Scalar(each)).simpleString() for each in ("uint32", "uint64", "time-millis", "time-micros")
    ] == [
        *("bigint", "decimal(20,0)", "int", "bigint"),
    ]


def test_decoded_columns_have_values_raw_bytes_and_errors(log_dir: Path) -> None:
    first, second, null, unknown, cut = read(source(log_dir, "orders", valueFormat="avro"))
    assert first["key"] == b"a" and first["value"]["id"] == 7 and first["value_schema_id"] == 1
    assert first["value"]["hour"] == 45_000_000 and first["value"]["at"] == FIRST["at"]
    assert second["value"]["who"] == {"n": None, "m": 0.5} and json.loads(second["value"]["code"]) == [1, 2]
    assert null["value"] is null["value_raw"] is null["value_error"] is None
    assert unknown["value_raw"] == b"\0\0\0\0\x63" and "no schema 99" in unknown["value_error"]
    assert cut["value"] is None and "schema 1: " in cut["value_error"]


def test_raw_bytes_column_beside_the_decoded_value(log_dir: Path) -> None:
    from pyspark.sql.types import BinaryType, IntegerType, StructField, StructType

    asked = source(log_dir, "users", keyFormat="integer", valueFormat="auto")
    fields = [StructField("value_bytes", BinaryType()), StructField("key", IntegerType())]
    reader = asked.reader(StructType(fields))
    (task,) = reader.partitions()
    (batch,) = reader.read(task)
    assert isinstance(batch, pa.RecordBatch)
    assert batch.to_pylist() == [{"value_bytes": b"\0\0\0\0\3\6Ada", "key": 7}]


def test_json_values_need_no_survey_of_the_payloads(log_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from kseg.spark.source import payloads

    monkeypatch.setattr(payloads, "_surveyed", None)
    rows = read(
        KafkaLog({"path": str(log_dir), "valueFormat": "auto", "decodedAs": "json"}), "topic", "value"
    )
    values = [row["value"] for row in rows if row["topic"] == "users"]
    assert values == ['"Ada"']


def test_reader_does_not_survey_the_payloads_again(log_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from pyspark.sql.types import StructType

    from kseg.spark.source import payloads

    asked = source(log_dir, "orders", valueFormat="avro")
    # the schema as Spark passes it
    schema = StructType.fromJson(json.loads(asked.schema().json()))
    monkeypatch.setattr(payloads, "_surveyed", None)
    assert asked.reader(schema).partitions()


def test_user_given_schema_is_used(log_dir: Path) -> None:
    from pyspark.sql.types import LongType, StringType, StructField, StructType

    asked = source(log_dir, "users", valueFormat="avro")
    assert asked.reader(StructType([StructField("value", StringType())])).partitions()
    with pytest.raises(UsageError, match="the column value is string, not bigint"):
        asked.reader(StructType([StructField("value", LongType())]))


def test_timestamp_outside_sparks_range_is_a_value_error(log_dir: Path) -> None:
    near, far = read(source(log_dir, "far", valueFormat="avro"), "value", "value_raw", "value_error")
    assert near["value"]["at"].microsecond == 5000 and near["value_error"] is None
    assert (
        far["value"] is None and far["value_raw"][:5] == b"\0\0\0\0\4" and "cannot hold" in far["value_error"]
    )


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ({"schemas": "x"}, "the option schemas requires valueFormat or keyFormat"),
        ({"decodedAs": "json"}, "the option decodedAs requires valueFormat or keyFormat"),
        ({"valueFormat": "avor"}, "did you mean avro"),
    ],
)
def test_meaningless_payload_options_are_refused(given: dict[str, str], sentence: str) -> None:
    with pytest.raises(UsageError, match=sentence):
        read_options({"path": "/data"} | given)
    with pytest.raises(UsageError, match="for batch queries"):
        read_options({"path": "/data", "valueFormat": "avro"}, streaming=True)


def test_topics_with_different_columns_or_no_schemas_are_refused(log_dir: Path, tmp_path: Path) -> None:
    with pytest.raises(
        UsageError, match="have different columns: choose one with subscribe, or decodedAs=json"
    ):
        source(log_dir, "orders,users", valueFormat="avro").schema()
    partition(tmp_path / "elsewhere" / "in" / "orders-0", [(None, b"x")])
    with pytest.raises(
        UsageError, match=r"no _schemas topic is in or beside .*; the option schemas names one"
    ):
        source(tmp_path / "elsewhere" / "in", "orders", valueFormat="avro").schema()


# --- with a session


def both(log_dir: Path, tmp_path: Path, *words: str) -> tuple[Path, Path]:
    """Export without and with Spark, which must give the same result."""
    here, there = tmp_path / "here", tmp_path / "there"
    for output, more in ((here, []), (there, ["--spark"])):
        assert run(["export", "--quiet", *words, *more, "--output", str(output), str(log_dir)]) == 0
    return here, there


def lines_of(directory: Path) -> list[Any]:
    lines = [json.loads(line) for path in files_of(directory) for line in text_of(path).split("\n")[:-1]]
    for line in lines:
        line.get("_meta", {}).pop("file", None)
    return sorted(lines, key=lambda line: (line["topic"], line["offset"]))


@pytest.mark.spark
def test_spark_export_of_typed_columns_equals_the_local_one(
    local_spark: SparkSession, log_dir: Path, tmp_path: Path
) -> None:
    words = [
        "--to",
        "parquet",
        "--topic",
        "orders",
        "--no-meta",
        "--value-format",
        "avro",
        "--key-format",
        "string",
    ]
    here, there = both(log_dir, tmp_path, *words, "--key-regex", "[a-d]")
    tables = [
        pyarrow.dataset.dataset(path, format="parquet").to_table().sort_by("offset") for path in (here, there)
    ]
    assert tables[0].schema.names == tables[1].schema.names
    rows, others = (table.to_pylist() for table in tables)
    assert len(rows) == 4
    for row in rows:
        if row["value"] is not None:
            hour = row["value"]["hour"]
            # Spark writes a time as milliseconds
            row["value"]["hour"] = hour and (hour.hour * 60 + hour.minute) * 60_000
    assert others == rows


@pytest.mark.spark
@pytest.mark.parametrize("form", [["json"], ["json", "--bytes", "hex"], ["csv"]], ids=" ".join)
def test_spark_text_export_of_payloads_equals_the_local_one(
    local_spark: SparkSession, log_dir: Path, tmp_path: Path, form: list[str]
) -> None:
    here, there = both(
        log_dir, tmp_path, "--to", *form, "--topic", "[ou]*", "--no-meta", "--value-format", "auto"
    )
    if form[0] == "json":
        assert lines_of(there) == lines_of(here) and len(lines_of(here)) == 6
    else:
        plain, from_spark = (
            {line.replace('"', "") for path in files_of(root) for line in text_of(path).splitlines()}
            for root in (here, there)
        )
        assert from_spark == plain


@pytest.mark.spark
def test_decoded_columns_can_be_queried(local_spark: SparkSession, log_dir: Path) -> None:
    register(local_spark)
    frame = (
        local_spark.read.format("kafka-log")
        .options(subscribe="orders", valueFormat="avro", keyFormat="string")
        .load(str(log_dir))
    )
    rows = frame.where("value.id > 7").select("key", "value.who.m", "value_schema_id").collect()
    assert [tuple(row) for row in rows] == [("b", 0.5, 2)]
    assert frame.where("value_error IS NOT NULL").count() == 2


def test_spark_export_of_different_columns_into_one_table_is_refused(
    log_dir: Path, tmp_path: Path, capfd: Capfd
) -> None:
    words = [
        "--to",
        "parquet",
        "--topic",
        "[ou]*",
        "--value-format",
        "avro",
        "--partition-by",
        "topic",
        "--spark",
    ]
    assert run(["export", *words, "--output", str(tmp_path / "out"), str(log_dir)]) == 2
    assert "have different columns: choose one with --topic" in capfd.readouterr().err
