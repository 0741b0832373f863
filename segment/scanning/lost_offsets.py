"""Determine which offsets a span of damage has lost: one answer for every command that reports damage.

1. The headers in the damage, if they are plausible: an entry begins where the damage begins, its length leads to the next entry or to the
   end of the damage, and the offsets of all of them increase between those of the batches around the damage. The last entry may be
   truncated (also within its header, then its record count is unknown), or only its length may be wrong. Then the range is that from the
   first offset of the first entry to the last offset of the last one, and the record count is the sum of those in the headers.
2. Otherwise the adjacent batches: the range begins after the batch before the damage (at the base offset of the
   segment if there is none) and ends before the batch after it, or before the next segment. At the end of the log the
   last offset and the number of records are unknown.

After a cleaning offsets are missing without damage, so the adjacent batches alone would give too large a range. A damaged header
is used, too, if its fields do not contradict the adjacent batches. Where the number of offsets and that of records differ, the checksum
may prove that they were equal: then only one of these fields is altered. Control records are invisible to consumers
and are not counted. The header of a compressed set of an old format does not contain its number of records.
"""

from kseg.segment import header_tables as C
from kseg.segment import layout as L
from kseg.segment.crc import crc32c
from kseg.segment.header_tables import Columns
from kseg.segment.kernel.batch_walk import zero_run
from kseg.segment.values import dataclass

# magic 2: positions of the fields that determine the offsets of a batch
_ATTRIBUTES, _LAST_DELTA, _PRODUCER_ID, _BASE_SEQUENCE, _COUNT = 21, 23, 43, 53, 57
_LEGACY_KEY = (18, 26)  # magic 0 and 1: position of the length of the key
_MAX_ENTRIES = 65_536


@dataclass(frozen=True, slots=True)
class LostRange:
    """first_offset … last_offset, None if unknown. records: number visible to a consumer, None if unknown."""

    first_offset: int | None
    last_offset: int | None
    records: int | None


UNKNOWN = LostRange(None, None, None)


@dataclass(frozen=True, slots=True)
class UnreadBatch:
    """A batch with a valid checksum from which consumers do not get what its header declares. content: its checksum and size. records:
    number in it, with offsets up to last_offset, which may be above that of the header. given: number that a consumer gets; both None if
    unknown. stops_reader: the consumer throws an exception."""

    content: tuple[int, int]
    first_offset: int
    last_offset: int
    records: int | None
    given: int | None
    stops_reader: bool

    @property
    def lost(self) -> int | None:
        return None if self.records is None or self.given is None else max(0, self.records - self.given)


def records_of(table: Columns, first: int = 0, stop: int | None = None) -> int | None:
    """The number of records visible to a consumer in these batches, by their headers; None if one is a compressed set without a count."""
    stop = table.count if stop is None else stop
    records = 0
    for row in range(first, stop):
        count = table.at(C.COUNT, row)
        if count < 0:
            return None
        if table.at(C.MAGIC, row) < L.MAGIC_V2 or not table.at(C.ATTRIBUTES, row) & L.CONTROL_BIT:
            records += count
    return records


def plus(one: int | None, other: int | None) -> int | None:
    """The sum of two numbers of records; None if one is unknown."""
    return None if one is None or other is None else one + other


def lost_range(
    view: memoryview,
    position: int,
    stop: int,
    lowest: int,
    upper: int | None,
    intact_bytes: int | None,
    of_headers: tuple[int, int | None],
) -> LostRange:
    """The offsets and records lost in the damage position … stop.

    lowest: the first offset that it can contain. upper: the first offset after it, None at the end of the log.
    intact_bytes: the length with which the entry at `position` is valid, if only its length is damaged. of_headers: the same bounds for
    the headers in the damage, if these are wider.
    """
    found = _by_headers(view, position, stop, *of_headers, intact_bytes)
    if found is not None:
        return found
    last = None if upper is None else upper - 1
    if last is not None and last < lowest:
        return LostRange(None, None, 0)
    return LostRange(lowest, last, None)


