"""Tables of numbers that the kernel fills: one int64 column per field, `capacity` rows.

A table is one flat `array('q')`; the column of field f is cells f·capacity … (f+1)·capacity − 1. Kernels get the
flat memoryview and the capacity; other code reads whole columns or single rows through `Columns`.
"""

from array import array

_ZERO = array("q", [0])
# glibc returns a freed block of 128 KiB or more to the system, which zeroes the pages again for the next table. Freeing one larger
# block raises that threshold; this block is never touched, so it takes no memory.
bytes(16 * 1024 * 1024)


class Columns:
    """A table of `width` int64 columns and `capacity` rows, of which the first `count` are filled."""

    __slots__ = ("capacity", "cells", "count", "width")

    def __init__(self, width: int, capacity: int, cells: memoryview | None = None) -> None:
        """cells: memory for the table, at least `width` × `capacity` int64 numbers; None allocates it."""
        self.width = width
        self.capacity = capacity
        self.count = 0
        self.cells = memoryview(_ZERO * (width * capacity)) if cells is None else cells

    @property
    def raw(self) -> tuple[memoryview, int]:
        """The table as the two arguments of a kernel: its cells and its capacity."""
        return self.cells, self.capacity

    def column(self, field: int) -> memoryview:
        """The filled part of one column, as a view (valid until the table is filled again)."""
        start = field * self.capacity
        return self.cells[start : start + self.count]

    def at(self, field: int, row: int) -> int:
        value: int = self.cells[field * self.capacity + row]
        return value


# --- columns of a table of batches (filled by kernel.walk)
(
    POSITION,
    SIZE,
    MAGIC,
    BASE_OFFSET,
    LAST_OFFSET,
    COUNT,
    ATTRIBUTES,
    LEADER_EPOCH,
    CRC,
    BASE_TIMESTAMP,
    MAX_TIMESTAMP,
    PRODUCER_ID,
    PRODUCER_EPOCH,
    BASE_SEQUENCE,
    VALID,  # the checksum: 1 right, 0 wrong, −1 not computed
    BODY,  # what is known of the bytes after the header: one of the values below
) = range(16)
BATCH_WIDTH = 16
BODY_UNKNOWN = 0
BODY_BEGINS = 1  # it begins as its codec would write it (`kernel.validate`)
BODY_SOUND = 2  # every record can be read (`scanning.record_validation`)

# --- bits of ATTRIBUTES, for kernels; elsewhere they are those of `segment.layout`
CODEC_MASK = 7
TIMESTAMP_TYPE_BIT = 8
TRANSACTIONAL_BIT = 16
CONTROL_BIT = 32
DELETE_HORIZON_BIT = 64

# --- columns of a table of records (filled by kernel.record_walk)
(
    R_BATCH,  # row of the record's batch in the table of batches
    R_OFFSET,
    R_TIMESTAMP,
    R_KEY_START,  # position in the body buffer; −1 when null
    R_KEY_LENGTH,  # −1 = null
    R_VALUE_START,
    R_VALUE_LENGTH,
    R_HEADERS_START,
    R_HEADER_COUNT,
    R_SEQUENCE,
    R_CRC,  # legacy messages only
    R_VALID,  # legacy messages only: whether the checksum is right (1 or 0)
) = range(12)
RECORD_WIDTH = 12

# --- columns of a table of what a compaction makes of batches (filled by kernel.key_verdicts)
(
    T_RECORDS,
    T_KEPT,
    T_TOMBSTONES,  # kept records without a value, keyed or not
    T_MAX_TIMESTAMP,  # of the kept records
    T_FIRST_TIMESTAMP,
    T_FIRST_OFFSET,
    T_LAST_OFFSET,
    T_BEGIN,  # offset of the first record, kept or not
    T_NEGATIVE,  # number of kept records with a timestamp below −1
) = range(9)
TALLY_WIDTH = 9
