"""Write record batches as JSON lines with the same content as Spark's JSON writer.

One object per line; null members are left out; bytes are base64 unless another mode is requested. Whole columns are
converted to text at a time:

    value      null or its JSON text
    member     "name":value, null where the value is null
    object     { members that are not null, joined by commas }
"""

import pyarrow as pa
import pyarrow.compute as pc

from kseg.inspection.export.text_columns import as_text
from kseg.inspection.export.timestamps import times
from kseg.segment.json_line import compact_json

JSON_LINE = pa.large_string()  # marks columns that are JSON text already; no other column has this type


def json_lines(batch: pa.RecordBatch, bytes_mode: str) -> memoryview:
    """The rows as lines of UTF-8."""
    if not batch.num_rows:
        return memoryview(b"")
    lines = _object(batch.columns, batch.schema.names, bytes_mode, end="}\n")
    # Arrow stores strings back to back, so the buffer of the lines is the text
    _, ends, text = lines.buffers()
    return memoryview(text)[: memoryview(ends).cast("i")[len(lines)]]


def json_values(values: pa.Array, bytes_mode: str) -> pa.Array:
    """The JSON text of each value of a column; null stays null."""
    kind = values.type
    if pa.types.is_binary(kind):
        return _quoted(as_text(values, bytes_mode), is_plain=bytes_mode in ("base64", "hex"))
    if kind == JSON_LINE:
        return values.cast(pa.string())
    if pa.types.is_string(kind):
        return _quoted(values)
    if pa.types.is_timestamp(kind):
        return _quoted(times(values), is_plain=True)
    if pa.types.is_list(kind):
        elements = json_values(values.flatten(), bytes_mode)
        lengths = pc.fill_null(pc.list_value_length(values), 0)
        ends = pa.array([0, *pc.cumulative_sum(lengths).to_pylist()], pa.int32())
        joined = pc.binary_join(pa.ListArray.from_arrays(ends, elements), ",")
        return pc.if_else(values.is_valid(), _around("[", joined, "]"), pa.scalar(None, pa.string()))
    if pa.types.is_struct(kind):
        names = [kind.field(index).name for index in range(kind.num_fields)]
        return _object(values.flatten(), names, bytes_mode)
    return values.cast(pa.string())


def _object(columns: list[pa.Array], names: list[str], bytes_mode: str, end: str = "}") -> pa.Array:
    members = [
        _behind(f'"{name}":', json_values(column, bytes_mode))
        for name, column in zip(names, columns, strict=True)
    ]
    return _around("{", pc.binary_join_element_wise(*members, ",", null_handling="skip"), end)


def _behind(before: str, values: pa.Array) -> pa.Array:
    return pc.binary_join_element_wise("", values, before)


def _around(before: str, values: pa.Array, after: str) -> pa.Array:
    return pc.binary_join_element_wise(before, values, after, "")


def _quoted(values: pa.Array, is_plain: bool = False) -> pa.Array:
    """Strings as JSON strings. is_plain: none of them contains a character that must be escaped."""
    if is_plain:
        return _around('"', values, '"')
    encoded = values.dictionary_encode()
    known = [compact_json(text) for text in encoded.dictionary.to_pylist()]
    return pa.array(known, pa.string()).take(encoded.indices)
