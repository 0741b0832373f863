# cython: language_level=3, boundscheck=True, wraparound=False, cdivision=True, annotation_typing=False
"""The batch walk: from the bytes of a `.log` to a table of batch headers.

It splits a file the way Kafka's FileLogInputStream does (fact sheet §2.4) and validates nothing: every entry whose
length fits becomes a row, whatever its checksum. At position p with the readable end E:

    1. p ≥ E − 17                 end (clean when p = E, else a tail too short for a header)
    2. size field < 14            TOO_SMALL (Kafka: CorruptRecordException)
    3. p > E − 12 − size          PARTIAL (Kafka: the end, without an exception)
    4. magic < 2 (signed)         a legacy entry; otherwise a batch of magic 2 or an unknown one
    5. a batch header of 61 bytes that exceeds the file: HEADER_CUT (Kafka: KafkaException)

`first_candidate` is the counterpart: after damage it searches for the next bytes at which a batch could start.
Columns are those of `kseg.segment.header_tables`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kseg.segment import header_tables as C
from kseg.segment.kernel import buffer_access
from kseg.segment.kernel import state_fields as S

if TYPE_CHECKING:
    from kseg.segment.kernel.buffer_types import Readable, Writable

FULL, END, TOO_SMALL, PARTIAL, HEADER_CUT = range(5)


def put_batch(buf: Readable, p: int, cells: Writable, capacity: int, row: int) -> int:
    base_offset = buffer_access.long_at(buf, p)
    cells[C.POSITION * capacity + row] = p
    cells[C.SIZE * capacity + row] = buffer_access.int_at(buf, p + 8) + 12
    magic = buf[p + 16]
    if magic > 127:
        magic = magic - 256
    cells[C.MAGIC * capacity + row] = magic
    cells[C.BASE_OFFSET * capacity + row] = base_offset
    cells[C.LAST_OFFSET * capacity + row] = buffer_access.add_long(
        base_offset, buffer_access.int_at(buf, p + 23)
    )
    cells[C.COUNT * capacity + row] = buffer_access.int_at(buf, p + 57)
    cells[C.ATTRIBUTES * capacity + row] = buffer_access.short_at(buf, p + 21)
    cells[C.LEADER_EPOCH * capacity + row] = buffer_access.int_at(buf, p + 12)
    cells[C.CRC * capacity + row] = buffer_access.crc_at(buf, p + 17)
    cells[C.BASE_TIMESTAMP * capacity + row] = buffer_access.long_at(buf, p + 27)
    cells[C.MAX_TIMESTAMP * capacity + row] = buffer_access.long_at(buf, p + 35)
    cells[C.PRODUCER_ID * capacity + row] = buffer_access.long_at(buf, p + 43)
    cells[C.PRODUCER_EPOCH * capacity + row] = buffer_access.short_at(buf, p + 51)
    cells[C.BASE_SEQUENCE * capacity + row] = buffer_access.int_at(buf, p + 53)
    cells[C.VALID * capacity + row] = -1
    cells[C.BODY * capacity + row] = C.BODY_UNKNOWN
    return 0


def put_legacy(buf: Readable, p: int, cells: Writable, capacity: int, row: int) -> int:
    offset = buffer_access.long_at(buf, p)
    cells[C.POSITION * capacity + row] = p
    cells[C.SIZE * capacity + row] = buffer_access.int_at(buf, p + 8) + 12
    magic = buf[p + 16]
    if magic > 127:
        magic = magic - 256
    attributes = buf[p + 17]
    timestamp = -1
    if magic != 0:
        timestamp = buffer_access.long_at(buf, p + 18)
    cells[C.MAGIC * capacity + row] = magic
    cells[C.BASE_OFFSET * capacity + row] = offset
    cells[C.LAST_OFFSET * capacity + row] = offset
    # a wrapper does not declare how many messages it contains
    cells[C.COUNT * capacity + row] = 1 if attributes & C.CODEC_MASK == 0 else -1
    cells[C.ATTRIBUTES * capacity + row] = attributes
    cells[C.LEADER_EPOCH * capacity + row] = -1
    cells[C.CRC * capacity + row] = buffer_access.crc_at(buf, p + 12)
    cells[C.BASE_TIMESTAMP * capacity + row] = timestamp
    cells[C.MAX_TIMESTAMP * capacity + row] = timestamp
    cells[C.PRODUCER_ID * capacity + row] = -1
    cells[C.PRODUCER_EPOCH * capacity + row] = -1
    cells[C.BASE_SEQUENCE * capacity + row] = -1
    cells[C.VALID * capacity + row] = -1
    cells[C.BODY * capacity + row] = C.BODY_UNKNOWN
    return 0


def walk(buf: Readable, end: int, cells: Writable, capacity: int, state: Writable, until: int = -1) -> int:
    """Fill rows 0… of `cells` from position state[BATCHES_END] on; returns why it stopped (FULL, END, …).

    buf: the whole file. end: readable end, ≤ len(buf). until: stop before an entry that begins at or after it (−1 = no
    limit), also with FULL. state[BATCHES_END] is set to the position after the last row filled, state[BATCHES_COUNT] to
    the number of rows. A legacy row has COUNT 1, or −1 for a compressed wrapper; VALID stays −1.
    """
    position = state[S.BATCHES_END]
    file_end = len(buf)
    if (
        position < 0
        or end > file_end
        or C.BATCH_WIDTH * capacity > len(cells)
        or len(state) < S.BATCHES_WIDTH
    ):
        raise ValueError("the walk would leave its buffers")
    source = buffer_access.bytes_in(buf)
    table = buffer_access.table_in(cells)
    if until < 0:
        until = file_end
    row = 0
    reason = FULL
    fetched = position
    while row < capacity:
        if position >= end - 17:
            reason = END
            break
        if position >= until:
            break
        size = buffer_access.int_at(source, position + 8)
        if size < 14:
            reason = TOO_SMALL
            break
        if position > end - 12 - size:
            reason = PARTIAL
            break
        magic = source[position + 16]
        if magic < 2 or magic > 127:
            put_legacy(source, position, table, capacity, row)
        elif position + 61 > file_end:
            reason = HEADER_CUT
            break
        else:
            put_batch(source, position, table, capacity, row)
        if size < 1024:
            # each length determines where the next batch is: without the prefetch the walk waits for memory at every small batch
            if fetched < position:
                fetched = position
            while fetched < position + 2048:
                buffer_access.wanted(source, fetched)
                fetched = fetched + 64
        position = position + 12 + size
        row = row + 1
    state[S.BATCHES_END] = position
    state[S.BATCHES_COUNT] = row
    return reason


def plausible_batch(buf: Readable, p: int, end: int, lowest_offset: int, highest_offset: int) -> int:
    # check every field of a magic 2 header that can contradict itself; the caller checks the checksum
    size = buffer_access.int_at(buf, p + 8)
    if size < 49 or p > end - 12 - size:
        return 0
    offset = buffer_access.long_at(buf, p)
    if offset < lowest_offset or offset > highest_offset:
        return 0
    delta = buffer_access.int_at(buf, p + 23)
    count = buffer_access.int_at(buf, p + 57)
    if buf[p + 21] != 0 or buf[p + 22] > 127 or buf[p + 22] & C.CODEC_MASK > 4:
        return 0
    if delta < 0 or count < 0 or count - 1 > delta or buffer_access.int_at(buf, p + 12) < -1:
        return 0
    if (
        buffer_access.long_at(buf, p + 43) < -1
        or buffer_access.short_at(buf, p + 51) < -1
        or buffer_access.int_at(buf, p + 53) < -1
    ):
        return 0
    if buffer_access.long_at(buf, p + 35) < -1:
        return 0
    return 1


def plausible_legacy(buf: Readable, p: int, end: int, lowest_offset: int, highest_offset: int) -> int:
    size = buffer_access.int_at(buf, p + 8)
    magic = buf[p + 16]
    fixed = 14 + 8 * magic
    if size < fixed or p > end - 12 - size:
        return 0
    offset = buffer_access.long_at(buf, p)
    if offset < lowest_offset or offset > highest_offset:
        return 0
    attributes = buf[p + 17]
    if attributes & C.CODEC_MASK > 3 or attributes > 15:
        return 0
    key_length = buffer_access.int_at(buf, p + 18 + 8 * magic)
    if key_length < -1:
        return 0
    if key_length < 0:
        key_length = 0
    if key_length > size - fixed:
        return 0
    value_length = buffer_access.int_at(buf, p + 22 + 8 * magic + key_length)
    if value_length < -1:
        return 0
    if value_length < 0:
        value_length = 0
    if fixed + key_length + value_length != size:
        return 0
    return 1


def first_candidate(
    buf: Readable, position: int, end: int, lowest_offset: int, highest_offset: int, until: int = -1
) -> int:
    """The first position ≥ `position` whose bytes could start a batch that ends at or before `end`; −1 if none.

    until: the returned position is before it; −1 for no such limit.

    All consistency rules of the header are checked, among them magic, length and offset range, but not the checksum.
    """
    if position < 0 or end > len(buf):
        raise ValueError("the search would leave its buffer")
    source = buffer_access.bytes_in(buf)
    p = position
    last = end - 26
    if until >= 0 and last >= until:
        last = until - 1
    while p <= last:
        magic = source[p + 16]
        if magic == 2:
            if p <= end - 61 and plausible_batch(source, p, end, lowest_offset, highest_offset):
                return p
        elif magic < 2 and source[p] == 0 and source[p + 8] < 128:
            # cheap tests first: offsets stay below 2^56 and sizes are positive
            if plausible_legacy(source, p, end, lowest_offset, highest_offset):
                return p
        p = p + 1
    return -1


def zero_run(buf: Readable, position: int, end: int) -> int:
    """How many bytes from `position` on are zero, up to `end`."""
    p = position
    while p < end and buf[p] == 0:
        p = p + 1
    return p - position


def next_remarkable(cells: Readable, capacity: int, row: int, count: int) -> int:
    """The first row from `row` on whose VALID is not 1 or whose codec is unknown to Kafka; `count` if there is none."""
    while row < count:
        if cells[C.VALID * capacity + row] != 1 or cells[C.ATTRIBUTES * capacity + row] & C.CODEC_MASK > 4:
            break
        row = row + 1
    return row


def first_invalid(cells: Readable, capacity: int, count: int) -> int:
    """The first row whose VALID is not 1; `count` if all are valid."""
    row = 0
    while row < count and cells[C.VALID * capacity + row] == 1:
        row = row + 1
    return row


def equal_run(cells: Readable, capacity: int, column: int, row: int, stop: int) -> int:
    """The end (exclusive) of the run of rows from `row` on, before `stop`, that have the same value in a column as that row."""
    if row < 0 or row >= stop or stop > capacity or not 0 <= column < len(cells) // capacity:
        raise ValueError("the rows lie outside the table")
    value = cells[column * capacity + row]
    while row < stop and cells[column * capacity + row] == value:
        row = row + 1
    return row


def next_equal(cells: Readable, capacity: int, column: int, row: int, stop: int, value: int) -> int:
    """The first row from `row` on, before `stop`, that has this value in a column; `stop` if there is none."""
    if row < 0 or stop > capacity or not 0 <= column < len(cells) // capacity:
        raise ValueError("the rows lie outside the table")
    while row < stop and cells[column * capacity + row] != value:
        row = row + 1
    return row


def declared_records(cells: Readable, capacity: int, row: int, stop: int) -> int:
    """The number of records that the headers of rows `row` … stop − 1 declare. A header with an unverified checksum may declare any number,
    so a batch counts at most as many records as it has offsets. A compressed set of magic 0 or 1 declares none."""
    if row < 0 or stop > capacity or C.BATCH_WIDTH * capacity > len(cells):
        raise ValueError("the rows lie outside the table")
    total = 0
    while row < stop:
        declared = cells[C.COUNT * capacity + row]
        offsets = cells[C.LAST_OFFSET * capacity + row] - cells[C.BASE_OFFSET * capacity + row] + 1
        if declared > offsets:
            declared = offsets
        if declared > 0:
            total = total + declared
        row = row + 1
    return total


def first_uncounted(cells: Readable, capacity: int, count: int) -> int:
    """The first row whose COUNT is negative; `count` if there is none."""
    row = 0
    while row < count and cells[C.COUNT * capacity + row] >= 0:
        row = row + 1
    return row


def highest_offset(cells: Readable, capacity: int, count: int) -> int:
    """The largest LAST_OFFSET of the first `count` rows, at least −1."""
    highest = -1
    for row in range(count):
        if cells[C.LAST_OFFSET * capacity + row] > highest:
            highest = cells[C.LAST_OFFSET * capacity + row]
    return highest


def copy_rows(
    source: Readable, width: int, first: int, stop: int, cells: Writable, capacity: int, row: int
) -> int:
    """Copy rows first … stop - 1 of a table of batches to `row` and after it in another, or further up in the same one.

    width: the capacity of the source.
    """
    count = stop - first
    if (
        first < 0
        or count < 0
        or row < 0
        or stop > width
        or row + count > capacity
        or C.BATCH_WIDTH * width > len(source)
        or C.BATCH_WIDTH * capacity > len(cells)
    ):
        raise ValueError("the rows would leave their tables")
    read = buffer_access.cells_in(source)
    written = buffer_access.table_in(cells)
    for field in range(C.BATCH_WIDTH):
        for at in range(count):
            written[field * capacity + row + at] = read[field * width + first + at]
    return 0


def plain_run(cells: Readable, capacity: int, row: int, count: int) -> int:
    """The end (exclusive) of the run of rows from `row` on that need no decompression and are not control batches.

    All rows of a run are batches of magic 2, or all are messages of magic 0 and 1.
    """
    is_legacy = row < count and cells[C.MAGIC * capacity + row] < 2
    while row < count:
        attributes = cells[C.ATTRIBUTES * capacity + row]
        if attributes & C.CODEC_MASK or (cells[C.MAGIC * capacity + row] < 2) != is_legacy:
            break
        if attributes & C.CONTROL_BIT and not is_legacy:
            break
        row = row + 1
    return row


def compressed_run(cells: Readable, capacity: int, row: int, count: int, most_records: int) -> int:
    """The end (exclusive) of the run of rows from `row` on that have a compressed body of records and together
    declare at most `most_records`. Wrappers, control batches and empty batches end it."""
    records = 0
    while row < count:
        attributes = cells[C.ATTRIBUTES * capacity + row]
        declared = cells[C.COUNT * capacity + row]
        if (
            cells[C.MAGIC * capacity + row] < 2
            or attributes & C.CODEC_MASK == 0
            or attributes & C.CONTROL_BIT
        ):
            break
        if declared < 1 or declared > most_records - records or cells[C.SIZE * capacity + row] < 61:
            break
        records = records + declared
        row = row + 1
    return row
