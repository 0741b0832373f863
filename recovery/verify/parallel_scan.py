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

With `--deep` the records are most of the work. Then a helper checks those of its batches, too, and says in one more column of its
tables which are sound (`scanning.record_validation`); this process looks at the others, and at those of its own parts. Both take as
long for a part, so the parts are smaller and only the first one belongs to this process.
"""

import os
import struct
from array import array
from collections.abc import Iterator, Sequence
from contextlib import suppress

from kseg.jobs.forked_worker import ForkedWorker, can_fork
from kseg.segment import header_tables as C
from kseg.segment import layout as L
from kseg.segment.header_tables import Columns
from kseg.segment.memory import shared_memory
from kseg.segment.scanning.damage import Damage
from kseg.segment.scanning.prevalidated import ValidatedRecords
from kseg.segment.scanning.scan import BATCHES_PER_TABLE, Scanner
from kseg.segment.values import dataclass

PART_BYTES = 8 * 1024 * 1024
SERIAL_PARTS = 4
RECORDS_PART_BYTES = 2 * 1024 * 1024  # at least
_PARTS_WITH_RECORDS = 64  # so many share the work evenly; more of them cost more
RECORDS_SERIAL_PARTS = 1
SLOTS = 12
# a smaller log is done before a helper has begun
_MIN_PARTS = 3 * SERIAL_PARTS
# the column of a helper's tables that says whether the records of a batch are sound (1)
_HAS_SOUND_RECORDS = C.BATCH_WIDTH
_WIDTH = C.BATCH_WIDTH + 1
_TABLE_BYTES = 8 * _WIDTH * BATCHES_PER_TABLE

# number of the part, rows (0: no more of this part), position where they begin, and where they end
_MESSAGE = struct.Struct("<qqqq")
_END = L.INT64_MAX, 0, 0, 0
_ONES = memoryview(array("q", [1]) * BATCHES_PER_TABLE)


@dataclass(frozen=True, slots=True)
class _Work:
    """What the helper processes do, and how the log is divided. records: learns which records they found sound; None when they do not check records."""

    part_bytes: int
    serial_parts: int
    records: ValidatedRecords | None


def blocks_by_many(
    scanner: Scanner, jobs: int, records: ValidatedRecords | None = None
) -> Iterator[Columns | Damage]:
    """`scanner.blocks()` by up to `jobs` processes, where that can be done and pays; the tables may be smaller.

    records: is told before a table is yielded which of its batches have sound records; None when nobody asks.
    """
    end = len(scanner.view)
    if records is None:
        work = _Work(PART_BYTES, SERIAL_PARTS, None)
    else:
        part_bytes = max(RECORDS_PART_BYTES, min(PART_BYTES, end // _PARTS_WITH_RECORDS))
        work = _Work(part_bytes, RECORDS_SERIAL_PARTS, records)
    if jobs <= 1 or end < _MIN_PARTS * work.part_bytes or not can_fork():
        yield from scanner.blocks()
        return
    helpers: list[_ScanHelper] = []
    try:
        with suppress(
            OSError
        ):  # the system allows no more processes: this one takes the parts of those missing
            for number in range(1, jobs):
                helpers.append(_ScanHelper(scanner, work, number, jobs, helpers))
        position = 0
        while position < end:
            part = position // work.part_bytes
            for helper in helpers:
                for table in helper.tables(part, position):
                    scanner.remember_offsets(table)
                    position = _end_of(table)
                    if records is not None:
                        _tell(records, table)
                    yield table
            for item in scanner.blocks(position, end, (part + 1) * work.part_bytes):
                position = _end_of(item)
                yield item
    finally:
        for helper in helpers:
            helper.kill()


def _tell(records: ValidatedRecords, table: Columns) -> None:
    """Pass on the spans of batches whose records a helper found sound."""
    positions = table.column(C.POSITION)
    start, end = positions[0], _end_of(table)
    for row, is_sound in enumerate(table.column(_HAS_SOUND_RECORDS).tolist()):
        if not is_sound:
            if positions[row] > start:
                records.add(start, positions[row])
            start = positions[row + 1] if row + 1 < table.count else end
    if start < end:
        records.add(start, end)


def _end_of(item: Columns | Damage) -> int:
    if isinstance(item, Damage):
        return item.position + item.length
    return item.at(C.POSITION, item.count - 1) + item.at(C.SIZE, item.count - 1)


class _ScanHelper:
    """The helper that scans every `jobs`-th part from `number` on, seen from this side."""

    def __init__(
        self, scanner: Scanner, work: _Work, number: int, jobs: int, others: "Sequence[_ScanHelper]"
    ) -> None:
        memory = shared_memory(SLOTS * _TABLE_BYTES)
        self._slots = [
            Columns(_WIDTH, BATCHES_PER_TABLE, memory[at : at + _TABLE_BYTES].cast("q"))
            for at in range(0, len(memory), _TABLE_BYTES)
        ]
        self._taken = 0
        parts = -(-len(scanner.view) // work.part_bytes)
        first = number + -(-(work.serial_parts - number) // jobs) * jobs
        self._parts = range(first, parts - work.serial_parts, jobs)

        def life(reads: int, writes: int) -> None:
            _scan_parts(scanner, work, self._slots, self._parts, reads, writes)

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
    scanner: Scanner,
    work: _Work,
    slots: Sequence[Columns],
    parts: Sequence[int],
    reads: int,
    writes: int,
) -> None:
    """The main loop of a helper process."""
    end = len(scanner.view)
    filled, free = 0, len(slots)
    for part in parts:
        stop = min((part + 1) * work.part_bytes, end)
        position = scanner.first_valid(part * work.part_bytes, stop)
        is_whole = True
        while is_whole and position is not None and position < stop:
            if not free:
                free = len(os.read(reads, len(slots)))
                if not free:
                    return
            start, table = position, slots[filled % len(slots)]
            position, is_whole = scanner.fill_valid(table, start, end, stop)
            if table.count:
                if work.records is not None:
                    _check_records(scanner.view, table)
                filled, free = filled + 1, free - 1
                os.write(writes, _MESSAGE.pack(part, table.count, start, position))
        os.write(writes, _MESSAGE.pack(part, 0, 0, 0))


def _check_records(view: memoryview, table: Columns) -> None:
    from kseg.segment.scanning.record_validation import valid_until  # brings the codecs

    verdicts, row = table.column(_HAS_SOUND_RECORDS), 0
    while row < table.count:
        sound = valid_until(view, table, row, table.count)
        verdicts[row:sound] = _ONES[: sound - row]
        if sound < table.count:
            verdicts[sound] = 0
        row = sound + 1
