# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, annotation_typing=False
"""Whether all records of a batch are valid: the fast path of `verify --deep`.

No row is written for a record, because that would cost more than checking it. A positive result means (fact sheet §2.3):

    the body contains exactly the declared number of records; each record uses exactly the bytes that it declares
    lengths and header counts fit into the remaining bytes; header names are not null
    offsets increase and are between the batch's base and last offset
    the greatest timestamp is the one that the header declares

A negative result only means that a closer check is needed (`kernel.record_walk`, `kernel.verify_records`); unusual but valid data,
such as timestamps near the ends of their range, gets one too. Magic 2 only, and of control batches only markers as brokers write them.
Bounds checks are off because every position is compared with the end of the body before it is read.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kseg.segment import header_tables as C
from kseg.segment.kernel import buffer_access

if TYPE_CHECKING:
    from kseg.segment.kernel.buffer_types import Readable, Writable


def field_end(body: Readable, p: int, end: int) -> int:
    """Position after a key or value at p; −1 if it does not fit."""
    packed = buffer_access.varint(body, p, end)
    length = packed >> 4
    p = p + (packed & 15)
    if packed == 0 or length > end - p:
        return -1
    return p + length if length > 0 else p


def headers_end(body: Readable, p: int, end: int, count: int) -> int:
    """Position after `count` headers at p; −1 if they are not valid."""
    while count > 0:
        packed = buffer_access.varint(body, p, end)
        length = packed >> 4
        p = p + (packed & 15)
        if packed == 0 or length < 0 or length > end - p:
            return -1
        p = field_end(body, p + length, end)
        if p < 0:
            return -1
        count = count - 1
    return p


def body_is_sound(body: Readable, p: int, body_end: int, batches: Readable, capacity: int, row: int) -> int:
    count = batches[C.COUNT * capacity + row]
    base = batches[C.BASE_OFFSET * capacity + row]
    base_time = batches[C.BASE_TIMESTAMP * capacity + row]
    greatest = batches[C.MAX_TIMESTAMP * capacity + row] - base_time
    limit = 1
    limit = limit << 60
    if count < 1 or base < 0 or not -limit < base_time < limit or not -limit < greatest < limit:
        return 0
    most = batches[C.LAST_OFFSET * capacity + row] - base
    former = -1
    reached = -limit
    while count > 0:
        packed = buffer_access.varint(body, p, body_end)
        p = p + (packed & 15)
        size = packed >> 4
        if packed == 0 or size < 1 or size > body_end - p:
            return 0
        end = p + size
        p = p + 1

        # the timestamp delta: up to 56 bits of a varlong
        raw = 0
        shift = 0
        byte = 128
        while byte > 127:
            if p >= end or shift > 49:
                return 0
            byte = body[p]
            part = byte & 127
            raw = raw | part << shift
            shift = shift + 7
            p = p + 1
        raw = (raw >> 1) ^ -(raw & 1)
        if raw > reached:
            reached = raw

        packed = buffer_access.varint(body, p, end)
        p = p + (packed & 15)
        delta = packed >> 4
        if packed == 0 or delta <= former or delta > most:
            return 0
        former = delta

        p = field_end(body, p, end)
        if p < 0:
            return 0
        p = field_end(body, p, end)
        if p < 0:
            return 0

        packed = buffer_access.varint(body, p, end)
        p = p + (packed & 15)
        size = packed >> 4
        if packed == 0 or size < 0 or size > end - p:
            return 0
        if size > 0:
            p = headers_end(body, p, end, size)
        if p != end:
            return 0
        count = count - 1
    if p != body_end:
        return 0
    # with LogAppendTime every record has the maximum timestamp of the batch
    if batches[C.ATTRIBUTES * capacity + row] & C.TIMESTAMP_TYPE_BIT:
        return 1
    return 1 if reached == greatest else 0


def has_marker_header(batches: Readable, capacity: int, row: int) -> int:
    """Whether a control batch has the header of a transaction marker: a single record, and a producer id without a sequence."""
    kind = batches[C.ATTRIBUTES * capacity + row] & (C.CODEC_MASK | C.TRANSACTIONAL_BIT | C.CONTROL_BIT)
    if kind != (C.TRANSACTIONAL_BIT | C.CONTROL_BIT) or batches[C.COUNT * capacity + row] != 1:
        return 0
    if batches[C.LAST_OFFSET * capacity + row] != batches[C.BASE_OFFSET * capacity + row]:
        return 0
    if batches[C.PRODUCER_ID * capacity + row] < 0:
        return 0
    return 1 if batches[C.BASE_SEQUENCE * capacity + row] == -1 else 0


def plain_valid(buf: Readable, row: int, stop: int, batches: Readable, capacity: int) -> int:
    """The first of the rows from `row` on that is neither an uncompressed batch of valid records nor a marker as brokers write it; `stop`
    if there is none."""
    if capacity * C.BATCH_WIDTH > len(batches) or row < 0 or stop > capacity:
        raise ValueError("the table of batches is too small")
    source = buffer_access.bytes_in(buf)
    table = buffer_access.cells_in(batches)
    size_of_buf = len(buf)
    while row < stop:
        start = table[C.POSITION * capacity + row]
        size = table[C.SIZE * capacity + row]
        attributes = table[C.ATTRIBUTES * capacity + row]
        if table[C.MAGIC * capacity + row] != 2 or attributes & C.CODEC_MASK or size < 61:
            break
        if start < 0 or start > size_of_buf - size:
            raise ValueError("a batch lies outside the buffer")
        if attributes & C.CONTROL_BIT:
            if size != 78 or not buffer_access.is_end_marker(source, start + 61):
                break
            if not has_marker_header(table, capacity, row):
                break
        if not body_is_sound(source, start + 61, start + size, table, capacity, row):
            break
        row = row + 1
    return row


def frame_codec(body: Readable, p: int, size: int) -> int:
    """The codec whose frame begins at p, by its magic number; 0 if none does. Snappy has a magic number only in Java's framing."""
    if size < 4:
        return 0
    if body[p] == 31 and body[p + 1] == 139:
        return 1
    if size >= 8 and body[p] == 130 and body[p + 1] == 83 and body[p + 2] == 78 and body[p + 3] == 65:
        return 2
    if body[p] == 4 and body[p + 1] == 34 and body[p + 2] == 77 and body[p + 3] == 24:
        return 3
    if body[p] == 40 and body[p + 1] == 181 and body[p + 2] == 47 and body[p + 3] == 253:
        return 4
    return 0


