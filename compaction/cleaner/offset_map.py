"""The map of one round: the highest offset of each key in the dirty range (Kafka: SkimpyOffsetMap, buildOffsetMap).

1. Segments of the range in order, from the dirty offset on. Control batches and aborted transactions are passed over,
   records without a key too; a later offset replaces an earlier one.
2. The first keyed record that meets a full map ends the round there, be its key known or not.
3. The map reaches to the last offset put when it ended inside a batch, else to the end of the last batch, else (a
   segment was read to its end) to the base of the next segment less one.

Memory is a row of slots of 24 bytes, untouched pages cost nothing; `kernel.keymap` says how keys stand in it.
"""

import os
from array import array
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from kseg.compaction.cleaner.options import SLOT_BYTES, CleanSettings
from kseg.segment import columns as C
from kseg.segment.columns import Columns
from kseg.segment.files import PrivateMemory
from kseg.segment.kernel import keymap as K
from kseg.segment.scanning.decode import RECORDS_PER_TABLE, Chunk

if TYPE_CHECKING:
    from typing_extensions import Buffer

_NOTHING_PUT = -1
_LARGE_BYTES = 64 << 20


@dataclass(frozen=True, slots=True)
class Full:
    """The map took no more. record: row of the first record left out, in the chunk."""

    record: int


class KeyJudge(Protocol):
    """What a second pass asks about a table of records, and the kernel (`keymap.judge_rows`) about each record of it.

    hashes: of its keys. words: by which they are looked up in `slots`; where that is the map itself, the hashes.
    latest_offset: records above it are not judged.
    """

    hashes: memoryview
    words: memoryview
    slots: memoryview
    slot_count: int
    latest_offset: int

    def hash(self, chunk: Chunk) -> bool:
        """Fill `words` and `hashes` for a chunk; False when a key or value lies outside of the body."""


class OffsetMap:
    """A map for one partition, used for round after round.

    dirty_bytes: of the log that will go into it.
    """

    def __init__(self, settings: CleanSettings, dirty_bytes: int) -> None:
        self.limit = settings.map_keys
        self.slot_count = settings.map_slots
        self._memory = PrivateMemory(SLOT_BYTES * self.slot_count, is_large=dirty_bytes > _LARGE_BYTES)
        self.slots = self._memory.view.cast("q")
        self._first = int.from_bytes(os.urandom(8))
        self._second = int.from_bytes(os.urandom(8))
        self.hashes = self.words = memoryview(array("q", bytes(16 * RECORDS_PER_TABLE)))
        self._pending = memoryview(array("q", bytes(32 * K.PENDING)))
        self._state = memoryview(array("q", bytes(8 * K.P_WIDTH)))
        self.latest_offset = -1

    @property
    def size(self) -> int:
        """Keys in it."""
        return int(self._state[K.P_SIZE])

    def clear(self) -> None:
        """Forget everything, for the next round."""
        if self.size:
            self._memory.forget()
        self._state[K.P_SIZE] = 0
        self.latest_offset = -1

    def begin_table(self) -> None:
        """A new table of batches: rows of the one before mean nothing any more."""
        self._state[K.P_ROW] = _NOTHING_PUT

    def hash(self, chunk: Chunk) -> bool:
        """The hashes of a chunk's keys into `hashes`; False when a key or value lies outside of the body."""
        records = chunk.records
        done = K.hash_rows(
            chunk.body,
            records.cells,
            records.capacity,
            records.count,
            self._first,
            self._second,
            self.hashes,
        )
        return done == records.count

    def put(self, chunk: Chunk, start_offset: int) -> Full | None:
        """Put the hashed records of a chunk into the map; where it was full."""
        records = chunk.records
        stopped = K.put_rows(
            records.cells,
            records.capacity,
            0,
            records.count,
            self.hashes,
            start_offset,
            self.slots,
            self.slot_count,
            self.limit,
            self._state,
        )
        return None if stopped == records.count else Full(stopped)

    def map_rows(
        self, body: "Buffer", table: Columns, row: int, stop: int, start_offset: int, *, is_packed: bool
    ) -> int:
        """Put the records of batches of magic 2 into the map: those that lie in the file `body`, or that of one batch
        whose decompressed records it is. MAPPED, FULL or BAD of the kernel; `stopped` says where."""
        return K.map_rows(
            body,
            is_packed,
            row,
            stop,
            table.cells,
            table.capacity,
            start_offset,
            self._first,
            self._second,
            self.slots,
            self.slot_count,
            self.limit,
            self._pending,
            self._state,
        )

    @property
    def stopped(self) -> int:
        """The row of the batch at which `map_rows` stopped."""
        return int(self._state[K.P_STOPPED])

    def last_put_in(self, row: int) -> int | None:
        """The last offset put, when that was a record of batch `row` of the table at work."""
        return int(self._state[K.P_OFFSET]) if self._state[K.P_ROW] == row else None

    def reach(self, offset: int) -> None:
        """The map says what is known up to `offset`."""
        self.latest_offset = offset

    def close(self) -> None:
        """Give the memory back."""
        self.slots.release()
        self._memory.close()


def batch_row(chunk: Chunk, record: int) -> int:
    return chunk.records.at(C.R_BATCH, record)
