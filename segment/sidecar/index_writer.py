"""Offset index and time index of a segment: writing (fact sheet §4.1, §4.2, §4.4; the counterpart of `index`).

A builder accepts entries one by one under the rules of the broker's append (Kafka: OffsetIndex.append, TimeIndex.maybeAppend): keys
increase, a relative offset fits 31 bits, and the index is full at a given size. The last slot of a time index is reserved for the entry
that is added when the segment is closed. An entry that breaks a rule raises FormatError: readers would reject such a file.
"""

import struct
from abc import ABC, abstractmethod
from typing import ClassVar

from kseg.segment import layout as L
from kseg.segment.errors import FormatError
from kseg.segment.sidecar.index import TimeIndexEntry

_OFFSET_SLOT = struct.Struct(">ii")
TIME_SLOT = struct.Struct(">qi")


def can_index_offset(offset: int, base_offset: int) -> bool:
    """Whether an offset can be written relative to `base_offset`; if not, its batch needs another segment. Near 2^63 a broker's
    subtraction overflows."""
    return 0 <= L.as_int64(offset - base_offset) <= L.INT32_MAX


def _relative(offset: int, base_offset: int) -> int:
    if not can_index_offset(offset, base_offset):
        raise FormatError(f"offset {offset} is too far from the base offset {base_offset} for an index entry")
    return L.as_int64(offset - base_offset)


class _IndexBuilder(ABC):
    """The common part of both builders: slots in the format of the file. max_bytes: Kafka's segment.index.bytes; whole slots of it are
    usable. entries: written so far."""

    _SLOT: ClassVar[struct.Struct]

    def __init__(self, base_offset: int, max_bytes: int = L.DEFAULT_SEGMENT_INDEX_BYTES) -> None:
        self.base_offset = base_offset
        self.max_entries = max_bytes // self._SLOT.size
        self._data = bytearray()

    def resume(self, data: bytes) -> None:
        """Continue after the entries of a valid file of whole slots without a zero tail."""
        self._data.clear()
        self.extend(data, len(data) // self._SLOT.size)

    def extend(self, slots: bytes | bytearray, count: int) -> None:
        """Add the first `count` slots as stored in a file, each of which the builder would accept as an entry."""
        if count:
            end = count * self._SLOT.size
            self._data += slots[:end]
            self._note_last(*self._SLOT.unpack_from(slots, end - self._SLOT.size))

    @abstractmethod
    def _note_last(self, first: int, second: int, /) -> None:
        """Take over the fields of the last slot."""

    def _absolute(self, relative: int) -> int:
        return L.as_int64(self.base_offset + relative)

    @property
    def entries(self) -> int:
        return len(self._data) // self._SLOT.size

    def to_bytes(self, *, preallocate: bool = False) -> bytes:
        """The file. preallocate: with its full size and a zero tail, as of an active segment."""
        tail = self._SLOT.size * self.max_entries - len(self._data) if preallocate else 0
        return bytes(self._data) + bytes(max(0, tail))


class OffsetIndexBuilder(_IndexBuilder):
    """An offset index being written. last_offset: of the last entry, the base offset while there is none."""

    _SLOT = _OFFSET_SLOT

    def __init__(self, base_offset: int, max_bytes: int = L.DEFAULT_SEGMENT_INDEX_BYTES) -> None:
        super().__init__(base_offset, max_bytes)
        self.last_offset = base_offset

    def _note_last(self, relative: int, position: int) -> None:
        self.last_offset = self._absolute(relative)

    @property
    def is_full(self) -> bool:
        return self.entries >= self.max_entries

    def append(self, offset: int, position: int) -> None:
        """Add an entry. Raises FormatError if the index is full, the offset does not increase or is too far
        from the base offset, or the position is not an int32."""
        if self.is_full:
            raise FormatError(f"the offset index is full with {self.entries} entries")
        if self.entries and offset <= self.last_offset:
            raise FormatError(f"offset {offset} is not greater than {self.last_offset}, the last one indexed")
        if not 0 <= position <= L.INT32_MAX:
            raise FormatError(f"position {position} does not fit an index entry")
        self._data += _OFFSET_SLOT.pack(_relative(offset, self.base_offset), position)
        self.last_offset = offset


class TimeIndexBuilder(_IndexBuilder):
    """A time index being written. last_entry: the last one written, (-1, base offset) while there is none."""

    _SLOT = TIME_SLOT

    def __init__(self, base_offset: int, max_bytes: int = L.DEFAULT_SEGMENT_INDEX_BYTES) -> None:
        super().__init__(base_offset, max_bytes)
        self.last_entry = TimeIndexEntry(L.NO_TIMESTAMP, base_offset)

    def _note_last(self, timestamp_ms: int, relative: int) -> None:
        self.last_entry = TimeIndexEntry(timestamp_ms, self._absolute(relative))

    @property
    def is_full(self) -> bool:
        return self.entries >= self.max_entries - 1

    def maybe_append(self, timestamp_ms: int, offset: int, *, skip_full_check: bool = False) -> bool:
        """Add an entry if its timestamp is greater than the last one's; returns whether it was added.

        skip_full_check: for the entry at the close of a segment, which may use the reserved slot. Raises
        FormatError if the index is full, or the offset or the timestamp decreases, or the offset is too far.
        """
        last = self.last_entry
        if not skip_full_check and self.is_full:
            raise FormatError(f"the time index is full with {self.entries} entries")
        if self.entries and offset < last.offset:
            raise FormatError(f"offset {offset} is less than {last.offset}, the last one in the time index")
        if self.entries and timestamp_ms < last.timestamp_ms:
            raise FormatError(
                f"timestamp {timestamp_ms} is less than {last.timestamp_ms}, the last one indexed"
            )
        if timestamp_ms <= last.timestamp_ms:
            return False
        if timestamp_ms > L.INT64_MAX:
            raise FormatError(f"timestamp {timestamp_ms} does not fit an index entry")
        self._data += TIME_SLOT.pack(timestamp_ms, _relative(offset, self.base_offset))
        self.last_entry = TimeIndexEntry(timestamp_ms, offset)
        return True