def record_end(body: Readable, p: int, body_end: int, delta: int) -> int:
    """The end of the record at p; −1 unless it fits, and has attributes of zero and the offset delta `delta`."""
    packed = buffer_access.varint(body, p, body_end)
    length = packed >> 4
    p = p + (packed & 15)
    if packed == 0 or length < 1 or length > body_end - p or body[p] != 0:
        return -1
    end = p + length
    p = p + 1
    # the timestamp delta
    while p < end and body[p] > 127:
        p = p + 1
    packed = buffer_access.varint(body, p + 1, end)
    return end if packed != 0 and packed >> 4 == delta else -1


def begins_with_records(body: Readable, p: int, body_end: int, count: int) -> int:
    """Whether a batch without missing offsets begins with its first two records; no compressed body begins like that. A client that numbers
    the records of its batches wrongly is wrong from there on: 4.3.1 appends such a batch if it is not compressed (Kafka: LogValidator)."""
    p = record_end(body, p, body_end, 0)
    if p < 0 or count < 2:
        return 1 if p == body_end else 0
    return 1 if record_end(body, p, body_end, 1) > 0 else 0


def looks_compressed(body: Readable, p: int, size: int, codec: int) -> int:
    """Whether a body can be the output of its codec. Snappy without a frame begins with the size and a literal; a compressor never writes a
    literal of a single byte, which is what the attributes of a record would look like."""
    found = frame_codec(body, p, size)
    if found or codec != 2:
        return 1 if found == codec else 0
    packed = buffer_access.varint(body, p, p + size)
    at = p + (packed & 15)
    return 1 if packed != 0 and at < p + size and body[at] != 0 else 0


def is_dense(table: Readable, capacity: int, row: int, stop: int) -> int:
    """Whether a batch declares as many records as it has offsets, and the next row before `stop` continues it."""
    last = table[C.LAST_OFFSET * capacity + row]
    if table[C.COUNT * capacity + row] != last - table[C.BASE_OFFSET * capacity + row] + 1:
        return 0
    return 1 if row + 1 < stop and table[C.BASE_OFFSET * capacity + row + 1] - 1 == last else 0


def examined_body(
    source: Readable, start: int, size: int, table: Readable, capacity: int, row: int, stop: int
) -> int:
    """What the body of a data batch at `start` shows at little cost, a BODY_…: its beginning, unless a record may be missing."""
    codec = table[C.ATTRIBUTES * capacity + row] & C.CODEC_MASK
    if codec:
        return C.BODY_BEGINS if looks_compressed(source, start + 61, size, codec) else C.BODY_UNKNOWN
    end = start + 61 + size
    if is_dense(table, capacity, row, stop) and begins_with_records(
        source, start + 61, end, table[C.COUNT * capacity + row]
    ):
        return C.BODY_BEGINS
    is_sound = body_is_sound(source, start + 61, end, table, capacity, row)
    return C.BODY_SOUND if is_sound else C.BODY_UNKNOWN