def _by_headers(
    view: memoryview, position: int, stop: int, lowest: int, upper: int | None, intact_bytes: int | None
) -> LostRange | None:
    first = last = None
    records: int | None = 0
    for _ in range(_MAX_ENTRIES):
        entry = _entry_at(view, position, stop, lowest, upper, intact_bytes is None)
        if entry is None:
            return None
        length, (begin, last, count) = entry
        if first is None:
            first = begin
        records = plus(records, count)
        if intact_bytes is not None:
            length = intact_bytes
        position, lowest = position + length, last + 1
        if position == stop or (position > stop == len(view)):
            return LostRange(first, last, records)
        if position > stop:
            return None
    return None


def _entry_at(
    view: memoryview, position: int, stop: int, lowest: int, upper: int | None, is_length_true: bool
) -> tuple[int, tuple[int, int, int | None]] | None:
    """The entry's length and (first offset, last offset, records), if its header is plausible."""
    head = view[position : min(stop, position + L.BATCH_HEADER)]
    if len(head) <= L.MAGIC_POSITION:
        return None
    offset = int.from_bytes(head[:8], "big", signed=True)
    size = int.from_bytes(head[8:12], "big", signed=True)
    magic = head[L.MAGIC_POSITION]
    if magic != L.MAGIC_V2 and _is_magic_altered(view, position, position + L.ENTRY_OVERHEAD + size):
        magic = L.MAGIC_V2
    if size < L.MIN_LEGACY_SIZE_FIELD or magic > L.MAGIC_V2 or offset < lowest:
        return None
    if magic < L.MAGIC_V2:
        if _is_zero(view, position + L.MAGIC_POSITION, min(stop, position + L.ENTRY_OVERHEAD + size)):
            return None  # zeros instead of the magic byte and all that follows it
        if not _is_legacy(view, position, position + L.ENTRY_OVERHEAD + size):
            # the adjacent batches leave room for no other offset; with zeros over its header a transaction marker would look like this
            is_alone = offset == lowest and upper == offset + 1
            return (L.ENTRY_OVERHEAD + size, (offset, offset, None)) if is_alone else None
        return _legacy_entry(head, offset, lowest, upper, L.ENTRY_OVERHEAD + size)
    written = _written(view, position, stop, head)
    if len(head) < L.BATCH_HEADER:
        return _cut_entry(head, written, offset, L.ENTRY_OVERHEAD + size, upper)
    delta = int.from_bytes(head[_LAST_DELTA : _LAST_DELTA + 4], "big", signed=True)
    count = int.from_bytes(head[_COUNT : _COUNT + 4], "big", signed=True)
    # the log was cleaned, or one of the two fields was altered
    if count != delta + 1:
        delta, count = _proved(view[position:stop], L.ENTRY_OVERHEAD + size, delta, count)
    last = offset + delta
    if not 0 <= count <= delta + 1 or last < offset or last >= (L.INT64_MAX if upper is None else upper):
        return None
    if is_length_true and (count == 0) != (L.ENTRY_OVERHEAD + size == L.BATCH_HEADER):
        # zeros instead of the count
        return (
            _cut_entry(head, written, offset, L.ENTRY_OVERHEAD + size, upper)
            if written < _COUNT + 4
            else None
        )
    is_control = int.from_bytes(head[_ATTRIBUTES : _ATTRIBUTES + 2], "big") & L.CONTROL_BIT
    is_control = is_control or (count == 1 and _has_producer_without_sequence(head))
    return L.ENTRY_OVERHEAD + size, (offset, last, 0 if is_control else count)


def _written(view: memoryview, position: int, stop: int, head: memoryview) -> int:
    """How many bytes of the header of the last entry were written, at least: a file system may have added zeros after a crash."""
    if len(head) < L.BATCH_HEADER and stop != len(view):
        return 0
    if len(head) == L.BATCH_HEADER and (
        head[_COUNT:].tobytes().strip(b"\0") or not _is_zero(view, position + L.BATCH_HEADER, stop)
    ):
        return L.BATCH_HEADER
    return len(head.tobytes().rstrip(b"\0"))


