"""CRC verification, one table of batches at a time.

1. Small batches: one kernel call for all, because a library call costs as much as a kilobyte of CRC.
2. Large batches: one library call each, unless the processor has CRC-32C instructions.
3. Hostile files: once more bytes were checksummed without progress than the file has, CRCs of long ranges are combined from blocks,
   in time that does not grow with the range (`range_crc`).
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
MAX_WASTED_BYTES = 64 * 1024 * 1024


class CrcVerifier:
    """Verifies batches of one buffer. wasted_bytes: checksummed without progress through the log; the caller adds to it."""

    def __init__(self, view: memoryview) -> None:
        self.view = view
        self.wasted_bytes = 0
        self._castagnoli, self._ieee = crc_tables()
        self._ranges: dict[bool, RangeChecksum] = {}

    def verify(self, table: Columns) -> None:
        """Set VALID of each row to 1 or 0: whether the batch is long enough and matches its checksum."""
        left = checksum.verify_small(
            self.view, *table.raw, table.count, SMALL_BATCH_BYTES, self._castagnoli, self._ieee
        )
        if not left:
            return
        if self.wasted_bytes <= MAX_WASTED_BYTES + len(self.view):
            checksum.verify_large(
                self.view, self.view, table.cells, table.capacity, table.count, _crc32c, _crc32
            )
        else:
            self._verify_by_blocks(table)

    def _verify_by_blocks(self, table: Columns) -> None:
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


def _crc32c(data: memoryview) -> int:
    # only a processor without CRC-32C instructions needs that library
    return crc.crc32c(data)


def _crc32(data: memoryview) -> int:
    # only messages of old formats need it
    return crc.crc32(data)


_TABLES: list[tuple[memoryview, memoryview]] = []


def crc_tables() -> tuple[memoryview, memoryview]:
    # once per process: 4096 entries computed in plain Python would slow down every start
    if not _TABLES:
        _TABLES.append(
            (
                memoryview(checksum.make_tables(checksum.CASTAGNOLI)),
                memoryview(checksum.make_tables(checksum.IEEE)),
            )
        )
    return _TABLES[0]
