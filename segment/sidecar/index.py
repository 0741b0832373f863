"""Offset index and time index of a segment: reading (fact sheet §4.1, §4.2, §4.4; KIP-33 for the time index).

    .index      slot of 8 bytes:    0 relative offset int32 · 4 position int32
    .timeindex  slot of 12 bytes:   0 timestamp ms int64 · 8 relative offset int32
No header, no checksum; a relative offset is relative to the base offset in the file name. Keys strictly increase.

The file of an active segment is preallocated, and after a crash (or in a copy taken from a running broker) its
used slots are followed by zeros. There are two views of it:

    used slots (default)   the zero tail is not an entry: an all-zero slot cannot follow a used one, because keys increase
    as_kafka=True          every whole slot is an entry, as in Kafka for an existing file, including damage

A file of exactly one all-zero slot has been trimmed, so its slot counts as used: it means (base, position 0), or
timestamp 0 at the base offset.

A lookup must not read the whole file: indexes are mapped, logs may be of any size. The end of the used slots
is found by binary search, assuming that zeros are only at the end (checks of the file use `as_kafka`), and a lookup
is Kafka's own search: try the last 8192 bytes of slots first, then the rest. Its probes determine the answer
if the slots are not sorted, so they are the same as Kafka's (AbstractIndex). `bytes_read` counts the bytes that were read.
"""

import struct
from abc import abstractmethod
from bisect import bisect_left
from collections.abc import Callable, Iterator
from typing import ClassVar, Generic, NamedTuple, Self, TypeVar

from kseg.segment import layout as L
from kseg.segment.errors import UsageError

_WARM_BYTES = 8192
_KEY_FIELD = 0  # lookups search for the first field of a slot


class OffsetIndexEntry(NamedTuple):
    """offset: absolute, in the log; which offset of its batch depends on the broker (fact sheet §4.1). position:
    byte position in the `.log` file at which a batch starts."""

    offset: int
    position: int


class TimeIndexEntry(NamedTuple):
    """No record up to `offset` (absolute) has a timestamp greater than `timestamp_ms`."""

    timestamp_ms: int
    offset: int


E = TypeVar("E", OffsetIndexEntry, TimeIndexEntry)


