"""The scanner: a file becomes batches and damage spans that together account for every byte.

The walk (`kernel.walk`) follows the length fields; the scanner distrusts them. Plan:

1. Walk entries into a table and judge the checksum of each. Valid ones are given out, a table at a time.
2. At the first entry that is not valid, or where the walk cannot go on, damage begins at its position p.
   Zeros from p to the end of the file are a tail that was allocated and never written: done.
3. If the recorded length leads to a valid batch, to the clean end or to a tail of zeros, the length is
   corroborated: the damage is exactly this entry.
4. Otherwise search byte by byte for the next believable batch: magic, length, header and offset must fit
   (offset at or above the end of what was valid before; when no such batch is left, any offset of the segment)
   and the checksum must be right. The damage ends there, or at the end of the file.
5. Go on at 1 from there.

The four ends that amateurs merge stay apart: clean end, torn end (the writer died), zeros (never written), and
damage. Kinds of damage are ids of the findings catalogue.

Time is linear: a search that failed is remembered and not repeated, and the bytes spent on checksums of
candidates are bounded by a multiple of the bytes searched.
"""

from array import array
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from kseg.segment import columns as C
from kseg.segment import crc
from kseg.segment import layout as L
from kseg.segment.columns import Columns
from kseg.segment.kernel import checksum
from kseg.segment.kernel.walk import FULL, first_candidate, first_invalid, highest_offset, walk, zero_run
from kseg.segment.model import Batch

if TYPE_CHECKING:
    from typing_extensions import Buffer

BATCHES_PER_TABLE = 4096
# Below this size the kernel's table method is faster than a call into the hardware library (bench/bindings.py).
SMALL_BATCH_BYTES = 768
# Checksum bytes that a search may spend: a fixed allowance plus a multiple of what it walks over.
SEARCH_ALLOWANCE_BYTES = 256 * 1024 * 1024
SEARCH_FACTOR = 8
REMEMBERED_VERDICTS = 4096


@dataclass(frozen=True, slots=True)
class Damage:
    """A span of bytes that is no valid batch.

    kind: id in the findings catalogue (torn-tail, zero-tail, zero-filled, bad-crc, bad-length, bad-magic,
    foreign-bytes). position, length: the span. next_offset: the offset expected where it begins (None when no
    batch came before). resumed_offset: base offset of the valid batch found behind it, None at the end of the
    file. claimed_offset: what the first 8 bytes say, None when too few. intact_length_bytes: the batch at
    `position` is whole if its length field is read as this (only that field is damaged).
    """

    kind: str
    position: int
    length: int
    next_offset: int | None
    resumed_offset: int | None
    claimed_offset: int | None
    intact_length_bytes: int | None = None


