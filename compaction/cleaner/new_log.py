"""Write the log of a new segment during a pass: copied and rebuilt batches go through one buffer.

1. The kernel (`filter_batches`) puts new batches and short spans of old ones into the buffer, and returns when it needs help.
2. A full buffer: the checksums of its new batches are computed, then their index entries, then it goes to the scratch file.
3. A long span is copied from the old file by the operating system, without passing through this process.
4. New compressed batches: their records are in the buffer, are compressed and put back.

Without a scratch file everything except the writing is done; a plan counts this way.
"""

from array import array
from collections.abc import Iterable
from typing import Protocol

from kseg.change.apply.scratch_file import ScratchFile
from kseg.segment import header_tables as C
from kseg.segment import layout as L
from kseg.segment.codecs.codec import compress
from kseg.segment.crc import crc32c
from kseg.segment.header_tables import Columns
from kseg.segment.kernel import filter_batches as W
from kseg.segment.kernel import seal_crc
from kseg.segment.kernel import state_fields as S
from kseg.segment.scanning.crc_verdicts import SMALL_BATCH_BYTES, crc_tables
from kseg.segment.scanning.decode import Chunk
from kseg.segment.sidecar.index_builder import IndexRefusal
from kseg.segment.sidecar.txn_index import AbortedTxn
from kseg.segment.values import dataclass

_OUT_BYTES = 1 << 20
_SHORT_SPAN_BYTES = 128 << 10
_ROWS = 4096
_NOTE_WIDTH = 4
_MAX_PACKS = 256
_NO_RECORDS = Columns(C.RECORD_WIDTH, 0)
_NO_FLAGS = bytearray()


class NotWritable(Exception):
    """A batch that does not fit into the new segment. refusal: the reason from its index."""

    def __init__(self, refusal: IndexRefusal) -> None:
        super().__init__(refusal.sentence)
        self.refusal = refusal


@dataclass(frozen=True, slots=True)
class Rules:
    """Retention rules besides the map. upper_offset: after the last batch of the round, which must stay. new_horizon_ms:
    for tombstones and markers that have none, −1 for none at all. protected: (last offset, producer) of batches that must stay."""

    upper_offset: int
    new_horizon_ms: int
    protected: tuple[tuple[int, int], ...]


class Buffers:
    """Write buffers of one pass, reused for every segment."""

    def __init__(self, rules: Rules) -> None:
        self.out = bytearray(_OUT_BYTES)
        self.table = Columns(C.BATCH_WIDTH, _ROWS)
        pairs = sorted(rules.protected)
        self.params = memoryview(
            array("q", [rules.upper_offset, rules.new_horizon_ms, _SHORT_SPAN_BYTES, len(pairs)])
        )
        self.packs = memoryview(array("q", bytes(8 * W.PACK_WIDTH * _MAX_PACKS)))
        self.ends = memoryview(array("q", bytes(8 * _MAX_PACKS)))
        self.protected = memoryview(array("q", [number for pair in pairs for number in pair]))
        self.castagnoli = crc_tables()[0]


class RowTaker(Protocol):
    """Takes the rows of batches that were written: indexes, or notes for the process that builds them."""

    def add_rows(self, table: Columns, first: int, stop: int) -> tuple[int, IndexRefusal] | None: ...


@dataclass(frozen=True, slots=True)
class WrittenPart:
    """Part of a new segment that another process has written: `size_bytes` of its spool from `log_at` on, and `rows` notes about
    its batches from note `rows_at` on. counts: the kernel's. aborted: entries for the new transaction index."""

    log_at: int
    size_bytes: int
    rows_at: int
    rows: int
    counts: tuple[int, ...]
    aborted: tuple[AbortedTxn, ...]


class RowNotes:
    """Notes of new batches in a scratch file, for another process that indexes them (`NewLog.join`). rows: so far."""

    def __init__(self, file: ScratchFile) -> None:
        self._file = file
        self._numbers = memoryview(array("q", bytes(8 * _NOTE_WIDTH * _ROWS)))
        self.rows = 0

    def add_rows(self, table: Columns, first: int, stop: int) -> None:
        filled = W.note_rows(table.cells, table.capacity, first, stop, self._numbers)
        self._file.write(self._numbers[:filled].cast("B"))
        self.rows += stop - first


