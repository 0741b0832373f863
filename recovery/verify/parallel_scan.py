"""Scan the large logs of a partition with several processes: the same batches and the same damage as `Scanner.blocks` returns.

Page faults, checksums and cache misses each cost a similar share of reading a mapped file. So the other processes do all three:
they read and check the bytes, and pass on only tables of headers.

1. Cut the logs into parts of equal size, without regard to batch boundaries, and number the parts of all logs. Several processes scan
   them, this one included (`jobs.part_pool`); a process that is free takes the next part.
2. A process does not know where the first batch of its part starts. It takes the first valid batch that it finds, walks from there to
   the end of the part, and puts the headers into tables. At an invalid batch it gives up the rest of the part.
3. This process reads each log in order. It accepts the tables of a part if they start exactly at its position (bytes inside a record
   value that look like a batch do not), and scans everything else itself: damaged ranges, and the first batch of a part into which the
   previous batch extends. So no verdict depends on where a part started.
4. The column `C.BODY` of the tables says what is known about the body of each batch. At the deep level checking the records is most of
   the work, so the process that scans a part checks them as well. At the default level it checks the beginning of each body, which
   spares this process the page faults.
5. When a process dies, this one scans the rest alone.
"""

from array import array
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from itertools import accumulate
from typing import TYPE_CHECKING, Self

from kseg.jobs.forked_worker import can_fork
from kseg.recovery.verify.options import VerifyOptions
from kseg.segment import header_tables as C
from kseg.segment.errors import UnreadableInput
from kseg.segment.files import MappedFile
from kseg.segment.header_tables import Columns
from kseg.segment.kernel.validate import examine_bodies
from kseg.segment.scanning.damage import Damage
from kseg.segment.scanning.scan import BATCHES_PER_TABLE, Scanner, rows_for
from kseg.segment.values import dataclass

if TYPE_CHECKING:
    from kseg.jobs.part_pool import PartPool
    from kseg.jobs.part_worker import Room

LEAST_SHARED_BYTES = 32 * 1024 * 1024  # with less, this process is done before another one has started
LEAST_LOG_BYTES = 1024 * 1024  # opening a smaller log twice costs as much as scanning it
MIN_PART_BYTES = 2 * 1024 * 1024
MAX_PART_BYTES = 8 * 1024 * 1024
_PARTS = 64  # enough to distribute the work evenly

# The result of a part consists of pieces. Each is a table, preceded by its capacity, its number of rows, and the positions in the log where
# these rows begin and end.
_HEAD = 4
_ROOM_BYTES = 8 * (_HEAD + C.BATCH_WIDTH * BATCHES_PER_TABLE)


@dataclass(frozen=True, slots=True)
class ScannedLog:
    """A log to scan. size_bytes: its size when it was listed."""

    path: str
    base_offset: int
    size_bytes: int