def next_doubtful(
    buf: Readable, row: int, stop: int, batches: Readable, capacity: int, opens_before_gaps: int
) -> int:
    """The first row at or after `row` from which a consumer may not get every record although its checksum is valid.

    Decided by the header, the beginning of the body, and whether offsets are missing after it. If they are, an uncompressed
    batch is read, and a compressed one has to be opened, but only with `opens_before_gaps`. Batches of magic 0 and 1 are
    skipped.
    """
    if capacity * C.BATCH_WIDTH > len(batches) or row < 0 or stop > capacity:
        raise ValueError("the table of batches is too small")
    source = buffer_access.bytes_in(buf)
    table = buffer_access.cells_in(batches)
    size_of_buf = len(buf)
    largest = 1
    largest = largest << 62
    while row < stop:
        if table[C.MAGIC * capacity + row] != 2:
            row = row + 1
            continue
        start = table[C.POSITION * capacity + row]
        size = table[C.SIZE * capacity + row] - 61
        if size < 0 or start < 0 or start > size_of_buf - size - 61:
            break
        attributes = table[C.ATTRIBUTES * capacity + row]
        base = table[C.BASE_OFFSET * capacity + row]
        last = table[C.LAST_OFFSET * capacity + row]
        if not 0 <= base <= last < largest:
            break
        count = table[C.COUNT * capacity + row]
        width = last - base + 1
        codec = attributes & C.CODEC_MASK
        if count == 0 and size == 0:
            pass  # emptied by the cleaner
        elif attributes & C.CONTROL_BIT:
            if not has_marker_header(table, capacity, row):
                break
        elif count == 0:
            break
        elif codec == 0:
            known = table[C.BODY * capacity + row]
            if known == C.BODY_BEGINS and not is_dense(table, capacity, row, stop):
                known = C.BODY_UNKNOWN
            if known == C.BODY_UNKNOWN:
                known = examined_body(source, start, size, table, capacity, row, stop)
            if known == C.BODY_UNKNOWN:
                break
        elif count != width or (
            table[C.BODY * capacity + row] == C.BODY_UNKNOWN
            and not looks_compressed(source, start + 61, size, codec)
        ):
            break
        else:
            is_before_gap = row + 1 < stop and table[C.BASE_OFFSET * capacity + row + 1] - 1 != last
            if opens_before_gaps and is_before_gap:
                break
        row = row + 1
    return row


def examine_bodies(buf: Readable, stop: int, batches: Writable, capacity: int) -> int:
    """Set BODY of the rows before `stop` as far as `next_doubtful` will need it."""
    if capacity * C.BATCH_WIDTH > len(batches) or stop > capacity:
        raise ValueError("the table of batches is too small")
    source = buffer_access.bytes_in(buf)
    table = buffer_access.table_in(batches)
    size_of_buf = len(buf)
    for row in range(stop):
        start = table[C.POSITION * capacity + row]
        size = table[C.SIZE * capacity + row] - 61
        attributes = table[C.ATTRIBUTES * capacity + row]
        is_data = table[C.MAGIC * capacity + row] == 2 and not attributes & C.CONTROL_BIT
        if is_data and size >= 0 and 0 <= start <= size_of_buf - size - 61:
            table[C.BODY * capacity + row] = examined_body(source, start, size, table, capacity, row, stop)
    return 0


def compressed_valid(
    body: Readable, bounds: Readable, row: int, stop: int, batches: Readable, capacity: int
) -> int:
    """The first of the rows from `row` on whose records are not valid; `stop` if there is none. The body of the first row is
    body[bounds[0]:bounds[1]], that of the next one body[bounds[2]:bounds[3]]."""
    if (
        capacity * C.BATCH_WIDTH > len(batches)
        or row < 0
        or stop > capacity
        or 2 * (stop - row) > len(bounds)
    ):
        raise ValueError("the table of batches is too small")
    source = buffer_access.bytes_in(body)
    table = buffer_access.cells_in(batches)
    size_of_body = len(body)
    at = 0
    while row < stop:
        begin = bounds[at]
        end = bounds[at + 1]
        if not 0 <= begin <= end <= size_of_body:
            raise ValueError("a body lies outside the buffer")
        if table[C.MAGIC * capacity + row] != 2 or table[C.ATTRIBUTES * capacity + row] & C.CONTROL_BIT:
            break
        if not body_is_sound(source, begin, end, table, capacity, row):
            break
        at = at + 2
        row = row + 1
    return row