class NewLog:
    """One new segment, or a part of one. log: where it is written, None to count only. indexes: take the batches that were written out.

    state: the kernel's (`filter_batches`), with its counts.
    """

    def __init__(self, buffers: Buffers, indexes: RowTaker, log: ScratchFile | None) -> None:
        self._buffers = buffers
        self._log = log
        self._path, self._view = "", memoryview(b"")
        self.state = memoryview(array("q", bytes(8 * S.REWRITE_WIDTH)))
        self._indexes = indexes

    @property
    def size_bytes(self) -> int:
        return int(self.state[S.REWRITE_POSITION])

    def join(self, part: WrittenPart, notes: memoryview, spool: ScratchFile | None) -> None:
        """Append what another process has written; everything before it must be complete. notes: about all its batches. Raises
        NotWritable."""
        state, table = self.state, self._buffers.table
        for at in range(0, part.rows, table.capacity):
            table.count = count = min(table.capacity, part.rows - at)
            W.place_rows(notes, part.rows_at + at, count, self.size_bytes, table.cells, table.capacity)
            refused = self._indexes.add_rows(table, 0, count)
            if refused is not None:
                raise NotWritable(refused[1])
        if self._log is not None and spool is not None and part.size_bytes:
            self._log.copy(spool.path, spool.view, part.log_at, part.size_bytes)
        state[S.REWRITE_POSITION] += part.size_bytes
        for field in range(S.REWRITE_RECORDS, S.REWRITE_WIDTH):
            state[field] += part.counts[field]

    # --- batches of an old segment

    def begin(self, path: str, view: memoryview) -> None:
        """Start reading batches from this file."""
        self._path, self._view = path, view
        self.state[S.REWRITE_SPAN_START] = self.state[S.REWRITE_SPAN_END] = 0

    def emit(self, chunk: Chunk, flags: bytearray, table: Columns, tallies: memoryview) -> None:
        """Write the batches of a chunk whose records were all filtered."""
        self._rewrite(W.JUDGED, table, tallies, chunk.first_row, chunk.last_row + 1, chunk, flags)

    def take(self, table: Columns, tallies: memoryview, row: int, stop: int) -> None:
        """Copy batches unchanged."""
        self._rewrite(W.TAKEN, table, tallies, row, stop)

    def drop(self, table: Columns, tallies: memoryview, row: int, stop: int) -> None:
        """Remove batches; those that must be retained stay as empty batches."""
        self._rewrite(W.NOT_NEEDED, table, tallies, row, stop)

    def empty(self, table: Columns, tallies: memoryview, row: int) -> None:
        """Retain a batch as an empty batch."""
        self._rewrite(W.EMPTIED, table, tallies, row, row + 1)

    def _rewrite(
        self,
        known: int,
        table: Columns,
        tallies: memoryview,
        row: int,
        stop: int,
        chunk: Chunk | None = None,
        flags: bytearray = _NO_FLAGS,
    ) -> None:
        body, records = (b"", _NO_RECORDS) if chunk is None else (chunk.body, chunk.records)
        state, buffers = self.state, self._buffers
        self._start_at(row)
        due = W.NO_ROOM
        while due != W.ALL:
            due = W.rewrite_rows(
                self._view,
                known,
                body,
                *records.raw,
                records.count,
                flags,
                *table.raw,
                stop,
                tallies,
                buffers.params,
                buffers.protected,
                buffers.packs,
                buffers.out,
                *buffers.table.raw,
                state,
            )
            if due == W.NO_ROOM:
                self._make_room()
            elif due == W.SPAN_DUE:
                self._flush()
                self._flush_span()
            elif due == W.PACK_DUE:
                self._pack(table, tallies)

    def rebuild(
        self,
        table: Columns,
        tallies: memoryview,
        row: int,
        chunks: Iterable[tuple[Chunk, bytearray]],
    ) -> None:
        """Rebuild one batch whose records come in several tables, each with its flags. The tallies cover all of them."""
        self._flush()
        self._flush_span()
        self._start_at(row)
        state, buffers, end = self.state, self._buffers, L.BATCH_HEADER
        for chunk, flags in chunks:
            end = self._encoded(chunk, flags, table, tallies, row, end)
        buffers.packs[0], buffers.packs[1], buffers.packs[2] = L.BATCH_HEADER, end, row
        state[S.REWRITE_PACKS] = 1
        self._pack(table, tallies)
        if len(buffers.out) > _OUT_BYTES:
            self._flush()
            del buffers.out[_OUT_BYTES:]

    def _encoded(
        self, chunk: Chunk, flags: bytearray, table: Columns, tallies: memoryview, row: int, position: int
    ) -> int:
        records, out = chunk.records, self._buffers.out
        while True:
            end = W.encode_rows(
                chunk.body,
                *records.raw,
                records.count,
                flags,
                *table.raw,
                row,
                tallies,
                self._buffers.params[S.RULE_HORIZON],
                out,
                position,
            )
            if end >= 0:
                return end
            out.extend(bytes(len(out)))

    def end(self) -> None:
        """Finish the old file."""
        self._flush()
        self._flush_span()
        self._view = memoryview(b"")

    # --- requests of the kernel

    def _start_at(self, row: int) -> None:
        self.state[S.REWRITE_ROW] = row
        self.state[S.REWRITE_AT] = 0

    def _make_room(self) -> None:
        if self.state[S.REWRITE_OUT] or self.state[S.REWRITE_ROWS]:
            self._flush()
        else:
            self._buffers.out.extend(bytes(len(self._buffers.out)))

    def _pack(self, table: Columns, tallies: memoryview) -> None:
        """Compress the bodies that are pending in the buffer, and put them in their place with room for their headers."""
        state, buffers = self.state, self._buffers
        count, packs, ends = state[S.REWRITE_PACKS], buffers.packs, buffers.ends
        codec = table.at(C.ATTRIBUTES, packs[2]) & L.CODEC_MASK
        with memoryview(buffers.out) as out:
            packed = [
                compress(codec, L.MAGIC_V2, bytes(out[packs[at] : packs[at + 1]]))
                for at in range(0, W.PACK_WIDTH * count, W.PACK_WIDTH)
            ]
        end = state[S.REWRITE_OUT]
        for at, content in enumerate(packed):
            ends[at] = end = end + L.BATCH_HEADER + len(content)
        if end > len(buffers.out):
            buffers.out.extend(bytes(end - len(buffers.out)))
        with memoryview(buffers.out) as out:
            for at, content in enumerate(packed):
                out[ends[at] - len(content) : ends[at]] = content
        W.finish_packed(
            ends, count, packs, *table.raw, tallies, buffers.params, buffers.out, *buffers.table.raw, state
        )

    def _flush(self) -> None:
        """Write out the buffer, and index what was added."""
        state, buffers, table = self.state, self._buffers, self._buffers.table
        table.count = rows = state[S.REWRITE_ROWS]
        if rows:
            left = seal_crc.seal_small(
                buffers.out, table.cells, table.capacity, rows, SMALL_BATCH_BYTES, buffers.castagnoli
            )
            with memoryview(buffers.out) as view:
                if left:
                    seal_crc.seal_large(view, buffers.out, table.cells, table.capacity, rows, crc32c)
                if self._log is not None and state[S.REWRITE_OUT]:
                    with view[: state[S.REWRITE_OUT]] as filled:
                        self._log.write(filled)
            refused = self._indexes.add_rows(table, 0, rows)
            if refused is not None:
                raise NotWritable(refused[1])
        elif self._log is not None and state[S.REWRITE_OUT]:
            with memoryview(buffers.out)[: state[S.REWRITE_OUT]] as filled:
                self._log.write(filled)
        state[S.REWRITE_OUT] = state[S.REWRITE_ROWS] = 0

    def _flush_span(self) -> None:
        """Write out the pending span, which is after the buffer."""
        state = self.state
        start, end = state[S.REWRITE_SPAN_START], state[S.REWRITE_SPAN_END]
        if self._log is not None and end > start:
            if end - start > _SHORT_SPAN_BYTES:
                self._log.copy(self._path, self._view, start, end - start)
            else:
                self._log.write(self._view[start:end])
        state[S.REWRITE_SPAN_START] = end
