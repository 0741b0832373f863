"""Filter the records to export: apply a `Selection` to the batches that `inspection.arrow` reads.

Bounds that prune (offsets, times, transactions) go into the pieces that are read; keys, producers, epochs and the limit
are tested here, batch by batch. Columns that only a test needs are read as well, and dropped later.
"""

import re
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from kseg.inspection.arrow.arrow_schema import META, META_FIELDS, RECORD_SCHEMA
from kseg.inspection.export.options import ExportOptions


class RowFilter:
    """The requested records of one partition. schema: the columns to read. is_exhausted: no further record is requested."""

    def __init__(self, options: ExportOptions) -> None:
        self._selection = options.selection
        self._remaining = options.selection.limit
        pattern = options.selection.key_regex
        self._pattern = None if pattern is None else re.compile(pattern)
        self.schema = _schema_for(options, self._members())

    @property
    def is_exhausted(self) -> bool:
        return self._remaining == 0

    def filter_rows(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """The requested rows, in order, counted against the limit."""
        for mask in self._masks(batch):
            batch = batch.filter(mask)
        if self._remaining is not None:
            batch = batch.slice(0, self._remaining)
            self._remaining -= batch.num_rows
        return batch

    def _masks(self, batch: pa.RecordBatch) -> list[pa.Array]:
        mask = None
        for each in self._tests(batch):
            mask = each if mask is None else pc.and_(mask, each)
        return [] if mask is None else [mask]

    def _tests(self, batch: pa.RecordBatch) -> list[pa.Array]:
        want = self._selection
        tests = [
            pc.equal(batch.column(META).field(member), value) for member, value in self._members().items()
        ]
        if want.keys:
            tests.append(pc.is_in(batch.column("key"), value_set=pa.array(want.keys, pa.binary())))
        if self._pattern is not None:
            search = self._pattern.search
            keys = batch.column("key").to_pylist()
            tests.append(pa.array([key is not None and search(key) is not None for key in keys], pa.bool_()))
        return tests

    def _members(self) -> dict[str, Any]:
        """Required values of members of `_meta`."""
        want = self._selection
        asked: dict[str, Any] = {"producer_id": want.producer_id, "leader_epoch": want.leader_epoch}
        if want.control:
            asked["control"] = True
        return {member: value for member, value in asked.items() if value is not None}


def _schema_for(options: ExportOptions, members: dict[str, Any]) -> pa.Schema:
    want = options.selection
    needs_key = bool(want.keys) or want.key_regex is not None
    fields = []
    for field in RECORD_SCHEMA:
        is_needed = (field.name == "key" and needs_key) or (
            field.name == "headers" and options.payloads is not None
        )
        if options.has(field.name) or is_needed:
            fields.append(field)
        elif field.name == META and members:
            kept = [member for member in META_FIELDS if member.name in members]
            fields.append(pa.field(META, pa.struct(kept), nullable=False))
    return pa.schema(fields)