class Scanner:
    """Scans one segment's bytes. view: the whole file. base_offset: from its name (0 when unknown).

    `table` holds the batches of the last `fill` or of the block last yielded and is overwritten by the next.
    """

    def __init__(self, view: "Buffer", base_offset: int = 0, capacity: int = BATCHES_PER_TABLE) -> None:
        self.view = memoryview(view)
        self.base_offset = base_offset
        self.table = Columns(C.BATCH_WIDTH, capacity)
        self.next_offset: int | None = None
        self._state = memoryview(array("q", [0, 0]))
        self._probe = Columns(C.BATCH_WIDTH, 1)
        self._exhausted_strict = False
        self._budget_bytes = SEARCH_ALLOWANCE_BYTES + SEARCH_FACTOR * len(self.view)
        self._zeros = 0, 0
        self._verdicts: dict[int, int | None] = {}
        self._tables = _crc_tables()

    def fill(self, position: int, end: int) -> int:
        """Walk from `position` into the table, as Kafka would, judging every checksum; returns why it stopped."""
        table = self.table
        self._state[0] = position
        reason = walk(self.view, end, table.cells, table.capacity, self._state)
        table.count = self._state[1]
        self._judge(table)
        return reason

    def blocks(self, start: int = 0, end: int | None = None) -> Iterator[Columns | Damage]:
        """Tables of valid batches and damage spans, in order of position, from `start` to `end` without a hole."""
        stop = len(self.view) if end is None else end
        position = start
        while position < stop:
            reason = self.fill(position, stop)
            table = self.table
            good = first_invalid(table.cells, table.capacity, table.count)
            bad_row = good < table.count
            position = table.at(C.POSITION, good) if bad_row else self._state[0]
            if good:
                table.count = good
                self._remember_offsets(table)
                yield table
            if bad_row or reason != FULL:
                if position >= stop:
                    return
                damage = self.resync(position, stop)
                yield damage
                position += damage.length

    def resync(self, position: int, end: int) -> Damage:
        """The damage that begins at `position` (no valid batch starts there), up to the next believable batch."""
        if self._zeros_from(position, end) == end:
            return self._damage("zero-tail", position, end, None)
        recorded_end = self._recorded_end(position, end)
        if recorded_end is not None and self._corroborated(recorded_end, end):
            kind = "bad-magic" if self._valid_as_magic_2(position, recorded_end) else "bad-crc"
            return self._damage(kind, position, recorded_end, self._valid_offset_at(recorded_end, end))
        found = self._search(position + 1, end)
        if found is None:
            return self._damage(self._last_kind(position, end, recorded_end), position, end, None)
        if self._zeros_from(position, end) == found:
            return self._damage("zero-filled", position, found, self._valid_offset_at(found, end))
        return self._before_resumption(position, found, end, recorded_end)

    # --- the verdicts

    def _before_resumption(self, position: int, found: int, end: int, recorded_end: int | None) -> Damage:
        resumed = self._valid_offset_at(found, end)
        if self._intact_when_cut_at(position, found):
            return self._damage("bad-length", position, found, resumed, found - position)
        if recorded_end is not None and recorded_end <= found and self._plausible_start(position, end):
            return self._damage("bad-crc", position, found, resumed)
        kind = "bad-length" if self._plausible_start(position, end) else "foreign-bytes"
        return self._damage(kind, position, found, resumed)

    def _last_kind(self, position: int, end: int, recorded_end: int | None) -> str:
        # nothing believable follows: what is this tail?
        if recorded_end is not None and recorded_end <= end:
            return "bad-crc" if self._plausible_start(position, end) else "foreign-bytes"
        if end - position <= L.HEADER_TO_MAGIC:
            return "torn-tail" if self._offset_fits(position, end) else "foreign-bytes"
        if not self._plausible_start(position, end):
            return "foreign-bytes"
        return "torn-tail" if recorded_end is not None else "bad-length"

    def _damage(
        self, kind: str, position: int, stop: int, resumed: int | None, intact_length: int | None = None
    ) -> Damage:
        readable = position + 8 <= len(self.view)
        claimed = int.from_bytes(self.view[position : position + 8], "big", signed=True) if readable else None
        return Damage(kind, position, stop - position, self.next_offset, resumed, claimed, intact_length)

    # --- evidence

    def _recorded_end(self, position: int, end: int) -> int | None:
        """Where the length field at `position` leads; None when there is none or it cannot be a length."""
        if position + L.ENTRY_OVERHEAD > end:
            return None
        size = int.from_bytes(self.view[position + 8 : position + 12], "big", signed=True)
        return None if size < L.MIN_LEGACY_SIZE_FIELD else position + L.ENTRY_OVERHEAD + size

    def _corroborated(self, recorded_end: int, end: int) -> bool:
        if recorded_end >= end:
            return recorded_end == end
        if self._valid_offset_at(recorded_end, end) is not None:
            return True
        return self._zeros_from(recorded_end, end) == end

    def _zeros_from(self, position: int, end: int) -> int:
        """Where the zeros that begin at `position` end (`position` itself when there are none)."""
        start, stop = self._zeros
        if not start <= position < stop:
            self._zeros = position, position + zero_run(self.view, position, end)
        return self._zeros[1]

    def _valid_offset_at(self, position: int, end: int) -> int | None:
        """Base offset of the valid batch that starts at `position`, None when there is none."""
        # hostile length fields may all lead to one huge batch: its checksum is computed once
        if position not in self._verdicts:
            if len(self._verdicts) >= REMEMBERED_VERDICTS:
                self._verdicts.clear()
            self._verdicts[position] = self._probe_at(position, end)
        return self._verdicts[position]

    def _probe_at(self, position: int, end: int) -> int | None:
        probe = self._probe
        state = memoryview(array("q", [position, 0]))
        walk(self.view, end, probe.cells, 1, state)
        probe.count = state[1]
        if not probe.count:
            return None
        self._judge(probe)
        return probe.at(C.BASE_OFFSET, 0) if probe.at(C.VALID, 0) == 1 else None

    def _valid_as_magic_2(self, position: int, stop: int) -> bool:
        return self.view[position + L.MAGIC_POSITION] != L.MAGIC_V2 and self._intact_when_cut_at(position, stop)

    def _intact_when_cut_at(self, position: int, stop: int) -> bool:
        """Whether position…stop is a magic 2 batch whose checksum is right (length and magic are outside it)."""
        if not L.BATCH_HEADER <= stop - position <= L.INT32_MAX:
            return False
        crc_at = position + L.CRC_POSITION
        stored = int.from_bytes(self.view[crc_at : crc_at + 4], "big")
        return crc.crc32c(self.view[position + L.ATTRIBUTES_POSITION : stop]) == stored

    def _offset_fits(self, position: int, end: int) -> bool:
        """Whether a tail too short for a header begins like the next offset."""
        expected = self.base_offset if self.next_offset is None else self.next_offset
        head = bytes(self.view[position : min(position + 8, end)])
        if len(head) < 8:
            return expected.to_bytes(8, "big", signed=True).startswith(head)
        return expected <= int.from_bytes(head, "big", signed=True) <= expected + L.INT32_MAX

    def _plausible_start(self, position: int, end: int) -> bool:
        if position + L.HEADER_TO_MAGIC > end or self.view[position + L.MAGIC_POSITION] > L.MAGIC_V2:
            return False
        offset = int.from_bytes(self.view[position : position + 8], "big", signed=True)
        lowest = self.base_offset if self.next_offset is None else self.next_offset
        return lowest <= offset <= lowest + L.INT32_MAX

    # --- the search

    def _search(self, position: int, end: int) -> int | None:
        """The next believable batch at or behind `position` whose checksum is right."""
        if not self._exhausted_strict:
            lowest = self.base_offset if self.next_offset is None else self.next_offset
            found = self._search_from(position, end, lowest, self.base_offset + L.INT32_MAX)
            if found is not None:
                return found
            # `next_offset` only grows, so no later search with these bounds can succeed either
            self._exhausted_strict = True
        return self._search_from(position, end, 0, L.INT64_MAX)

    def _search_from(self, position: int, end: int, lowest: int, highest: int) -> int | None:
        candidate = position
        while True:
            candidate = first_candidate(self.view, candidate, end, lowest, min(highest, L.INT64_MAX))
            if candidate < 0:
                return None
            size = int.from_bytes(self.view[candidate + 8 : candidate + 12], "big") + L.ENTRY_OVERHEAD
            if size <= self._budget_bytes:
                self._budget_bytes -= size
                if self._valid_offset_at(candidate, end) is not None:
                    return candidate
            candidate += 1

    # --- checksums and offsets

    def _judge(self, table: Columns) -> None:
        castagnoli, ieee = self._tables
        left = checksum.judge_small(
            self.view, table.cells, table.capacity, table.count, SMALL_BATCH_BYTES, castagnoli, ieee
        )
        if left:
            _judge_large(self.view, table)

    def _remember_offsets(self, table: Columns) -> None:
        highest = highest_offset(table.cells, table.capacity, table.count)
        if highest < L.INT64_MAX and (self.next_offset is None or highest >= self.next_offset):
            self.next_offset = highest + 1


