"""Output columns of an export: the requested ones, in types that the format supports.

parquet and arrow store all values as they are, as does JSON, whose writer converts them to text. CSV supports neither bytes nor
nested values: keys and values become text, headers JSON text, and the members of `_meta` columns of their own, `_meta_file` and
so on. With the bytes mode `auto`, text forms have the columns `key_encoding` and `value_encoding`. Columns that directories are
named after appear in the directory names only.

Decoded keys and values (`segment.payload_table`) have a column of their type, next to it `value_raw` and `value_error` with the
bytes that could not be decoded and the reason, and `value_schema_id` if they name a schema. In a text form a decoded value is
JSON: part of the line in JSON lines, text in CSV.
"""

import pyarrow as pa

from kseg.inspection.arrow.arrow_schema import META, META_FIELDS, RECORD_SCHEMA
from kseg.inspection.export.json_writer import JSON_LINE, json_values
from kseg.inspection.export.options import TEXT_FORMS, ExportOptions, Form
from kseg.inspection.export.payload_types import arrow_type, decoded_arrays
from kseg.inspection.export.text_columns import as_text, encodings
from kseg.inspection.export.timestamps import times

ENCODED = ("key", "value")


class OutputColumns:
    """topic: of the records. schema: of the files."""

    def __init__(self, options: ExportOptions, topic: str) -> None:
        self._mode = options.bytes_mode
        self._topic = topic
        self._payloads = options.payloads
        self._is_text = options.form in TEXT_FORMS
        self._is_csv = options.form is Form.CSV
        self._names = [
            field.name
            for field in RECORD_SCHEMA
            if options.has(field.name) and field.name not in options.partition_by
        ]
        self._has_encoding_column = options.has_encoding_column
        self.schema = self._schema()

    def of(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Convert a batch to the columns of `schema`."""
        columns: list[pa.Array] = []
        for name in self._names:
            values = batch.column(name)
            if name in ENCODED and self._is_decoded(name):
                columns += self._decoded(name, batch)
                continue
            columns += self._as_csv(name, values) if self._is_csv else [values]
            if name in ENCODED and self._has_encoding_column:
                columns.append(encodings(values))
        return pa.RecordBatch.from_arrays(columns, schema=self.schema)

    def _is_decoded(self, name: str) -> bool:
        return self._payloads is not None and self._payloads.is_decoded(name == "key")

    def _decoded(self, name: str, batch: pa.RecordBatch) -> list[pa.Array]:
        assert self._payloads is not None
        kind = self._decoded_fields(name)[0].type
        arrays = decoded_arrays(self._payloads, self._topic, name, batch, kind)
        if self._is_csv:
            arrays[f"{name}_raw"] = as_text(arrays[f"{name}_raw"], self._mode)
        return list(arrays.values())

    def _decoded_fields(self, name: str) -> list[pa.Field]:
        assert self._payloads is not None
        is_key = name == "key"
        kind = JSON_LINE if self._is_text else arrow_type(self._payloads.type_of(self._topic, is_key))
        raw = pa.string() if self._is_csv else pa.binary()
        fields = [pa.field(name, kind), pa.field(f"{name}_raw", raw), pa.field(f"{name}_error", pa.string())]
        if self._payloads.has_schemas(is_key):
            fields.append(pa.field(f"{name}_schema_id", pa.int32()))
        return fields

    def _as_csv(self, name: str, values: pa.Array) -> list[pa.Array]:
        match name:
            case "key" | "value":
                return [as_text(values, self._mode)]
            case "timestamp":
                return [times(values)]
            case "headers":
                return [json_values(values, self._mode)]
            case name if name == META:
                return list(values.flatten())
        return [values]

    def _schema(self) -> pa.Schema:
        fields = []
        for name in self._names:
            field = RECORD_SCHEMA.field(name)
            if name in ENCODED and self._is_decoded(name):
                fields += self._decoded_fields(name)
                continue
            if not self._is_csv:
                fields.append(field)
            elif name == META:
                fields += [pa.field(f"{META}_{member.name}", member.type) for member in META_FIELDS]
            elif name in ("key", "value", "timestamp", "headers"):
                fields.append(pa.field(name, pa.string()))
            else:
                fields.append(field)
            if name in ENCODED and self._has_encoding_column:
                fields.append(pa.field(f"{name}_encoding", pa.string()))
        return pa.schema(fields)
