"""The columns of `kafka-log`: those of Spark's own Kafka source, `_meta`, and the columns that a read may request."""

from __future__ import annotations

import pytest

pytest.importorskip("pyspark")

from pyspark.sql.types import BinaryType, DataType, IntegerType, LongType, StringType, StructField, StructType

from kseg.segment.errors import UsageError
from kseg.spark.source.options import SourceOptions
from kseg.spark.source.source_schema import HEADERS_TYPE, check_schema, default_schema

PLAIN = SourceOptions(paths=("/data",))
# the columns in Spark's Kafka integration guide, with the types in its code
SPARKS_OWN = [
    "key:binary",
    "value:binary",
    "topic:string",
    "partition:int",
    "offset:bigint",
    "timestamp:timestamp",
    "timestampType:int",
]
SPARKS_HEADERS = "headers:array<struct<key:string,value:binary>>"


def described(schema: StructType) -> list[str]:
    return [f"{each.name}:{each.dataType.simpleString()}" for each in schema.fields]


def test_columns_of_sparks_own_source_come_first() -> None:
    plain = default_schema(PLAIN)
    assert described(plain)[:-1] == SPARKS_OWN and plain.names[-1] == "_meta"
    assert all(each.nullable for each in plain.fields[:-1])
    headed = default_schema(SourceOptions(paths=("/data",), include_headers=True))
    assert described(headed)[:-1] == [*SPARKS_OWN, SPARKS_HEADERS]


def test_meta_column_has_no_nulls() -> None:
    meta = default_schema(PLAIN)["_meta"]
    assert isinstance(meta.dataType, StructType) and not meta.nullable
    assert [each.name for each in meta.dataType.fields] == [
        *("file", "position", "base_offset", "leader_epoch", "producer_id", "producer_epoch"),
        *("sequence", "transactional", "control", "codec", "crc", "valid"),
    ]
    assert not any(each.nullable for each in meta.dataType.fields)


def test_include_options_leave_columns_out() -> None:
    bare = SourceOptions(paths=("/data",), include_key=False, include_value=False, include_meta=False)
    assert described(default_schema(bare)) == SPARKS_OWN[2:]


def test_findings_table_has_its_own_columns() -> None:
    names = default_schema(SourceOptions(paths=("/data",), table="findings")).names
    assert names[:2] == ["id", "severity"] and {"path", "position", "length", "message"} <= set(names)


def named(**types: DataType) -> StructType:
    return StructType([StructField(name, kind) for name, kind in types.items()])


@pytest.mark.parametrize(
    "asked",
    [
        named(offset=LongType(), key=BinaryType()),
        named(_meta=named(crc=LongType(), file=StringType()), topic=StringType()),
        named(headers=HEADERS_TYPE),
    ],
)
def test_valid_user_schema_is_accepted(asked: StructType) -> None:
    check_schema(asked, PLAIN)


@pytest.mark.parametrize(
    ("asked", "sentence"),
    [
        (named(body=BinaryType()), "no column body; it has key, value, topic"),
        (named(offset=IntegerType()), "the column offset is bigint, not int"),
        (named(_meta=named(checksum=LongType())), "the column _meta is struct<"),
        (named(_meta=named(crc=IntegerType())), "the column _meta is struct<"),
        (named(_meta=StructType()), "the column _meta is struct<"),
        (named(key=StringType()), "the column key is binary, not string"),
        (StructType([StructField("offset", LongType())] * 2), "names a column twice"),
    ],
)
def test_unknown_or_mistyped_column_is_refused(asked: StructType, sentence: str) -> None:
    with pytest.raises(UsageError, match=sentence):
        check_schema(asked, PLAIN)
