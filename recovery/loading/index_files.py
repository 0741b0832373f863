"""The side files of one segment, as a broker handles them during log loading.

Offset and time index (Kafka: AbstractIndex, LazyIndex): a file is opened on first use. A missing one is then created at its full
size; in an existing one every complete slot counts as an entry. Entries and file length are separate: `reset` drops the entries
and gives the file its full size, `resize` changes the length (and throws when the entries do not fit), `trim` truncates it to the
entries. Bytes after the entries (dropped entries, zeros) remain in the file until it is trimmed.

Transaction index (Kafka: TransactionIndex): opened when it exists, created with its first entry, appended to regardless of the
content of the file. Last offsets must increase, but only those appended since it was opened or reset are compared.
"""

import struct
from functools import lru_cache
from typing import Generic, TypeVar

from kseg.recovery.loading.kafka_exceptions import ILLEGAL_ARGUMENT, KAFKA, BrokerException
from kseg.recovery.loading.load_state import LoadState
from kseg.segment import layout as L
from kseg.segment.sidecar.index import OffsetIndex, TimeIndex, TimeIndexEntry
from kseg.segment.sidecar.txn_index import CURRENT_VERSION, AbortedTxn, TxnIndex, encode_aborted

_TIME_SLOT = struct.Struct(">qi")
_CLOSED = "trimmed to its entries, as on a clean shutdown"

I = TypeVar("I", OffsetIndex, TimeIndex)


@lru_cache(maxsize=4)
def _zeros(count: int) -> bytes:
    """The content of an index before its first entry. kseg never writes these megabytes, so one shared object per size is enough."""
    return bytes(count)


