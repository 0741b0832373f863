"""Which offsets a span of damage stands for: one answer for everybody who names damage.

1. The headers tell, where they can be true: an entry begins where the damage begins, its length leads to the next entry
   or to the end of the damage, and the offsets of all of them rise between those of the batches around the damage. The
   last entry may be cut off, or have its length alone wrong. Then the range goes from the first offset of the first
   entry to the last offset of the last one, and the record counts of the headers add up.
2. Otherwise the neighbours tell: the range goes from after the batch before the damage (the base offset of the
   segment when there is none) to before the batch after it, or before the next segment. At the end of the log nobody
   knows the last offset, and nobody knows how many records there were.

After a cleaning offsets are missing without damage, so the neighbours alone would name too many. A damaged header is
believed, too, when its fields do not contradict what surrounds it. Control records are no records that a consumer sees
and are not counted. A compressed set of an old format does not say how many records it holds.
"""

from kseg.segment import header_tables as C
from kseg.segment import layout as L
from kseg.segment.crc import crc32c
from kseg.segment.header_tables import Columns
from kseg.segment.values import dataclass

# magic 2: where the fields are that tell which offsets a batch holds
_ATTRIBUTES, _LAST_DELTA, _PRODUCER_ID, _BASE_SEQUENCE, _COUNT = 21, 23, 43, 53, 57
_LEGACY_KEY = (18, 26)  # magic 0 and 1: where the length of the key lies
_MAX_ENTRIES = 65_536


@dataclass(frozen=True, slots=True)
class LostRange:
    """first_offset … last_offset, None if unknown. records: that a consumer would see, None likewise."""

    first_offset: int | None
    last_offset: int | None
    records: int | None


UNKNOWN = LostRange(None, None, None)


@dataclass(frozen=True, slots=True)
class UnreadBatch:
    """A batch with a right checksum that consumers do not get as its header has it. content: its checksum and size. records: that
    it holds, of offsets up to last_offset, which may be above that of the header. given: that a consumer gets of them; both None if unknown. stops_reader: with an exception."""

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
    """How many records a consumer sees in these batches, by their headers; None where a compressed set does not say."""
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
    """The sum of two numbers of records; None when one of them is not known."""
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
    """The offsets and records that the damage position … stop has taken.

    lowest: the first offset that it can hold. upper: the first offset after it, None at the end of the log.
    intact_bytes: the length with which the entry at `position` is whole, when only its length is damaged. of_headers: the same bounds for
    what its headers claim, where these are wider.
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
        is_alone = offset == lowest and upper == offset + 1  # the batches around it leave no other offset
        if not is_alone and not _is_legacy(view, position, position + L.ENTRY_OVERHEAD + size):
            return None
        return _legacy_entry(head, offset, lowest, upper, L.ENTRY_OVERHEAD + size)
    if len(head) < L.BATCH_HEADER:
        return None
    delta = int.from_bytes(head[_LAST_DELTA : _LAST_DELTA + 4], "big", signed=True)
    count = int.from_bytes(head[_COUNT : _COUNT + 4], "big", signed=True)
    last = offset + delta
    if not 0 <= count <= delta + 1 or last < offset or last >= (L.INT64_MAX if upper is None else upper):
        return None
    if is_length_true and (count == 0) != (L.ENTRY_OVERHEAD + size == L.BATCH_HEADER):
        return None  # zeros in the place of the count
    is_control = int.from_bytes(head[_ATTRIBUTES : _ATTRIBUTES + 2], "big") & L.CONTROL_BIT
    is_control = is_control or (count == 1 and _has_producer_without_sequence(head))
    return L.ENTRY_OVERHEAD + size, (offset, last, 0 if is_control else count)


def _has_producer_without_sequence(head: memoryview) -> bool:
    """Whether a batch has a producer but no sequence, as only control batches do, each with one record; recognizes them even if the attributes are damaged."""
    producer_id = int.from_bytes(head[_PRODUCER_ID : _PRODUCER_ID + 8], "big", signed=True)
    return producer_id >= 0 and head[_BASE_SEQUENCE : _BASE_SEQUENCE + 4] == b"\xff" * 4


def _is_magic_altered(view: memoryview, position: int, end: int) -> bool:
    """Whether the entry is a valid batch of magic 2 apart from its magic byte, which the checksum does not cover."""
    if not position + L.BATCH_HEADER <= end <= len(view):
        return False
    stored = int.from_bytes(view[position + L.CRC_POSITION : position + L.CRC_POSITION + 4], "big")
    return crc32c(view[position + L.ATTRIBUTES_POSITION : end]) == stored


def _is_legacy(view: memoryview, position: int, end: int) -> bool:
    """Whether an entry of magic 0 or 1 has what such a message has: its key and value take up its length, as they do not where zeros are in the
    place of the header of a newer batch. A compressed set, and a message that is cut off, are believed."""
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
