"""Column types of decoded payloads as types of Arrow, and what decoding needs of a batch."""

from typing import Any, Final

import pyarrow as pa

from kseg.segment.column_types import ColumnType, DecimalOf, ListOf, MapOf, Scalar, StructOf
from kseg.segment.model import Headers

_SCALARS: Final = {
    "bool": pa.bool_(),
    "int32": pa.int32(),
    "int64": pa.int64(),
    "uint32": pa.uint32(),
    "uint64": pa.uint64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "string": pa.string(),
    "bytes": pa.binary(),
    "json": pa.string(),
    "date": pa.date32(),
    "time-millis": pa.time32("ms"),
    "time-micros": pa.time64("us"),
    "timestamp-millis": pa.timestamp("ms", "UTC"),
    "timestamp-micros": pa.timestamp("us", "UTC"),
    "timestamp-nanos": pa.timestamp("ns", "UTC"),
    "local-timestamp-millis": pa.timestamp("ms"),
    "local-timestamp-micros": pa.timestamp("us"),
    "local-timestamp-nanos": pa.timestamp("ns"),
}
_DECIMAL128_DIGITS = 38


def arrow_type(kind: ColumnType) -> pa.DataType:
    """The type of Arrow that holds a column type."""
    match kind:
        case Scalar(name):
            return _SCALARS[name]
        case DecimalOf(precision, scale):
            make = pa.decimal128 if precision <= _DECIMAL128_DIGITS else pa.decimal256
            return make(precision, scale)
        case ListOf(element):
            return pa.list_(pa.field("element", arrow_type(element)))
        case MapOf(value):
            return pa.map_(pa.string(), arrow_type(value))
        case StructOf(fields):
            return pa.struct([pa.field(name, arrow_type(each)) for name, each in fields])


def headers_of(batch: pa.RecordBatch) -> list[Headers] | None:
    """The headers of each record, None where no record has any."""
    column = batch.column("headers")
    if not len(column.flatten()):
        return None
    return [_headers(each) for each in column.to_pylist()]


def _headers(shown: list[dict[str, Any]] | None) -> Headers:
    return tuple((each["key"].encode("utf-8", "replace"), each["value"]) for each in shown or ())