class IndexFile(Generic[I]):
    """An offset or time index. kind: its reader. max_bytes: Kafka's segment.index.bytes."""

    def __init__(
        self,
        load_state: LoadState,
        name: str,
        base_offset: int,
        max_bytes: int,
        kind: type[I],
        slot_bytes: int,
    ) -> None:
        self.name = name
        self.base_offset = base_offset
        self._load_state = load_state
        self._kind: type[I] = kind
        self._slot_bytes = slot_bytes
        self._full_bytes = max_bytes // slot_bytes * slot_bytes
        self._is_open = False
        self._is_as_found = False  # no entry was added or dropped since the file was opened
        self._raw: memoryview | bytes = b""
        self._entries: memoryview | bytes = b""
        self._reader: I | None = None
        self._length_bytes = 0

    @property
    def exists(self) -> bool:
        return self.name in self._load_state.image or self.name in self._load_state.folders

    @property
    def reader(self) -> I:
        """The entries. Opens the file if it is not open."""
        self.open()
        if self._reader is None:
            self._reader = self._kind(self._entries, self.base_offset, as_kafka=True)
        return self._reader

    def open(self) -> None:
        """Open or create the file, as a broker does at the first access."""
        if self._is_open:
            return
        self._is_open = True
        if self.name not in self._load_state.image:
            self._length_bytes = self._full_bytes
            self._load_state.write(self.name, _zeros(self._full_bytes), "created because it was missing")
            return
        self._length_bytes = self._load_state.size_bytes(self.name)
        if self._length_bytes > L.INT32_MAX:
            raise BrokerException(ILLEGAL_ARGUMENT, f"{self.name} is too large to map")
        self._raw = self._load_state.view(self.name)
        self._set_entries(self._raw[: self._length_bytes // self._slot_bytes * self._slot_bytes])
        self._is_as_found = True

    def open_if_visible(self) -> None:
        """Open the file if it is missing or its length is not a whole number of slots; opening any
        other file has no visible effect."""
        is_file = self.name in self._load_state.image
        if not self.exists or (is_file and self._load_state.size_bytes(self.name) % self._slot_bytes):
            self.open()

    def reset(self) -> None:
        """Drop the entries and give the file its full size."""
        self.open()
        self._set_entries(b"")
        self.resize_to_full()

    def replace_entries(self, entries: bytes) -> None:
        """Replace all entries and keep the file length."""
        self._set_entries(entries)

    def truncate_to(self, offset: int) -> None:
        """Remove the entries at and above `offset`."""
        self._set_entries(self.reader.truncate_to(offset))

    def resize_to_full(self) -> None:
        self._resize(self._full_bytes)

    def trim(self) -> None:
        self._resize(len(self._entries))

    def resize_to_nothing(self) -> None:
        """Create an empty time index, as a load does if it is missing."""
        self.open()
        self._resize(0)
        self.write_back("created empty because it was missing")

    def close(self) -> None:
        if self._is_open:
            self.trim()
            self.write_back(self._load_state.why.get(self.name, _CLOSED))

    def finish(self, why: str) -> None:
        """Trim and close the file; the next access opens it again."""
        self.trim()
        self.write_back(why)
        self._is_open = False
        self._raw = b""
        self._set_entries(b"")

    def write_back(self, why: str) -> None:
        """Write the bytes that the broker's file has at this point."""
        if not self._is_open:
            return
        size = self._load_state.size_bytes(self.name) if self.exists else 0
        if self._is_as_found and self._length_bytes <= size:
            if self._length_bytes < size:
                self._load_state.truncate(self.name, self._length_bytes, why)
            return
        rest = self._raw[len(self._entries) : self._length_bytes]
        zeros = self._length_bytes - len(self._entries) - len(rest)
        self._load_state.write(self.name, bytes(self._entries) + bytes(rest) + bytes(zeros), why)

    def _set_entries(self, entries: memoryview | bytes) -> None:
        self._entries = entries
        self._is_as_found = False
        self._reader = None

    def _resize(self, size_bytes: int) -> None:
        self.open()
        if size_bytes == self._length_bytes:
            return
        if size_bytes < len(self._entries):
            sentence = f"{self.name} has {len(self._entries)} bytes of entries, but segment.index.bytes allows {size_bytes}"
            raise BrokerException(ILLEGAL_ARGUMENT, sentence)
        self._length_bytes = size_bytes

    @property
    def has_room(self) -> bool:
        return self._length_bytes - len(self._entries) >= self._slot_bytes

    def _append(self, slot: bytes) -> None:
        self._set_entries(bytes(self._entries) + slot)


def offset_index_file(
    load_state: LoadState, name: str, base_offset: int, max_bytes: int
) -> IndexFile[OffsetIndex]:
    return IndexFile(load_state, name, base_offset, max_bytes, OffsetIndex, L.OFFSET_INDEX_ENTRY)


class TimeIndexFile(IndexFile[TimeIndex]):
    def __init__(self, load_state: LoadState, name: str, base_offset: int, max_bytes: int) -> None:
        super().__init__(load_state, name, base_offset, max_bytes, TimeIndex, L.TIME_INDEX_ENTRY)

    def append_at_close(self, entry: TimeIndexEntry) -> None:
        """Append the largest timestamp if it is greater than that of the last entry. If the append fails, the entry is left out (Kafka:
        LogSegment.close swallows the exception)."""
        last = self.reader.last_entry
        if entry.timestamp_ms <= last.timestamp_ms or not self.has_room:
            return
        relative = L.as_int64(entry.offset - self.base_offset)  # offsets beyond 2^63 wrap around, as in Java
        if (self.reader.entries and entry.offset < last.offset) or not 0 <= relative <= L.INT32_MAX:
            return
        self._append(_TIME_SLOT.pack(entry.timestamp_ms, relative))


class TxnIndexFile:
    def __init__(self, load_state: LoadState, name: str, base_offset: int) -> None:
        self.name = name
        self.base_offset = base_offset
        self._load_state = load_state
        self._is_open = name in load_state.image
        self._last_offset: int | None = None
        self._appended = bytearray()

    def is_sane(self) -> bool:
        """The sanity check of every load; False means that the segment must be recovered. Raises BrokerException for an unknown version."""
        if not self._is_open:
            return True
        for slot, entry in enumerate(TxnIndex(self._load_state.view(self.name), self.base_offset)):
            if entry.version_as_kafka > CURRENT_VERSION:
                sentence = f"entry {slot} of {self.name} has the unknown version {entry.version_as_kafka}"
                raise BrokerException(KAFKA, sentence)
            if entry.last_offset < self.base_offset:
                return False
        return True

    def reset(self) -> None:
        if self._is_open:
            self._load_state.write(self.name, b"", "emptied before it is rebuilt from the log")
        self._last_offset = None

    def append(self, entries: list[AbortedTxn]) -> None:
        """Add entries; raises BrokerException when last offsets do not increase. `write_back` writes them."""
        for entry in entries:
            if self._last_offset is not None and entry.last_offset <= self._last_offset:
                sentence = (
                    f"{self.name}: an abort at offset {entry.last_offset} follows one at {self._last_offset}"
                )
                raise BrokerException(ILLEGAL_ARGUMENT, sentence)
            self._last_offset = entry.last_offset
            self._appended += encode_aborted(entry)

    def write_back(self) -> None:
        """Write the appended entries to the file."""
        if self._appended:
            before = bytes(self._load_state.view(self.name)) if self.name in self._load_state.image else b""
            self._is_open = True
            self._load_state.write(self.name, before + self._appended, "rebuilt from the markers in the log")
            self._appended.clear()

    def truncate_to(self, offset: int) -> None:
        if not self._is_open:
            return
        view = self._load_state.view(self.name)
        kept = TxnIndex(view, self.base_offset).truncate_to(offset)
        if len(kept) < len(view):
            self._load_state.write(
                self.name, bytes(kept), f"entries at and above offset {offset} are removed"
            )
            self._last_offset = None

    def forget_file(self) -> None:
        """For a segment that was created under another name: a file of this name is opened only when an entry is written."""
        self._is_open = False