class ParallelScan:
    """The scan of the logs of a partition, in order. A context manager that stops the processes it has started.

    It starts none if the logs are small or a fork is not safe; `blocks` is `Scanner.blocks` then.
    """

    def __init__(self, logs: Sequence[ScannedLog], options: VerifyOptions) -> None:
        self._logs = logs
        self._options = options
        self._pool: PartPool | None = None
        total_bytes = sum(log.size_bytes for log in logs if log.size_bytes >= LEAST_LOG_BYTES)
        if options.jobs <= 1 or total_bytes < LEAST_SHARED_BYTES or not can_fork():
            return
        target_bytes = max(MIN_PART_BYTES, min(MAX_PART_BYTES, total_bytes // _PARTS))
        counts = [
            max(1, round(log.size_bytes / target_bytes)) if log.size_bytes >= LEAST_LOG_BYTES else 0
            for log in logs
        ]
        # for each log the number of its first part, and the size of its parts
        self._first_parts = list(accumulate(counts, initial=0))
        self._part_bytes = [
            -(-log.size_bytes // count) if count else 0 for log, count in zip(logs, counts, strict=True)
        ]
        self._next = 0
        self._open: tuple[int, MappedFile, Scanner] | None = None
        self._room: Room = self._own_room
        self._free: list[array[int]] = []
        self._pool = self._started(options.jobs - 1)

    def _started(self, others: int) -> "PartPool":
        from kseg.jobs.part_pool import PartPool  # most logs are small

        pool = PartPool(self._scan_part, self._first_parts[-1], self._begin_worker)
        pool.start_workers(others)
        return pool

    def blocks(self, number: int, scanner: Scanner) -> Iterator[Columns | Damage]:
        """The blocks of log `number`, given a scanner over it. To be called for the logs in order. A table is valid until the next one is
        requested, and may be smaller than the scanner's."""
        end = len(scanner.view)
        if self._pool is None or not self._part_bytes[number] or end != self._logs[number].size_bytes:
            yield from scanner.blocks()
            return
        part_bytes, position = self._part_bytes[number], 0
        while position < end:
            part = position // part_bytes
            for table, stop in self._tables(self._first_parts[number] + part, position):
                scanner.remember_offsets(table)
                position = stop
                yield table
            for item in scanner.blocks(position, end, (part + 1) * part_bytes):
                position = _end_of(item)
                yield item

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._stop()

    def _stop(self) -> None:
        if self._pool is not None:
            # taking back the pages of a large mapped file takes milliseconds in each process
            self._pool.end()
            self._close()
            self._pool.kill()
            self._pool = None

    # --- collecting the results of the parts

    def _tables(self, part: int, position: int) -> Iterator[tuple[Columns, int]]:
        """The tables of a part that continue the log at `position`, each with the position where it ends; none if the part was taken
        before."""
        if self._pool is None or part < self._next:
            return
        for skipped in range(self._next, part):
            self._pool.skip(skipped)
        self._next = part + 1
        pieces = self._pool.take(part)
        if pieces is None:
            self._stop()
            return
        try:
            for piece in pieces:
                for table, start, stop in _tables_in(memoryview(piece)):
                    if start == position:
                        yield table, stop
                        position = stop
        finally:
            for piece in pieces:
                if isinstance(piece, memoryview) and isinstance(piece.obj, array):
                    self._free.append(piece.obj)
            if self._pool is not None:
                self._pool.give_back(part)

    # --- scanning a part, in this process or another

    def _begin_worker(self, room: "Room") -> None:
        self._room = room

    def _own_room(self) -> memoryview:
        return memoryview(self._free.pop() if self._free else array("q", bytes(_ROOM_BYTES))).cast("B")

    def _scan_part(self, part: int) -> Iterator[memoryview]:
        number = bisect_right(self._first_parts, part) - 1
        start = (part - self._first_parts[number]) * self._part_bytes[number]
        scanner = self._scanner_of(number)
        end = 0 if scanner is None else len(scanner.view)
        if scanner is None or start >= end:
            return
        stop = min(start + self._part_bytes[number], end)
        position, is_whole = scanner.first_valid(start, stop), True
        while is_whole and position is not None and position < stop:
            piece = self._room()
            numbers = piece.cast("q")
            most_rows = (len(numbers) - _HEAD) // C.BATCH_WIDTH
            rows = min(BATCHES_PER_TABLE, rows_for(stop - position), most_rows)
            used = _HEAD + rows * C.BATCH_WIDTH
            table = Columns(C.BATCH_WIDTH, rows, numbers[_HEAD:used])
            start = position
            position, is_whole = scanner.fill_valid(table, start, end, stop)
            if table.count:
                self._examine(scanner.view, table)
                numbers[:_HEAD] = memoryview(array("q", (rows, table.count, start, position)))
                yield piece[: 8 * used]

    def _examine(self, view: memoryview, table: Columns) -> None:
        """Set the column BODY of the table, as far as the level requires it."""
        if self._options.level == "deep":
            from kseg.segment.scanning.record_validation import mark_sound  # loads the codecs

            mark_sound(view, table)
        elif self._options.level == "default":
            examine_bodies(view, table.count, table.cells, table.capacity)

    def _scanner_of(self, number: int) -> Scanner | None:
        """A scanner over the log for parts; None if the log cannot be read, or its size is not the listed one."""
        if self._open is None or self._open[0] != number:
            self._close()
            log = self._logs[number]
            try:
                file = MappedFile(log.path, self._options.drop_cache)
            except UnreadableInput:
                return None
            self._open = number, file, Scanner.over(file, log.base_offset)
        _, file, scanner = self._open
        return scanner if file.size_bytes == self._logs[number].size_bytes else None

    def _close(self) -> None:
        if self._open is not None:
            self._open[1].close()
            self._open = None


def _tables_in(piece: memoryview) -> Iterator[tuple[Columns, int, int]]:
    """The tables of a piece, each with the positions where its batches begin and end. A table is valid until the next one is requested."""
    numbers, at = piece.cast("q"), 0
    with piece, numbers:
        while at < len(numbers):
            rows, count, start, stop = numbers[at : at + _HEAD]
            used = _HEAD + rows * C.BATCH_WIDTH
            with numbers[at + _HEAD : at + used] as cells:
                table = Columns(C.BATCH_WIDTH, rows, cells)
                table.count = count
                yield table, start, stop
            at += used


def _end_of(item: Columns | Damage) -> int:
    if isinstance(item, Damage):
        return item.position + item.length
    return item.at(C.POSITION, item.count - 1) + item.at(C.SIZE, item.count - 1)
