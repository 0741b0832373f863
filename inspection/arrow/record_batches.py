"""Read a range of a log as Arrow batches, with findings for what cannot be read, in file order.

1. The scanner yields tables of valid batches and damage spans, from the piece's start up to its stop.
2. The kernel selects runs of a table's batches that may contain requested records; batches of aborted transactions are removed
   from a run one by one, if there are any.
3. Runs are decoded into chunks. If bounds cut through a batch, rows outside of them are dropped.
4. The builder collects the rows into columns.

Findings and batches are in file order: pending rows in the builder are emitted before a finding.
"""

from array import array
from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

import pyarrow as pa

from kseg.inspection.arrow.batch_columns import BatchOrigin
from kseg.inspection.arrow.builder import BatchBuilder
from kseg.inspection.arrow.committed_ranges import MarkerCheck
from kseg.inspection.arrow.log_ranges import Aborted, LogPiece, Reading, ValidatedRanges
from kseg.segment import header_tables as C
from kseg.segment import layout as L
from kseg.segment.files import MappedFile
from kseg.segment.findings import Finding
from kseg.segment.kernel import arrow_gather as G
from kseg.segment.partition.bounds import Bounds
from kseg.segment.scanning.damage import Damage
from kseg.segment.scanning.damage_findings import damage_finding, undecodable
from kseg.segment.scanning.decode import Chunk, Decoder
from kseg.segment.scanning.prevalidated import SkippableSpans
from kseg.segment.scanning.scan import Scanner

if TYPE_CHECKING:
    from kseg.segment.header_tables import Columns

_NO_BOUNDS = Bounds()


def read_piece(
    piece: LogPiece, reading: Reading, schema: pa.Schema, validated: ValidatedRanges | None = None
) -> Iterator[pa.RecordBatch | Finding]:
    """Batches with the columns of `schema` (see `BatchBuilder`) and findings. Raises UnreadableInput."""
    if piece.bounds.is_empty:
        return
    if reading.redactor is not None and reading.redactor.concerns(piece.path):
        from kseg.inspection.arrow.redacted_batches import redacted_batches

        plain = replace(reading, redactor=None)
        yield from redacted_batches(
            piece.path, schema, reading.redactor, lambda columns: read_piece(piece, plain, columns, validated)
        )
        return
    if piece.is_kafka07:
        from kseg.inspection.arrow.tables07 import read_kafka07

        yield from read_kafka07(piece, reading, schema)
        return
    with MappedFile(piece.path) as file:
        yield from _Reader(piece, reading, schema, file, validated or ValidatedRanges()).results()


