"""The columns of the files, from those that were read: the ones that are wanted, in the types that the form can hold.

parquet and arrow hold what there is. JSON holds it too, its writer makes text of it. CSV holds neither bytes nor nested
values: keys and values become text, headers JSON text, and the members of `_meta` columns of their own, `_meta_file` and
so on. With the bytes mode `auto` a text form says in `key_encoding` and `value_encoding` how each is written.
Columns by which directories are made stand in the directories' names only.
"""

import pyarrow as pa

from kseg.inspection.arrow.arrow_schema import META, META_FIELDS, RECORD_SCHEMA
from kseg.inspection.export.json_writer import json_values
from kseg.inspection.export.options import ExportOptions, Form
from kseg.inspection.export.text_columns import as_text, encodings
from kseg.inspection.export.timestamps import times

ENCODED = ("key", "value")


class Shape:
    """schema: of the files."""

    def __init__(self, options: ExportOptions) -> None:
        self._mode = options.bytes_mode
        self._is_csv = options.form is Form.CSV
        self._names = [
            field.name
            for field in RECORD_SCHEMA
            if options.has(field.name) and field.name not in options.partition_by
        ]
        self._says_encoding = options.says_encoding
        self.schema = self._schema()

    def of(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """A batch with the columns of `schema`."""
        columns: list[pa.Array] = []
        for name in self._names:
            values = batch.column(name)
            columns += self._as_csv(name, values) if self._is_csv else [values]
            if name in ENCODED and self._says_encoding:
                columns.append(encodings(values))
        return pa.RecordBatch.from_arrays(columns, schema=self.schema)

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
            if not self._is_csv:
                fields.append(field)
            elif name == META:
                fields += [pa.field(f"{META}_{member.name}", member.type) for member in META_FIELDS]
            elif name in ("key", "value", "timestamp", "headers"):
                fields.append(pa.field(name, pa.string()))
            else:
                fields.append(field)
            if name in ENCODED and self._says_encoding:
                fields.append(pa.field(f"{name}_encoding", pa.string()))
        return pa.schema(fields)
