"""The damage in one 0.7 file, as runs of bytes: complete valid entries, damaged bytes, entries with a wrong magic."""

from collections.abc import Iterator

from kseg.segment.crc import crc32
from kseg.segment.files import MappedFile
from kseg.segment.kafka07.messages07 import HEADER_BYTES, Damage07, Entry07, walk
from kseg.segment.values import dataclass

CRC_BYTES = 4


@dataclass(frozen=True, slots=True)
class ValidBytes:
    """Consecutive valid entries. first_end: end of the first one; last_start: start of the last one (byte positions)."""

    position: int
    end_position: int
    entries: int
    first_end: int
    last_start: int


@dataclass(frozen=True, slots=True)
class DamagedBytes:
    """Bytes without a valid entry. kind: id of the first finding about them. entries: number of valid entries that are counted as
    damaged because no filler fits into the damaged bytes alone."""

    kind: str
    position: int
    end_position: int
    entries: int = 0

    @property
    def length(self) -> int:
        return self.end_position - self.position

    def offsets(self, base_offset: int) -> tuple[int | None, int | None]:
        """(first, last) offset lost with it; None for zeros at the end, which were never written."""
        if self.kind == "zero-tail":
            return None, None
        return base_offset + self.position, base_offset + self.end_position - 1


@dataclass(frozen=True, slots=True)
class WrongMagicEntry:
    """An entry with a wrong magic byte. Its checksum, which does not cover that byte, matches once the byte is `magic`."""

    position: int
    end_position: int
    magic: int


Run = ValidBytes | DamagedBytes | WrongMagicEntry


def runs(file: MappedFile, limit: int | None = None, start: int = 0) -> Iterator[Run]:
    """All runs of a file from `start` (an entry boundary) on, in order. Adjacent entries of a kind form one run, except altered entries.

    limit: no entry may end after it; bytes there count as damage (another file begins at that offset).
    """
    view = file.view
    bound = len(view) if limit is None else limit
    run: Run | None = None
    for item in walk(view, start, extents=file.extents):
        found = _run_of(view, item, bound)
        joined = _joined(run, found)
        if joined is None and run is not None:
            yield run
        run = joined or found
    if run is not None:
        yield run


def _run_of(view: memoryview, item: Entry07 | Damage07, bound: int) -> Run:
    if isinstance(item, Entry07):
        if item.end_position > bound:
            return DamagedBytes("ancient-gap", item.position, item.end_position)
        if item.crc_valid:
            return ValidBytes(item.position, item.end_position, 1, item.end_position, item.position)
        return DamagedBytes("bad-crc", item.position, item.end_position)
    end_position = item.position + item.length
    if item.kind == "bad-magic" and end_position <= bound:
        magic = _true_magic(view[item.position : end_position])
        if magic is not None:
            return WrongMagicEntry(item.position, end_position, magic)
    return DamagedBytes(item.kind, item.position, end_position)


def _true_magic(entry: memoryview) -> int | None:
    """The magic with which the checksum of an entry matches."""
    for magic, header_bytes in HEADER_BYTES.items():
        if len(entry) >= header_bytes:
            stored = int.from_bytes(entry[header_bytes - CRC_BYTES : header_bytes], "big")
            if crc32(entry[header_bytes:]) == stored:
                return magic
    return None


def _joined(before: Run | None, found: Run) -> Run | None:
    if isinstance(before, ValidBytes) and isinstance(found, ValidBytes):
        entries = before.entries + found.entries
        return ValidBytes(before.position, found.end_position, entries, before.first_end, found.last_start)
    if isinstance(before, DamagedBytes) and isinstance(found, DamagedBytes):
        return DamagedBytes(before.kind, before.position, found.end_position, before.entries + found.entries)
    return None
