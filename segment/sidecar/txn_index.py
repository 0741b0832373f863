"""The index of aborted transactions of a segment, `.txnindex` (fact sheet §4.3; KIP-98).

    0  version             int16 (0)
    2  producer_id         int64
   10  first_offset        int64, first offset of the transaction; may be in an earlier segment
   18  last_offset         int64, offset of the ABORT marker; strictly increases from entry to entry
   26  last_stable_offset  int64, its value after this abort
34 bytes per entry, no header, no checksum, never preallocated; the file is missing if nothing was aborted.

Kafka up to 4.3 reads the version as the single byte at position 0, newer versions as the int16. Entries of an unknown
version are read here by the known fields; `sanity_problem` reports that a broker fails on them. Kafka's readers omit
a partial entry at the end, and so does this one (`trailing_bytes`).
"""

import struct
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from kseg.segment import layout as L
from kseg.segment.errors import FormatError, UsageError
from kseg.segment.values import dataclass

CURRENT_VERSION = 0
_ENTRY = struct.Struct(">hqqqq")
assert _ENTRY.size == L.TXN_INDEX_ENTRY
_ENTRIES_PER_CHUNK = 1024


class AbortedTxn(NamedTuple):
    """One aborted transaction; offsets are absolute, `last_offset` is that of the marker."""

    version: int
    producer_id: int
    first_offset: int
    last_offset: int
    last_stable_offset: int

    @property
    def version_as_kafka(self) -> int:
        """The version that Kafka up to 4.3 sees and prints: the high byte, signed."""
        return self.version >> 8


@dataclass(frozen=True, slots=True)
class AbortedSearch:
    """The aborted transactions of a range of offsets. is_complete: no later segment can add to `aborted`."""

    aborted: tuple[AbortedTxn, ...]
    is_complete: bool


def collect_aborted(entries: Iterable[AbortedTxn], from_offset: int, to_offset: int) -> AbortedSearch:
    """The aborted transactions that overlap from_offset <= offset < to_offset; complete as soon as an entry's last
    stable offset reaches `to_offset` (Kafka: TransactionIndex.collectAbortedTxns)."""
    aborted = []
    for entry in entries:
        if entry.last_offset >= from_offset and entry.first_offset < to_offset:
            aborted.append(entry)
        if entry.last_stable_offset >= to_offset:
            return AbortedSearch(tuple(aborted), True)
    return AbortedSearch(tuple(aborted), False)


class TxnIndex:
    """A `.txnindex` file: `buffer` is the whole file (empty if it is missing), `base_offset` the number in its name.

    entries: number of whole entries. trailing_bytes: size of a partial entry after them.
    """

    def __init__(self, buffer: bytes | bytearray | memoryview, base_offset: int) -> None:
        self._view = memoryview(buffer).cast("B")
        self.base_offset = base_offset
        self.entries, self.trailing_bytes = divmod(len(self._view), _ENTRY.size)

    def __len__(self) -> int:
        return self.entries

    def __iter__(self) -> Iterator[AbortedTxn]:
        for first in range(0, self.entries, _ENTRIES_PER_CHUNK):
            end = min(first + _ENTRIES_PER_CHUNK, self.entries)
            chunk = self._view[first * _ENTRY.size : end * _ENTRY.size]
            yield from map(AbortedTxn._make, _ENTRY.iter_unpack(chunk))

    def entry(self, slot: int) -> AbortedTxn:
        """The entry in `slot`, 0 <= slot < entries; raises UsageError otherwise."""
        if not 0 <= slot < self.entries:
            raise UsageError(f"there is no entry {slot} in a transaction index of {self.entries} entries")
        return AbortedTxn._make(_ENTRY.unpack_from(self._view, slot * _ENTRY.size))

    def collect_aborted(self, from_offset: int, to_offset: int) -> AbortedSearch:
        """`collect_aborted` of this file alone."""
        return collect_aborted(self, from_offset, to_offset)

    def sanity_problem(self) -> str | None:
        """The reason for which Kafka would throw when it loads the segment, as text, or None: an entry whose marker is
        below the segment, or a version above 0 (as Kafka up to 4.3 reads it)."""
        for slot, entry in enumerate(self):
            if entry.version_as_kafka > CURRENT_VERSION:
                return f"entry {slot} has an unknown version {entry.version_as_kafka}"
            if entry.last_offset < self.base_offset:
                return f"entry {slot} ends at {entry.last_offset}, below the base offset {self.base_offset}"
        return None

    def truncate_to(self, offset: int) -> memoryview:
        """The bytes that remain if the log ends at `offset`: up to the first entry whose marker is not below it.

        A file without such an entry is kept whole, including a partial entry at its end (Kafka: truncateTo).
        """
        for slot, entry in enumerate(self):
            if entry.last_offset >= offset:
                return self._view[: slot * _ENTRY.size]
        return self._view


def encode_aborted(entry: AbortedTxn) -> bytes:
    """The 34 bytes of one entry; raises FormatError if a number does not fit its field."""
    try:
        return _ENTRY.pack(*entry)
    except struct.error as error:
        raise FormatError(f"{entry} does not fit a transaction index: {error}") from error


def encode_txn_index(entries: Iterable[AbortedTxn]) -> bytes:
    """The file with `entries`; raises FormatError if last offsets do not increase (Kafka: append)."""
    parts: list[bytes] = []
    last_offset: int | None = None
    for entry in entries:
        if last_offset is not None and entry.last_offset <= last_offset:
            raise FormatError(
                f"last offset {entry.last_offset} is not greater than {last_offset}, the one before"
            )
        last_offset = entry.last_offset
        parts.append(encode_aborted(entry))
    return b"".join(parts)
