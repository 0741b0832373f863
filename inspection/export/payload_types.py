"""Column types of decoded payloads as Arrow types, and the inputs of decoding from a batch."""

from typing import Any, Final

import pyarrow as pa

from kseg.segment.column_types import ColumnType, DecimalOf, ListOf, MapOf, Scalar, StructOf
from kseg.segment.model import Headers
from kseg.segment.payload_table import PayloadTable

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
    """The Arrow type of a column type."""
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


def decoded_arrays(
    payloads: PayloadTable, topic: str, name: str, batch: pa.RecordBatch, kind: pa.DataType
) -> dict[str, pa.Array]:
    """The columns that replace `name` (key or value) of a batch when it is decoded, in their order. kind: of the decoded values."""
    is_key = name == "key"
    decoded = payloads.decoded(topic, is_key, batch.column(name).to_pylist(), headers_of(batch))
    arrays = {
        name: pa.array(decoded.decoded, kind),
        f"{name}_raw": pa.array(decoded.raw, pa.binary()),
        f"{name}_error": pa.array(decoded.errors, pa.string()),
    }
    if payloads.has_schemas(is_key):
        arrays[f"{name}_schema_id"] = pa.array(decoded.schema_ids, pa.int32())
    return arrays


def headers_of(batch: pa.RecordBatch) -> list[Headers] | None:
    """The headers of each record, None if no record has any."""
    column = batch.column("headers")
    if not len(column.flatten()):
        return None
    return [_headers(each) for each in column.to_pylist()]


def _headers(shown: list[dict[str, Any]] | None) -> Headers:
    return tuple((each["key"].encode("utf-8", "replace"), each["value"]) for each in shown or ())
