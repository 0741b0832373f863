"""Segments of a log during cleaning: as found on disk, or written by the previous round.

A segment made by a round stands for the original ones that it replaces (`origins`); its log is in a scratch file, its indexes are
small and kept in memory. What a broker knows of a segment without reading it is here as well: sizes of log and indexes,
modification time, the greatest timestamp, and the entries of its transaction index.
"""

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import field, fields

from kseg.change.apply.scratch_file import ScratchFile
from kseg.segment import layout as L
from kseg.segment.files import MappedFile, read_small
from kseg.segment.partition.names import segment_file_name
from kseg.segment.sidecar.txn_index import AbortedTxn, collect_aborted
from kseg.segment.values import dataclass

_MAX_OPEN = 64


@dataclass(frozen=True, slots=True)
class Origin:
    """One original segment. names: of its files in the directory, the log first; snapshot: of the producer snapshot with the same
    number, None when there is none."""

    base_offset: int
    names: tuple[str, ...]
    snapshot: str | None

    @property
    def log_name(self) -> str:
        return self.names[0]


@dataclass(frozen=True, slots=True)
class SideFiles:
    """Index files of a new segment. txn_index: empty when it has none."""

    offset_index: bytes
    time_index: bytes
    txn_index: bytes


@dataclass(slots=True, kw_only=True)
class CleanerSegment:
    """base_offset: from its name. path: of its log. size_bytes: without preallocated zeros. log: the scratch file of a new
    segment. index_bytes, time_index_bytes: of used entries. largest_timestamp_ms: as a broker knows it; the modification time
    if there is no timestamp. is_whole: every batch was verified. like: the file whose owner and mode new files get.
    joins_previous: it was split off the previous segment."""

    base_offset: int
    path: str
    size_bytes: int
    mtime_ms: int
    index_bytes: int
    time_index_bytes: int
    largest_timestamp_ms: int
    origins: tuple[Origin, ...]
    aborted: Sequence[AbortedTxn] = ()
    log: ScratchFile | None = None
    side_files: SideFiles | None = None
    is_whole: bool = False
    is_damaged: bool = False
    like: str = ""
    joins_previous: bool = False
    index_paths: tuple[str | None, str | None, str | None] = (None, None, None)
    file: MappedFile | None = field(default=None, compare=False)  # while it is open
    stays_open: bool = field(default=False, compare=False)

    @contextmanager
    def opened(self) -> Iterator[memoryview]:
        """The bytes of the log, without preallocated zeros."""
        if self.log is not None:
            yield self.log.view
            return
        if self.file is None:
            self.file = MappedFile(self.path)
        try:
            with self.file.view[: self.size_bytes] as view:
                yield view
        finally:
            if not self.stays_open:
                self.close()

    def close(self) -> None:
        """Close the file of a log that was found on disk."""
        if self.file is not None:
            self.file.close()
            self.file = None

    def __getstate__(self) -> object:
        """A copy for another process, which opens the file itself."""
        state = {each.name: getattr(self, each.name) for each in fields(self)}
        return None, state | {"file": None, "stays_open": False}

    @property
    def name(self) -> str:
        """Name of the log file, existing or planned."""
        return segment_file_name(self.base_offset, L.LOG_SUFFIX)

    def stored_side_files(self) -> SideFiles | None:
        """Its index files on disk; None if one that every segment has is missing."""
        if self.side_files is not None:
            return self.side_files
        offset_index, time_index, txn_index = self.index_paths
        if offset_index is None or time_index is None:
            return None
        return SideFiles(
            read_small(offset_index),
            read_small(time_index),
            b"" if txn_index is None else read_small(txn_index),
        )


@contextmanager
def kept_open(segments: Sequence[CleanerSegment]) -> Iterator[None]:
    """Map the file of each of these segments once instead of once per pass, as far as file descriptors suffice."""
    kept = segments[:_MAX_OPEN]
    for segment in kept:
        segment.stays_open = True
    try:
        yield
    finally:
        for segment in kept:
            segment.stays_open = False
            segment.close()


def floor_at(segments: Sequence[CleanerSegment], offset: int) -> int:
    """The index of the segment with the greatest base offset not above `offset`; −1 when all begin above it."""
    return bisect_right(segments, offset, key=lambda segment: segment.base_offset) - 1


def between(segments: Sequence[CleanerSegment], from_offset: int, to_offset: int) -> list[CleanerSegment]:
    """The segments that can contain the range: from the floor of its start (Kafka: LogSegments.values)."""
    if from_offset >= to_offset:
        return []
    first = max(0, floor_at(segments, from_offset))
    return [segment for segment in segments[first:] if segment.base_offset < to_offset]


def aborted_in(
    segments: Sequence[CleanerSegment], log_start_offset: int, from_offset: int, to_offset: int
) -> list[AbortedTxn]:
    """The aborted transactions that a broker's cleaner assumes for a range: a superset, since it compares markers with the log
    start and not with the start of the range (Kafka: LocalLog.collectAbortedTransactions)."""
    first = floor_at(segments, from_offset)
    return aborted_from(segments[first:] if first >= 0 else (), log_start_offset, to_offset)


def aborted_from(
    segments: Iterable[CleanerSegment], log_start_offset: int, to_offset: int
) -> list[AbortedTxn]:
    """The same for a range that begins with the first of `segments`, from which those without aborted transactions may be left out."""
    found: list[AbortedTxn] = []
    for segment in segments:
        search = collect_aborted(segment.aborted, log_start_offset, to_offset)
        found.extend(search.aborted)
        if search.is_complete:
            break
    return found