def _judge_large(view: memoryview, table: Columns) -> None:
    """Checksums of the batches that `judge_small` left at −1, by the library."""
    capacity, cells = table.capacity, table.cells
    crc32c, crc32 = crc.crc32c, crc.crc32
    valid_at, crc_at = C.VALID * capacity, C.CRC * capacity
    size_at, magic_at = C.SIZE * capacity, C.MAGIC * capacity
    for row in range(table.count):
        if cells[valid_at + row] != -1:
            continue
        position = cells[row]
        end = position + cells[size_at + row]
        if cells[magic_at + row] < L.MAGIC_V2:
            right = crc32(view[position + L.MAGIC_POSITION : end]) == cells[crc_at + row]
        else:
            right = crc32c(view[position + L.ATTRIBUTES_POSITION : end]) == cells[crc_at + row]
        cells[valid_at + row] = right


_TABLES: list[tuple[memoryview, memoryview]] = []


def _crc_tables() -> tuple[memoryview, memoryview]:
    # made once per process: 4096 entries of interpreted arithmetic are not free at start-up
    if not _TABLES:
        _TABLES.append(
            (
                memoryview(checksum.make_tables(checksum.CASTAGNOLI)),
                memoryview(checksum.make_tables(checksum.IEEE)),
            )
        )
    return _TABLES[0]


def batch_at(table: Columns, row: int) -> Batch:
    """The row of a table of batches as a value."""
    at = table.at
    count = at(C.COUNT, row)
    magic = at(C.MAGIC, row)
    return Batch(
        position=at(C.POSITION, row),
        size_bytes=at(C.SIZE, row),
        magic=magic,
        base_offset=at(C.BASE_OFFSET, row),
        last_offset=at(C.LAST_OFFSET, row),
        count=None if magic < L.MAGIC_V2 and count < 0 else count,
        attributes=at(C.ATTRIBUTES, row),
        leader_epoch=at(C.LEADER_EPOCH, row),
        crc=at(C.CRC, row),
        base_timestamp_ms=at(C.BASE_TIMESTAMP, row),
        max_timestamp_ms=at(C.MAX_TIMESTAMP, row),
        producer_id=at(C.PRODUCER_ID, row),
        producer_epoch=at(C.PRODUCER_EPOCH, row),
        base_sequence=at(C.BASE_SEQUENCE, row),
        crc_valid=at(C.VALID, row) == 1,
    )


def scan(view: "Buffer", base_offset: int = 0, start: int = 0, end: int | None = None) -> Iterator[Batch | Damage]:
    """`Scanner.blocks` one value at a time: convenient where batches are few or looked at one by one."""
    scanner = Scanner(view, base_offset)
    for block in scanner.blocks(start, end):
        if isinstance(block, Damage):
            yield block
        else:
            for row in range(block.count):
                yield batch_at(block, row)
