"""Decoded keys and values as columns of Spark: those of an export (docs/payloads.md), in types that Spark has.

    value             the decoded value, of the common type of all schemas of the topic, or JSON text
    value_raw         the bytes of a value that does not decode         value_error        the reason
    value_schema_id   the schema that it was written with, if the format has ids
    value_bytes       the original value, only if the schema of the read requests it

Where Spark has no type, unsigned numbers become wider ones, times of day become numbers, timestamps have microseconds, and decimals of
more than 38 digits become JSON. The type of the schemas is in the metadata of the field, so readers need not scan all payloads again.
"""

import json
from collections.abc import Mapping
from typing import Final

from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    DataType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampNTZType,
    TimestampType,
)

from kseg.segment.column_types import (
    JSON_COLUMN,
    ColumnType,
    DecimalOf,
    ListOf,
    MapOf,
    Scalar,
    StructOf,
    as_plain,
    from_plain,
)

SIDES: Final = ("key", "value")
Kinds = Mapping[str, ColumnType]  # by side, if it is decoded

_METADATA = "kseg.columnType"
_MAX_DIGITS = 38
_UINT64 = DecimalType(20, 0)
_SCALARS: Final[Mapping[str, DataType]] = {
    "bool": BooleanType(),
    "int32": IntegerType(),
    "int64": LongType(),
    "uint32": LongType(),
    "uint64": _UINT64,
    "float": FloatType(),
    "double": DoubleType(),
    "string": StringType(),
    "bytes": BinaryType(),
    "json": StringType(),
    "date": DateType(),
    "time-millis": IntegerType(),
    "time-micros": LongType(),
    **{f"timestamp-{unit}": TimestampType() for unit in ("millis", "micros", "nanos")},
    **{f"local-timestamp-{unit}": TimestampNTZType() for unit in ("millis", "micros", "nanos")},
}


def without_large_decimals(kind: ColumnType) -> ColumnType:
    """A type in which JSON text replaces decimals too large for Spark."""
    match kind:
        case DecimalOf(precision, _) if precision > _MAX_DIGITS:
            return JSON_COLUMN
        case ListOf(element):
            return ListOf(without_large_decimals(element))
        case MapOf(value):
            return MapOf(without_large_decimals(value))
        case StructOf(fields):
            return StructOf(tuple((name, without_large_decimals(each)) for name, each in fields))
    return kind


def spark_type(kind: ColumnType) -> DataType:
    """The type of Spark that holds a column type `without_large_decimals`."""
    match kind:
        case Scalar(name):
            return _SCALARS[name]
        case DecimalOf(precision, scale):
            return DecimalType(precision, scale)
        case ListOf(element):
            return ArrayType(spark_type(element))
        case MapOf(value):
            return MapType(StringType(), spark_type(value))
        case StructOf(fields):
            return StructType([StructField(name, spark_type(each)) for name, each in fields])


def fields_of(side: str, kind: ColumnType, *, has_schemas: bool) -> list[StructField]:
    """The columns that replace a decoded side."""
    metadata = {_METADATA: json.dumps(as_plain(kind))}
    fields = [
        StructField(side, spark_type(kind), metadata=metadata),
        StructField(f"{side}_raw", BinaryType()),
        StructField(f"{side}_error", StringType()),
    ]
    if has_schemas:
        fields.append(StructField(f"{side}_schema_id", IntegerType()))
    return fields


def bytes_field(side: str) -> StructField:
    """The column with the bytes of a side that is decoded."""
    return StructField(f"{side}_bytes", BinaryType())


def kind_in(schema: StructType, side: str) -> ColumnType | None:
    """The column type that the field of a side declares in its metadata; None if it declares none, or one that is not its type."""
    if side not in schema.names:
        return JSON_COLUMN  # not a column of the read: any type will do
    field = schema[side]
    try:
        kind = from_plain(json.loads(field.metadata[_METADATA]))
    except (KeyError, TypeError, ValueError, RecursionError):
        return None
    return kind if spark_type(kind) == field.dataType else None
