"""Verdicts on checksums, a table of batches at a time.

1. Small batches in one kernel call: a call into a library costs as much as a kilobyte.
2. Large ones by the library, one call each.
3. Except in a hostile file: once more bytes were summed in vain than the file has, long ranges are combined from
   blocks, in time that does not grow with them (`range_crc`).
"""

from typing import TYPE_CHECKING

from kseg.segment import crc
from kseg.segment import header_tables as C
from kseg.segment import layout as L
from kseg.segment.header_tables import Columns
from kseg.segment.kernel import checksum

if TYPE_CHECKING:
    from kseg.segment.scanning.range_crc import RangeChecksum

# Up to this size the kernel's table method is faster than a call into the hardware library (bench/bindings.py).
SMALL_BATCH_BYTES = 768
VAIN_ALLOWANCE_BYTES = 64 * 1024 * 1024


class BatchJudge:
    """Judges batches of one buffer. vain_bytes: what was summed without getting on; the caller counts it."""

    def __init__(self, view: memoryview) -> None:
        self.view = view
        self.vain_bytes = 0
        self._castagnoli, self._ieee = crc_tables()
        self._ranges: dict[bool, RangeChecksum] = {}

    def judge(self, table: Columns) -> None:
        """Set VALID of each row to 1 or 0: whether the batch is long enough and matches its checksum."""
        left = checksum.judge_small(
            self.view,
            table.cells,
            table.capacity,
            table.count,
            SMALL_BATCH_BYTES,
            self._castagnoli,
            self._ieee,
        )
        if not left:
            return
        if self.vain_bytes <= VAIN_ALLOWANCE_BYTES + len(self.view):
            checksum.judge_large(self.view, table.cells, table.capacity, table.count, crc.crc32c, _crc32)
        else:
            self._judge_by_blocks(table)

    def _judge_by_blocks(self, table: Columns) -> None:
        for row in range(table.count):
            if table.at(C.VALID, row) == -1:
                position, legacy = table.at(C.POSITION, row), table.at(C.MAGIC, row) < L.MAGIC_V2
                start = position + (L.MAGIC_POSITION if legacy else L.ATTRIBUTES_POSITION)
                found = self._checksums(legacy).of(start, position + table.at(C.SIZE, row))
                table.cells[C.VALID * table.capacity + row] = found == table.at(C.CRC, row)

    def _checksums(self, legacy: bool) -> "RangeChecksum":
        if legacy not in self._ranges:
            from kseg.segment.scanning.range_crc import RangeChecksum  # only hostile files need it

            polynomial = checksum.IEEE if legacy else checksum.CASTAGNOLI
            self._ranges[legacy] = RangeChecksum(self.view, polynomial, crc.crc32 if legacy else crc.crc32c)
        return self._ranges[legacy]


def _crc32(data: memoryview) -> int:
    # only an old message loads that library
    return crc.crc32(data)


_TABLES: list[tuple[memoryview, memoryview]] = []


def crc_tables() -> tuple[memoryview, memoryview]:
    # made once per process: 4096 entries of interpreted arithmetic are not free at start-up
    if not _TABLES:
        _TABLES.append(
            (
                memoryview(checksum.make_tables(checksum.CASTAGNOLI)),
                memoryview(checksum.make_tables(checksum.IEEE)),
            )
        )
    return _TABLES[0]
