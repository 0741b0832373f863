# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, annotation_typing=False
"""Whether every record of a batch is as it should be: the quick yes of `verify --deep`.

Nothing is written down about a record, which costs more than looking at it. A yes means all of this (fact sheet §2.3):

    the declared number of records, and then the body ends; each record uses exactly the bytes it declares
    lengths and header counts fit into what remains; header names are not null
    offsets rise and lie between the batch's base and last offset
    the greatest timestamp is the one that the header declares

A no only means that someone must look closely (`kernel.record_walk`, `kernel.verify_records`): odd but sound data, as timestamps
near the ends of their range, gets one too. Magic 2 without the control bit only. Bounds checks are off because every
position is compared with the end of the body before it is read.
"""

from kseg.segment.kernel import buffer_access


def headers_end(body, p, end, count):
    """Position behind `count` headers at p; −1 when they are not sound."""
    while count > 0:
        packed = buffer_access.varint(body, p, end)
        length = packed >> 4
        p = p + (packed & 15)
        if packed == 0 or length < 0 or length > end - p:
            return -1
        p = p + length
        packed = buffer_access.varint(body, p, end)
        length = packed >> 4
        p = p + (packed & 15)
        if packed == 0 or length > end - p:
            return -1
        if length > 0:
            p = p + length
        count = count - 1
    return p


def body_is_sound(body, p, body_end, batches, capacity, row):
    count = batches[5 * capacity + row]
    base = batches[3 * capacity + row]
    base_time = batches[9 * capacity + row]
    greatest = batches[10 * capacity + row] - base_time
    limit = 1
    limit = limit << 60
    if count < 1 or base < 0 or not -limit < base_time < limit or not -limit < greatest < limit:
        return 0
    most = batches[4 * capacity + row] - base
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

        packed = buffer_access.varint(body, p, end)
        p = p + (packed & 15)
        size = packed >> 4
        if packed == 0 or size > end - p:
            return 0
        if size > 0:
            p = p + size

        packed = buffer_access.varint(body, p, end)
        p = p + (packed & 15)
        size = packed >> 4
        if packed == 0 or size > end - p:
            return 0
        if size > 0:
            p = p + size

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
    # with LogAppendTime the batch's maximum is the time of every record
    if batches[6 * capacity + row] & 8:
        return 1
    return 1 if reached == greatest else 0


def plain_sound(buf, row, stop, batches, capacity):
    """The first of the rows from `row` on that is no uncompressed batch of sound records; `stop` when all are."""
    if capacity * 15 > len(batches) or row < 0 or stop > capacity:
        raise ValueError("the table of batches is too small")
    source = buffer_access.bytes_in(buf)
    table = buffer_access.cells_in(batches)
    size_of_buf = len(buf)
    while row < stop:
        start = table[row]
        size = table[capacity + row]
        if table[2 * capacity + row] != 2 or table[6 * capacity + row] & 39 or size < 61:
            break
        if start < 0 or start > size_of_buf - size:
            raise ValueError("a batch lies outside the buffer")
        if not body_is_sound(source, start + 61, start + size, table, capacity, row):
            break
        row = row + 1
    return row


def packed_sound(body, batches, capacity, row):
    """Whether the records in `body`, what the compressed batch `row` holds, are sound."""
    if capacity * 15 > len(batches) or row < 0 or row >= capacity:
        raise ValueError("the table of batches is too small")
    table = buffer_access.cells_in(batches)
    if table[2 * capacity + row] != 2 or table[6 * capacity + row] & 32:
        return 0
    return body_is_sound(buffer_access.bytes_in(body), 0, len(body), table, capacity, row)
