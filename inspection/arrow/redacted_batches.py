"""Redact secrets in the values of Arrow batches, for the few logs that may contain some.

Whether a value contains a secret depends on its key, and control records contain none, so these two columns are read as well and
removed again. Values are checked one by one, since such logs are small.
"""

from collections.abc import Callable, Iterator

import pyarrow as pa

from kseg.inspection.arrow.arrow_schema import META, META_FIELDS, RECORD_SCHEMA
from kseg.segment.findings import Finding
from kseg.segment.redaction import Redactor

Results = Iterator[pa.RecordBatch | Finding]
_MESSAGE = "values that hold secrets are replaced; --show-secrets exports them (the data source's option showSecrets)"
_CONTROL = next(field for field in META_FIELDS if field.name == "control")


def redacted_batches(
    path: str, schema: pa.Schema, redactor: Redactor, read: Callable[[pa.Schema], Results]
) -> Results:
    """The output of `read` with the columns of `schema` and with secrets replaced; before the first batch with a replacement, one finding.

    read: yields the batches of the log at `path` with the given columns, and findings.
    """
    if "value" not in schema.names:
        yield from read(schema)
        return
    is_told = False
    for result in read(_with_evidence(schema)):
        if isinstance(result, Finding):
            yield result
            continue
        values, count = _redacted(result, path, redactor)
        if count and not is_told:
            is_told = True
            yield Finding("secrets-redacted", path, _MESSAGE)
        columns = [values if field.name == "value" else _as_asked(result, field) for field in schema]
        yield pa.RecordBatch.from_arrays(columns, schema=schema)


def _with_evidence(schema: pa.Schema) -> pa.Schema:
    """The requested columns, and those needed to decide which values may contain a secret."""
    fields = [field for field in schema if field.name != META]
    if "key" not in schema.names:
        fields.append(RECORD_SCHEMA.field("key"))
    members = list(schema.field(META).type) if META in schema.names else []
    if _CONTROL.name not in [member.name for member in members]:
        members.append(_CONTROL)
    return pa.schema([*fields, pa.field(META, pa.struct(members), nullable=False)])


def _redacted(batch: pa.RecordBatch, path: str, redactor: Redactor) -> tuple[pa.Array, int]:
    """The redacted values, and the number of replacements."""
    values = batch.column("value")
    shown, count = values.to_pylist(), 0
    keys, controls = batch.column("key").to_pylist(), batch.column(META).field(_CONTROL.name).to_pylist()
    for at, (key, value, is_control) in enumerate(zip(keys, shown, controls, strict=True)):
        instead = None if is_control else redactor.redacted(path, key, value)
        if instead is not None:
            shown[at] = instead
            count += 1
    return (pa.array(shown, values.type) if count else values), count


def _as_asked(batch: pa.RecordBatch, field: pa.Field) -> pa.Array:
    """A column without the members of `_meta` that were not requested."""
    column = batch.column(field.name)
    if field.name != META or column.type == field.type:
        return column
    members = list(field.type)
    return pa.StructArray.from_arrays([column.field(each.name) for each in members], fields=members)