class _SlottedIndex(Generic[E]):
    """The common part of both indexes: slots in a buffer, the end of the used ones, and Kafka's search.

    buffer: the whole file. base_offset: from the file name. slots: number of whole slots by length. trailing_bytes: bytes after
    them. entries: number of used slots (all of them if as_kafka). bytes_read: by all methods so far. need: called with the range to be read
    in a buffer that is filled on demand.
    """

    _SLOT: ClassVar[struct.Struct]
    _OFFSET_FIELD: ClassVar[int]

    def __init__(
        self,
        buffer: bytes | bytearray | memoryview,
        base_offset: int,
        *,
        as_kafka: bool = False,
        need: Callable[[int, int], None] | None = None,
    ) -> None:
        self._need = need
        self._view = memoryview(buffer).cast("B")
        self.base_offset = base_offset
        self.slots, self.trailing_bytes = divmod(len(self._view), self._SLOT.size)
        self.bytes_read = 0
        self._used = self.slots if as_kafka else self._find_used_slots()

    @property
    def content(self) -> memoryview:
        """All bytes of the file."""
        if self._need is not None:
            self._need(0, len(self._view))
        return self._view

    @property
    def entries(self) -> int:
        return self._used

    @property
    def zero_tail_slots(self) -> int:
        """Whole slots after the used ones; always 0 if as_kafka."""
        return self.slots - self._used

    def __len__(self) -> int:
        return self._used

    def of_used_slots(self) -> Self:
        """The same index without its zero tail, even if that counted as entries before."""
        ends_used = not self.slots or any(
            self.content[(self.slots - 1) * self._SLOT.size :][: self._SLOT.size]
        )
        return (
            self
            if ends_used and self._used == self.slots
            else type(self)(self._view, self.base_offset, need=self._need)
        )

    def __iter__(self) -> Iterator[E]:
        """All entries in file order, sorted or not."""
        return map(self._entry_of, self.stored())

    def stored(self) -> Iterator[tuple[int, ...]]:
        """The fields of all entries in file order, as stored: with relative offsets."""
        used = self.content[: self._used * self._SLOT.size]
        self.bytes_read += len(used)
        return self._SLOT.iter_unpack(used)

    def entry(self, slot: int) -> E:
        """The entry in `slot`, 0 ≤ slot < entries; raises UsageError otherwise."""
        if not 0 <= slot < self._used:
            raise UsageError(f"there is no entry {slot} in an index of {self._used} entries")
        return self._entry_of(self._fields(slot))

    @property
    def last_entry(self) -> E:
        """The last entry; for an index without entries Kafka's default (that of a lookup below all entries)."""
        return self.entry(self._used - 1) if self._used else self._before_first()

    def slot_for(self, target: int) -> int:
        """The slot at which Kafka's search for the largest key ≤ target ends, -1 if there is none. The key is
        the offset, or the timestamp in ms."""
        return self._search(target, _KEY_FIELD)

    def lookup(self, target: int) -> E:
        """The entry with the largest key ≤ target; below all of them (base offset, position 0), or (-1, base
        offset) for a time index (Kafka: OffsetIndex.lookup, TimeIndex.lookup)."""
        slot = self.slot_for(target)
        return self._entry_of(self._fields(slot)) if slot >= 0 else self._before_first()

    def truncate_to(self, offset: int) -> memoryview:
        """The bytes of the file that remain if the log ends at `offset`: the entries with a smaller offset.

        Kafka finds the place by the same binary search over offsets (AbstractIndex.truncateTo); of several time index entries
        with the same offset it keeps those before the slot that the search finds.
        """
        slot = self._search(offset, self._OFFSET_FIELD)
        is_equal = slot >= 0 and self._value(slot, self._OFFSET_FIELD) == offset
        return self.content[: (slot if is_equal else slot + 1) * self._SLOT.size]

    @abstractmethod
    def _entry_of(self, fields: tuple[int, ...]) -> E: ...

    @abstractmethod
    def _before_first(self) -> E: ...

    def _fields(self, slot: int) -> tuple[int, ...]:
        self.bytes_read += self._SLOT.size
        if self._need is not None:
            self._need(slot * self._SLOT.size, (slot + 1) * self._SLOT.size)
        return self._SLOT.unpack_from(self._view, slot * self._SLOT.size)

    def _value(self, slot: int, field: int) -> int:
        value = self._fields(slot)[field]
        return self._absolute(value) if field == self._OFFSET_FIELD else value

    def _absolute(self, relative: int) -> int:
        """The offset of an entry; near 2^63 a broker's sum overflows."""
        offset = self.base_offset + relative
        return offset if offset <= L.INT64_MAX else L.as_int64(offset)

    def _find_used_slots(self) -> int:
        """Binary search for the first slot of the zero tail; a single probe if there is none."""
        if self.slots <= 1 or any(self._fields(self.slots - 1)):
            return self.slots
        low, high = 0, self.slots - 1  # slots below `low` are used, slots from `high` on are zero
        while low < high:
            middle = (low + high) // 2
            if any(self._fields(middle)):
                low = middle + 1
            else:
                high = middle
        return low

    def _search(self, target: int, field: int) -> int:
        if not self._used:
            return -1
        first_warm = max(0, self._used - 1 - _WARM_BYTES // self._SLOT.size)
        if self._value(first_warm, field) < target:
            return self._bisect(target, field, first_warm, self._used - 1)
        if self._value(0, field) > target:
            return -1
        return self._bisect(target, field, 0, first_warm)

    def _bisect(self, target: int, field: int, low: int, high: int) -> int:
        while low < high:
            middle = (low + high + 1) // 2
            found = self._value(middle, field)
            if found == target:
                return middle
            if found > target:
                high = middle - 1
            else:
                low = middle
        return low

    def sanity_problem(self) -> str | None:
        """The reason for which Kafka's sanityCheck would throw, as text, or None."""
        sanity_error = self.sanity_error()
        return sanity_error[1] if sanity_error is not None else None

    def sanity_error(self) -> tuple[str, str] | None:
        """The id and the text of the finding for which Kafka's sanityCheck would throw, or None."""
        if not self.trailing_bytes:
            return None
        words = f"the length of {len(self._view)} bytes is not a multiple of {self._SLOT.size}"
        return "index-bad-size", words

    def _below_base(self, last_offset: int) -> tuple[str, str]:
        words = f"the last offset {last_offset} is less than the base offset {self.base_offset}"
        return "index-below-base", words


class OffsetIndex(_SlottedIndex[OffsetIndexEntry]):
    """A `.index` file (Kafka: OffsetIndex)."""

    _SLOT = struct.Struct(">ii")
    _OFFSET_FIELD = 0

    def sanity_error(self) -> tuple[str, str] | None:
        """Kafka checks the last whole slot, used or not, and the length."""
        if self.slots:
            last_offset = self._value(self.slots - 1, self._OFFSET_FIELD)
            if last_offset < self.base_offset:
                return self._below_base(last_offset)
        return super().sanity_error()

    def slot_at(self, position: int, low: int = 0) -> int:
        """The first slot from `low` on whose entry points to `position` or after it, `entries` if there is none. Any slot
        if the positions are not sorted."""
        return bisect_left(range(self._used), position, low, key=lambda slot: self._fields(slot)[1])

    def _entry_of(self, fields: tuple[int, ...]) -> OffsetIndexEntry:
        return OffsetIndexEntry(self._absolute(fields[0]), fields[1])

    def _before_first(self) -> OffsetIndexEntry:
        return OffsetIndexEntry(self.base_offset, 0)


class TimeIndex(_SlottedIndex[TimeIndexEntry]):
    """A `.timeindex` file (Kafka: TimeIndex)."""

    _SLOT = struct.Struct(">qi")
    _OFFSET_FIELD = 1

    def sanity_error(self) -> tuple[str, str] | None:
        """Kafka compares the last whole slot with the first, used or not: a zero tail after entries is a problem."""
        if self.slots:
            last_timestamp, last_relative = self._fields(self.slots - 1)
            first_timestamp = self._fields(0)[0]
            if last_timestamp < first_timestamp:
                kind = "time-index-out-of-order" if last_timestamp or last_relative else "index-zero-tail"
                words = (
                    f"the last timestamp {last_timestamp} is less than the first timestamp {first_timestamp}"
                )
                return kind, words
            last_offset = self._absolute(last_relative)
            if last_offset < self.base_offset:
                return self._below_base(last_offset)
        return super().sanity_error()

    def _entry_of(self, fields: tuple[int, ...]) -> TimeIndexEntry:
        return TimeIndexEntry(fields[0], self._absolute(fields[1]))

    def _before_first(self) -> TimeIndexEntry:
        return TimeIndexEntry(L.NO_TIMESTAMP, self.base_offset)


assert OffsetIndex._SLOT.size == L.OFFSET_INDEX_ENTRY
assert TimeIndex._SLOT.size == L.TIME_INDEX_ENTRY
