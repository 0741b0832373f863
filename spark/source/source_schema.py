"""The columns of `kafka-log`.

The first eight have the names and types of Spark's own Kafka source (`headers` with `includeHeaders`). `_meta` has the file and
position of a record and the fields of its batch; none of these is null, because the format itself uses −1 for "none", so Spark need
not check. Spark does not prune columns of Python data sources, but a read may specify its schema: any of these columns in any order,
and any fields of `_meta`. So

    spark.read.format("kafka-log").schema("offset BIGINT, _meta STRUCT<crc: BIGINT>").load(path)

reads neither keys nor values.
"""

from typing import Final

from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    DataType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from kseg.segment.errors import UsageError
from kseg.spark.source.options import FINDINGS, WITH_SCHEMAS, SourceOptions
from kseg.spark.source.payload_fields import Kinds, bytes_field, fields_of

HEADERS_TYPE: Final = ArrayType(
    StructType([StructField("key", StringType()), StructField("value", BinaryType())])
)

# position: in bytes, of the batch, or of an uncompressed message of magic 0 or 1. crc: as stored.
META_TYPE: Final = StructType(
    [
        StructField("file", StringType(), False),
        StructField("position", LongType(), False),
        StructField("base_offset", LongType(), False),
        StructField("leader_epoch", IntegerType(), False),
        StructField("producer_id", LongType(), False),
        StructField("producer_epoch", IntegerType(), False),
        StructField("sequence", IntegerType(), False),
        StructField("transactional", BooleanType(), False),
        StructField("control", BooleanType(), False),
        StructField("codec", StringType(), False),
        StructField("crc", LongType(), False),
        StructField("valid", BooleanType(), False),
    ]
)
META: Final = "_meta"
_NO_KINDS: Final[Kinds] = {}

RECORD_FIELDS: Final = (
    StructField("key", BinaryType()),
    StructField("value", BinaryType()),
    StructField("topic", StringType()),
    StructField("partition", IntegerType()),
    StructField("offset", LongType()),
    StructField("timestamp", TimestampType()),
    StructField("timestampType", IntegerType()),
    StructField("headers", HEADERS_TYPE),
    StructField(META, META_TYPE, False),
)

# `numbers`: the numbers in the message, by name, as JSON
FINDING_FIELDS: Final = (
    StructField("id", StringType(), False),
    StructField("severity", StringType(), False),
    StructField("topic", StringType()),
    StructField("partition", IntegerType()),
    StructField("path", StringType(), False),
    StructField("position", LongType()),
    StructField("length", LongType()),
    StructField("first_offset", LongType()),
    StructField("last_offset", LongType()),
    StructField("message", StringType(), False),
    StructField("numbers", StringType(), False),
)


def default_schema(options: SourceOptions, kinds: Kinds = _NO_KINDS) -> StructType:
    """The columns of a read without an explicit schema. kinds: the column types of decoded keys and values."""
    if options.table == FINDINGS:
        return StructType(list(FINDING_FIELDS))
    absent = {
        "key": not options.include_key,
        "value": not options.include_value,
        "headers": not options.include_headers,
        META: not options.include_meta,
    }
    fields: list[StructField] = []
    for each in RECORD_FIELDS:
        if not absent.get(each.name, False):
            fields += _decoded_fields(each.name, options, kinds) if each.name in kinds else [each]
    return StructType(fields)


def _decoded_fields(side: str, options: SourceOptions, kinds: Kinds) -> list[StructField]:
    form = options.key_format if side == "key" else options.value_format
    return fields_of(side, kinds[side], has_schemas=form in WITH_SCHEMAS)


def check_schema(schema: StructType, options: SourceOptions, kinds: Kinds = _NO_KINDS) -> None:
    """Raises UsageError unless `schema` consists of existing columns with their types. kinds: the column types of decoded keys and
    values."""
    fields = list(FINDING_FIELDS if options.table == FINDINGS else RECORD_FIELDS)
    if options.table != FINDINGS:
        for side in kinds:
            # the decoded column replaces the undecoded one
            fields += [*_decoded_fields(side, options, kinds), bytes_field(side)]
    known = {each.name: each for each in fields}
    for asked in schema.fields:
        there_is = known.get(asked.name)
        if there_is is None:
            raise UsageError(f"kafka-log has no column {asked.name}; it has {', '.join(known)}")
        if not _fits(asked.dataType, there_is.dataType, is_meta=asked.name == META):
            raise UsageError(
                f"the column {asked.name} is {there_is.dataType.simpleString()}, "
                f"not {asked.dataType.simpleString()}"
            )
    if len(set(schema.names)) != len(schema.names):
        raise UsageError("the schema names a column twice")


def _fits(asked: DataType, there_is: DataType, *, is_meta: bool = False) -> bool:
    if is_meta and isinstance(asked, StructType) and asked.fields:
        members = {each.name: each.dataType for each in META_TYPE.fields}
        distinct = len(set(asked.names)) == len(asked.names)
        return distinct and all(members.get(each.name) == each.dataType for each in asked.fields)
    return asked == there_is
