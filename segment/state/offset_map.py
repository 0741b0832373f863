"""The offset map of one round: the highest offset of each key in the dirty range (Kafka: SkimpyOffsetMap, buildOffsetMap).

1. Segments of the range in order, from the dirty offset on. Control batches, aborted transactions
   and records without a key are skipped; a later offset replaces an earlier one.
2. The first keyed record that finds the map full ends the round there, whether or not its key is in the map.
3. The map extends to the last offset put if it ended inside a batch, otherwise to the end of the last batch, or (if a
   segment was read to its end) to the base offset of the next segment minus one.

The map is an array of 24-byte slots (`kernel.keymap`). It begins small and grows as it fills, up to the limit of the settings, since
random access to a large memory costs more time than moving a small map.
"""

import os
from array import array
from typing import Protocol

from kseg.segment import header_tables as C
from kseg.segment.header_tables import Columns
from kseg.segment.kernel import key_exchange as R
from kseg.segment.kernel import keymap as K
from kseg.segment.kernel import state_fields as S
from kseg.segment.memory import PrivateMemory
from kseg.segment.scanning.decode import RECORDS_PER_TABLE, Chunk
from kseg.segment.scanning.decompressed_runs import DecompressedRun
from kseg.segment.values import dataclass

SLOT_BYTES = 24
_NO_OFFSET_PUT = -1
_LARGE_BYTES = 64 << 20
_FIRST_SLOTS, _GROWTH = 4096, 8
_JOINED = 8192  # rows joined in one call
_MAX_DOUBLING_BYTES = 128 << 20  # up to this size, a map may exist beside the one from which it grows


class MapLimits(Protocol):
    """The maximum size of a map: number of slots, and of keys in them."""

    @property
    def map_slots(self) -> int: ...

    @property
    def map_keys(self) -> int: ...


@dataclass(frozen=True, slots=True)
class Full:
    """The map is full. record: row in the chunk of the first record that was not put."""

    record: int


class KeyLookup(Protocol):
    """The lookup that a second pass uses for a table of records, and the kernel (`key_verdicts.judge_rows`) for each record.

    words: those with which records are looked up in `slots`; the hashes of their keys if `slots` is the map itself.
    latest_offset: records above it are not judged.
    """

    words: memoryview
    slots: memoryview
    slot_count: int
    latest_offset: int

    def hash(self, chunk: Chunk) -> bool:
        """Fill `words` for a chunk; False if a key or value is outside the body."""


