"""Decode the records of a piece of a log as Arrow batches, for `Partition.arrow_batches`. Needs pyarrow."""

from collections.abc import Callable, Iterator, Sequence

import pyarrow as pa

from kseg.inspection.arrow.arrow_schema import RECORD_SCHEMA
from kseg.inspection.arrow.log_ranges import LogPiece, Reading
from kseg.inspection.arrow.record_batches import read_piece
from kseg.segment.errors import UsageError
from kseg.segment.findings import Finding


def schema_of(columns: Sequence[str] | None) -> pa.Schema:
    """The columns of `kseg export`, or the given ones in their order. Raises UsageError for an unknown one."""
    if columns is None:
        return RECORD_SCHEMA
    unknown = [name for name in columns if name not in RECORD_SCHEMA.names]
    if unknown:
        raise UsageError(f"there is no column {unknown[0]}; there are {', '.join(RECORD_SCHEMA.names)}")
    return pa.schema([RECORD_SCHEMA.field(name) for name in columns])


def tables_of_piece(
    piece: LogPiece, schema: pa.Schema, on_finding: Callable[[Finding], object]
) -> Iterator[pa.RecordBatch]:
    """The records within the bounds of a piece. on_finding: called for each damage. Raises UnreadableInput."""
    for item in read_piece(piece, Reading(), schema):
        if isinstance(item, Finding):
            on_finding(item)
        else:
            yield item