class _Reader:
    def __init__(
        self,
        piece: LogPiece,
        reading: Reading,
        schema: pa.Schema,
        file: MappedFile,
        validated: ValidatedRanges,
    ) -> None:
        self.piece = piece
        self.reading = reading
        self.misplaced = validated.misplaced
        skippable = SkippableSpans(validated.spans, with_records=False) if validated.spans else None
        self.scanner = Scanner.over(file, piece.base_offset, skippable=skippable)
        self.decoder = Decoder(file.view)
        origin = BatchOrigin(piece.path, piece.topic, piece.partition)
        self.builder = BatchBuilder(schema, origin, reading.records_per_batch, reading.bytes_per_batch)
        bounds = piece.bounds
        self.cuts = bounds != _NO_BOUNDS
        control = int(reading.include_control)
        self.bounds = memoryview(
            array("q", [bounds.from_offset, bounds.to_offset, bounds.from_ms, control, bounds.to_ms])
        )
        self.markers = MarkerCheck(piece, file.view) if piece.checks_markers else None
        self.aborted: dict[int, list[Aborted]] = {}
        for each in piece.aborted:
            self.aborted.setdefault(each.producer_id, []).append(each)

    def results(self) -> Iterator[pa.RecordBatch | Finding]:
        piece = self.piece
        for block in self.scanner.blocks(piece.start, None, piece.stop):
            if isinstance(block, Damage):
                yield from self._damaged(block)
            else:
                if self.markers is not None:
                    yield from self.markers.table(block)
                yield from self._table(block)
                if self._is_behind(block):
                    break
        yield from self.builder.finish()

    def _is_behind(self, table: "Columns") -> bool:
        # judged by a whole table, not by one batch: a damaged base offset must not end the read
        highest = self.piece.bounds.to_offset
        return table.count > 1 and highest < L.INT64_MAX and min(table.column(C.BASE_OFFSET)) >= highest

    # --- batches

    def _table(self, table: "Columns") -> Iterator[pa.RecordBatch | Finding]:
        for first, stop in self._well_placed(table):
            for chunk in self.decoder.chunks(table, first, stop):
                yield from self._chunk(table, chunk)

    def _well_placed(self, table: "Columns") -> Iterator[tuple[int, int]]:
        """The runs with requested records, without batches whose offsets are altered; if these are requested
        too, they are marked as invalid."""
        if not self.misplaced:
            yield from self._runs(table)
            return
        positions = table.column(C.POSITION)
        for first, stop in self._runs(table):
            begin = first
            for row in range(first, stop):
                if positions[row] in self.misplaced:
                    if self.reading.include_invalid:
                        table.cells[C.VALID * table.capacity + row] = 0
                        continue
                    if begin < row:
                        yield begin, row
                    begin = row + 1
            if begin < stop:
                yield begin, stop

    def _runs(self, table: "Columns") -> Iterator[tuple[int, int]]:
        row = 0
        while row < table.count:
            stop = G.wanted_until(table.cells, table.capacity, row, table.count, self.bounds)
            if stop == row:
                row += 1
                continue
            yield from self._committed(table, row, stop) if self.aborted else ((row, stop),)
            row = stop

    def _committed(self, table: "Columns", first: int, stop: int) -> Iterator[tuple[int, int]]:
        """The runs of rows that belong to no aborted transaction."""
        magics, attributes = table.column(C.MAGIC), table.column(C.ATTRIBUTES)
        begin = first
        for row in range(first, stop):
            transactional = attributes[row] & L.TRANSACTIONAL_BIT and magics[row] >= L.MAGIC_V2
            if transactional and not attributes[row] & L.CONTROL_BIT and self._is_aborted(table, row):
                if begin < row:
                    yield begin, row
                begin = row + 1
        if begin < stop:
            yield begin, stop

    def _is_aborted(self, table: "Columns", row: int) -> bool:
        base_offset = table.at(C.BASE_OFFSET, row)
        transactions = self.aborted.get(table.at(C.PRODUCER_ID, row), ())
        return any(each.first_offset <= base_offset <= each.marker_offset for each in transactions)

    def _chunk(self, table: "Columns", chunk: Chunk) -> Iterator[pa.RecordBatch | Finding]:
        records = chunk.records
        if not self.reading.include_invalid and table.at(C.MAGIC, chunk.first_row) < L.MAGIC_V2:
            yield from self._legacy_messages(table, chunk)
        if self.cuts or chunk.problem is not None or table.at(C.MAGIC, chunk.first_row) < L.MAGIC_V2:
            records.count = G.keep_rows(records.cells, records.capacity, records.count, self.bounds)
        yield from self.builder.append_rows(chunk, table, records.count)
        if chunk.problem is not None:
            yield from self.builder.finish()
            yield undecodable(self.piece.path, table, chunk.problem)

    def _legacy_messages(self, table: "Columns", chunk: Chunk) -> Iterator[Finding]:
        """Messages inside a wrapper have their own checksums: those with a wrong one are dropped and reported."""
        records = chunk.records
        verdicts = records.column(C.R_VALID)
        if 0 not in verdicts.tolist():
            return
        offsets = records.column(C.R_OFFSET)
        wrong = [row for row in range(records.count) if verdicts[row] == 0]
        row = records.at(C.R_BATCH, wrong[0])
        position, size = table.at(C.POSITION, row), table.at(C.SIZE, row)
        yield Finding(
            "bad-crc",
            self.piece.path,
            f"{len(wrong)} messages in the compressed set of {size} bytes at position {position} do not match "
            "their checksums",
            position=position,
            length=size,
            first_offset=offsets[wrong[0]],
            last_offset=offsets[wrong[-1]],
        )
        for at in wrong:  # so that they are outside any bounds
            records.cells[C.R_OFFSET * records.capacity + at] = L.INT64_MAX

    # --- damage

    def _damaged(self, damage: Damage) -> Iterator[pa.RecordBatch | Finding]:
        if not self._may_concern_request(damage):
            return
        yield from self.builder.finish()
        yield damage_finding(self.piece.path, damage)
        if damage.kind == "bad-crc" and self.reading.include_invalid:
            self.scanner.fill(damage.position, damage.position + damage.length)
            table = self.scanner.table
            if table.count and table.at(C.SIZE, 0) == damage.length:
                table.count = 1
                yield from self._table(table)

    def _may_concern_request(self, damage: Damage) -> bool:
        """Whether a requested record may have been lost here."""
        bounds = self.piece.bounds
        first = self.piece.base_offset if damage.next_offset is None else damage.next_offset
        if first >= bounds.to_offset:
            return False
        return damage.first_behind is None or damage.first_behind > bounds.from_offset