class OffsetMap:
    """A map for one partition, reused for each round.

    dirty_bytes: size of the part of the log that will be put. skipped_ranges: ranges of offsets that were not put, in order.
    """

    def __init__(self, settings: MapLimits, dirty_bytes: int, *, like: "OffsetMap | None" = None) -> None:
        """like: hash keys as this map does, so that it can accept what is packed here."""
        self._settings = settings
        self._is_large = dirty_bytes > _LARGE_BYTES
        self._take_memory(min(_FIRST_SLOTS, settings.map_slots))
        self._secret: tuple[int, int] = (
            (int.from_bytes(os.urandom(8)), int.from_bytes(os.urandom(8))) if like is None else like._secret
        )
        self.hashes = self.words = memoryview(array("q", bytes(16 * RECORDS_PER_TABLE)))
        self._pending = memoryview(array("q", bytes(32 * K.PENDING)))
        self._state = memoryview(array("q", bytes(8 * S.MAP_WIDTH)))
        self.latest_offset = -1
        self.start_offset = 0
        self.skipped_ranges: list[tuple[int, int]] = []

    def _take_memory(self, slot_count: int) -> None:
        self.slot_count = slot_count
        is_whole = slot_count == self._settings.map_slots
        self._limit = self._settings.map_keys if is_whole else slot_count // 4 * 3
        self._memory = PrivateMemory(SLOT_BYTES * slot_count, is_large=self._is_large)
        self.slots = self._memory.view.cast("q")

    def _grow(self) -> bool:
        """Grow the map; False at the limit."""
        max_slots, former = self._settings.map_slots, self.slot_count
        if former == max_slots:
            return False
        slots, memory = self.slots, self._memory
        is_near_limit = former * _GROWTH * SLOT_BYTES > _MAX_DOUBLING_BYTES
        self._take_memory(max_slots if is_near_limit else min(max_slots, former * _GROWTH))
        K.move_slots(slots, former, self.slots, self.slot_count)
        slots.release()
        memory.close()
        return True

    @property
    def size(self) -> int:
        """Number of keys."""
        return int(self._state[S.MAP_SIZE])

    @property
    def is_ordered(self) -> bool:
        """Whether offsets were put in ascending order."""
        return not self._state[S.MAP_TURNS]

    def begin(self, start_offset: int) -> None:
        """Clear the map for a round that starts at this offset."""
        if self.size:
            self._memory.forget()
        self._state[S.MAP_SIZE] = self._state[S.MAP_TURNS] = 0
        self._state[S.MAP_OFFSET] = _NO_OFFSET_PUT
        self.latest_offset = -1
        self.start_offset = start_offset
        self.skipped_ranges.clear()

    def begin_table(self) -> None:
        """Begin a new table of batches; row numbers of the previous one are no longer valid."""
        self._state[S.MAP_ROW] = _NO_OFFSET_PUT

    def hash(self, chunk: Chunk) -> bool:
        """Write the hashes of a chunk's keys to `hashes`; False if a key or value is outside the body."""
        records = chunk.records
        is_hashed = K.hash_rows(chunk.body, *records.raw, records.count, *self._secret, self.hashes)
        return is_hashed == records.count

    def put(self, chunk: Chunk, start_offset: int) -> Full | None:
        """Put the hashed records of a chunk into the map; returns the place at which it was full, None if it took them all."""
        records, stopped = chunk.records, 0
        while True:
            stopped = K.put_rows(
                *records.raw,
                stopped,
                records.count,
                self.hashes,
                start_offset,
                self.slots,
                self.slot_count,
                self._limit,
                self._state,
            )
            if stopped == records.count:
                return None
            if not self._grow():
                return Full(stopped)

    def map_rows(self, run: DecompressedRun, table: Columns, row: int, start_offset: int) -> int:
        """Put the records of batches of magic 2 into the map, from `row` of a run on. Returns MAPPED, FULL or BAD of the kernel, and sets
        `stopped` to the position. A run without bounds consists of uncompressed batches, and its body is the file itself."""
        while True:
            status = K.map_rows(
                run.body,
                run.bounds,
                run.first,
                row,
                run.stop,
                *table.raw,
                start_offset,
                *self._secret,
                self.slots,
                self.slot_count,
                self._limit,
                self._pending,
                self._state,
            )
            if status != K.FULL or not self._grow():
                return status
            # restart at the batch that did not fit: putting some of its records twice changes nothing
            row = self.stopped
            self._state[S.MAP_OFFSET] = table.at(C.BASE_OFFSET, row) - 1

    @property
    def stopped(self) -> int:
        """The row of the batch at which `map_rows` stopped."""
        return int(self._state[S.MAP_STOPPED])

    def last_put_offset(self, row: int) -> int | None:
        """The last offset put, if that was a record of batch `row` of the current table."""
        return int(self._state[S.MAP_OFFSET]) if self._state[S.MAP_ROW] == row else None

    def skip(self, first_offset: int, last_offset: int) -> None:
        """Record offsets that were not put because their transaction was aborted."""
        self.skipped_ranges.append((first_offset, last_offset))

    def update_latest_offset(self, offset: int) -> None:
        """The map covers the log up to `offset` (Kafka: updateLatestOffset)."""
        self.latest_offset = offset

    # --- a map that another process filled

    @property
    def last_offset(self) -> int:
        """The last offset put; −1 when there is none."""
        return int(self._state[S.MAP_OFFSET])

    def expect_above(self, offset: int) -> None:
        """Declare that the offsets put from now on are above this one, for a map that is ordered."""
        self._state[S.MAP_OFFSET] = offset

    def pack(self, rows: memoryview) -> int:
        """Copy the keys and their offsets to `rows`; returns their number."""
        return K.pack_slots(self.slots, self.slot_count, rows)

    def join(self, rows: memoryview, count: int) -> bool:
        """Add the packed entries of another map, keeping the greater offset of each key. Returns whether there is room for all of them;
        if not, none is added."""
        if self.size + count >= self._settings.map_keys:
            return False
        state, gone = memoryview(array("q", [self.size, 0, 0])), memoryview(array("q", bytes(8 * _JOINED)))
        at = 0
        while at < count:
            stop = min(count, at + _JOINED)
            state[S.FOLD_GONE] = 0
            at = R.fold_rows(rows, at, stop, self.slots, self.slot_count, self._limit, state, gone)
            self._state[S.MAP_SIZE] = state[S.FOLD_SIZE]
            if at < stop:
                self._grow()
        return True

    def close(self) -> None:
        """Free the memory."""
        self.slots.release()
        self._memory.close()


def batch_row(chunk: Chunk, record: int) -> int:
    return chunk.records.at(C.R_BATCH, record)
