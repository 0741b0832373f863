"""Scan one large log with several processes: the same batches and the same damage as `Scanner.blocks` returns.

Reading a mapped file costs page faults, checksums and cache misses in similar parts, so a second core for all of it
helps: a separate process that reads and checks, and returns only tables of headers.

1. The log is cut into parts of PART_BYTES, wherever that is. Part i belongs to process i mod jobs; this process is
   number 0, and a helper is forked for each other number. Of the first and the last parts SERIAL_PARTS belong to this process,
   so that a helper has its tables ready when they are needed, and has ended before this process is done.
2. A helper does not know where in its part the first batch starts: it takes the first valid one that it finds, walks
   from there to the end of its part, and puts the rows into tables in shared memory. For each table it sends the number
   of the part, where the rows start and where they end. At an invalid batch it leaves the rest of the part.
3. This process goes through the file in order. It scans its own parts. In the part of a helper it takes the tables
   if they start exactly at its position (what looked like a batch inside a record value does not), and scans the rest itself:
   damaged ranges, and the first batch of a part where the previous one extends far into it. So no verdict depends on
   where a helper started.
4. A helper has SLOTS tables and waits when all are full. One that died sends no more tables.
"""

import os
import struct
from collections.abc import Iterator, Sequence
from contextlib import suppress

from kseg.jobs.forked_worker import ForkedWorker, can_fork
from kseg.segment import header_tables as C
from kseg.segment import layout as L
from kseg.segment.header_tables import Columns
from kseg.segment.memory import shared_memory
from kseg.segment.scanning.damage import Damage
from kseg.segment.scanning.scan import BATCHES_PER_TABLE, Scanner

PART_BYTES = 8 * 1024 * 1024
SERIAL_PARTS = 4
SLOTS = 12
# a smaller log is done before a helper has begun
_MIN_PARTS = 3 * SERIAL_PARTS
_TABLE_BYTES = 8 * C.BATCH_WIDTH * BATCHES_PER_TABLE

# number of the part, rows (0: no more of this part), position where they begin, and where they end
_MESSAGE = struct.Struct("<qqqq")
_END = L.INT64_MAX, 0, 0, 0


def blocks_by_many(scanner: Scanner, jobs: int) -> Iterator[Columns | Damage]:
    """`scanner.blocks()` by up to `jobs` processes, where that can be done and pays; the tables may be smaller."""
    end = len(scanner.view)
    if jobs <= 1 or end < _MIN_PARTS * PART_BYTES or not can_fork():
        yield from scanner.blocks()
        return
    helpers: list[_ScanHelper] = []
    try:
        with suppress(
            OSError
        ):  # the system allows no more processes: this one takes the parts of those missing
            for number in range(1, jobs):
                helpers.append(_ScanHelper(scanner, number, jobs, helpers))
        position = 0
        while position < end:
            part = position // PART_BYTES
            for helper in helpers:
                for table in helper.tables(part, position):
                    scanner.remember_offsets(table)
                    position = _end_of(table)
                    yield table
            for item in scanner.blocks(position, end, (part + 1) * PART_BYTES):
                position = _end_of(item)
                yield item
    finally:
        for helper in helpers:
            helper.kill()


def _end_of(item: Columns | Damage) -> int:
    if isinstance(item, Damage):
        return item.position + item.length
    return item.at(C.POSITION, item.count - 1) + item.at(C.SIZE, item.count - 1)


class _ScanHelper:
    """The helper that scans every `jobs`-th part from `number` on, seen from this side."""

    def __init__(self, scanner: Scanner, number: int, jobs: int, others: "Sequence[_ScanHelper]") -> None:
        memory = shared_memory(SLOTS * _TABLE_BYTES)
        self._slots = [
            Columns(C.BATCH_WIDTH, BATCHES_PER_TABLE, memory[at : at + _TABLE_BYTES].cast("q"))
            for at in range(0, len(memory), _TABLE_BYTES)
        ]
        self._taken = 0
        parts = -(-len(scanner.view) // PART_BYTES)
        first = number + -(-SERIAL_PARTS // jobs) * jobs
        self._parts = range(first, parts - SERIAL_PARTS, jobs)

        def life(reads: int, writes: int) -> None:
            _scan_parts(scanner, self._slots, self._parts, reads, writes)

        self._helper: ForkedWorker = ForkedWorker(life, [other._helper for other in others])

    def tables(self, part: int, position: int) -> Iterator[Columns]:
        """What it found of a part, as far as it joins on at `position`; none of a part that is not its. Parts are asked
        for in order; of those that were left out (damage can cover them) the tables are dropped."""
        if part not in self._parts:
            return
        number, rows, start, stop = self._next_message()
        while rows or number < part:
            if rows:
                table = self._slots[self._taken % SLOTS]
                self._taken += 1
                if number == part and start == position:
                    table.count = rows
                    position = stop
                    yield table
                with suppress(BrokenPipeError):
                    os.write(self._helper.writes, b"\0")
            number, rows, start, stop = self._next_message()

    def kill(self) -> None:
        self._helper.kill()

    def _next_message(self) -> tuple[int, ...]:
        message = os.read(self._helper.reads, _MESSAGE.size)
        return _MESSAGE.unpack(message) if len(message) == _MESSAGE.size else _END


def _scan_parts(
    scanner: Scanner, slots: Sequence[Columns], parts: Sequence[int], reads: int, writes: int
) -> None:
    """A helper's life."""
    end = len(scanner.view)
    filled, free = 0, len(slots)
    for part in parts:
        stop = min((part + 1) * PART_BYTES, end)
        position = scanner.first_valid(part * PART_BYTES, stop)
        is_whole = True
        while is_whole and position is not None and position < stop:
            if not free:
                free = len(os.read(reads, len(slots)))
                if not free:
                    return
            start, table = position, slots[filled % len(slots)]
            position, is_whole = scanner.fill_valid(table, start, end, stop)
            if table.count:
                filled, free = filled + 1, free - 1
                os.write(writes, _MESSAGE.pack(part, table.count, start, position))
        os.write(writes, _MESSAGE.pack(part, 0, 0, 0))