def _is_zero(view: memoryview, start: int, end: int) -> bool:
    return zero_run(view, start, end) == end - start


def _cut_entry(
    head: memoryview, written: int, offset: int, length: int, upper: int | None
) -> tuple[int, tuple[int, int, int | None]] | None:
    """Parse a magic 2 batch whose header was cut short by a crash, if the remaining bytes contain its last offset delta. It is taken to
    have as many records as offsets (fewer if a cleaner has removed some); a transaction marker has none that a consumer sees."""
    if not written >= _LAST_DELTA + 4 or length <= L.BATCH_HEADER:
        return None
    delta = int.from_bytes(head[_LAST_DELTA : _LAST_DELTA + 4], "big", signed=True)
    last = offset + delta
    if delta < 0 or last >= (L.INT64_MAX if upper is None else upper):
        return None
    is_control = int.from_bytes(head[_ATTRIBUTES : _ATTRIBUTES + 2], "big") & L.CONTROL_BIT
    return length, (offset, last, 0 if is_control else None)


def _proved(damage: memoryview, size_bytes: int, delta: int, count: int) -> tuple[int, int]:
    """The last offset delta and the count of the batch at the beginning of the damage: as stored, or with one of them corrected if the
    checksum proves that it has to match the other."""
    if L.BATCH_HEADER <= size_bytes <= len(damage):
        stored = int.from_bytes(damage[L.CRC_POSITION : L.CRC_POSITION + 4], "big")
        covered = bytearray(damage[L.ATTRIBUTES_POSITION : size_bytes])
        for field, number in ((_LAST_DELTA, count - 1), (_COUNT, delta + 1)):
            at = field - L.ATTRIBUTES_POSITION
            found, covered[at : at + 4] = covered[at : at + 4], number.to_bytes(8, "big", signed=True)[4:]
            if crc32c(covered) == stored:
                return (count - 1, count) if field == _LAST_DELTA else (delta, delta + 1)
            covered[at : at + 4] = found
    return delta, count


def _has_producer_without_sequence(head: memoryview) -> bool:
    """Whether a batch has a producer but no sequence, as only control batches do, each with one record; recognizes them even if the
    attributes are damaged."""
    producer_id = int.from_bytes(head[_PRODUCER_ID : _PRODUCER_ID + 8], "big", signed=True)
    return producer_id >= 0 and head[_BASE_SEQUENCE : _BASE_SEQUENCE + 4] == b"\xff" * 4


def _is_magic_altered(view: memoryview, position: int, end: int) -> bool:
    """Whether the entry is a valid batch of magic 2 apart from its magic byte, which the checksum does not cover."""
    if not position + L.BATCH_HEADER <= end <= len(view):
        return False
    stored = int.from_bytes(view[position + L.CRC_POSITION : position + L.CRC_POSITION + 4], "big")
    return crc32c(view[position + L.ATTRIBUTES_POSITION : end]) == stored


def _is_legacy(view: memoryview, position: int, end: int) -> bool:
    """Whether an entry of magic 0 or 1 is consistent: key and value have the length of the message, which is not the case if zeros replace
    the header of a newer batch. A compressed set, and a truncated message, are accepted."""
    if end > len(view) or view[position + L.MAGIC_POSITION + 1] & L.CODEC_MASK:
        return True
    at = position + _LEGACY_KEY[view[position + L.MAGIC_POSITION]]
    for _ in range(2):
        if at + 4 > end:
            return False
        at += 4 + max(0, int.from_bytes(view[at : at + 4], "big", signed=True))
    return at == end


def _legacy_entry(
    head: memoryview, offset: int, lowest: int, upper: int | None, length: int
) -> tuple[int, tuple[int, int, int | None]] | None:
    """Parse a message or a compressed set, whose header has only the last offset."""
    if len(head) <= L.MAGIC_POSITION + 1 or offset >= (L.INT64_MAX if upper is None else upper):
        return None
    is_set = head[L.MAGIC_POSITION + 1] & L.CODEC_MASK
    return length, (lowest, offset, None) if is_set else (offset, offset, 1)
