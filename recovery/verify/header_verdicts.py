"""Check the batch headers of a part of a log: the findings of `verify` about base offsets, leader epochs and counts.

The CRC does not cover base offset and leader epoch, so a flipped bit there leaves a valid batch with wrong values; only
adjacent batches and side files can tell (`header_plausibility`). A part of a log is checked as `verify` checks all of it:

1. The walk starts a few batches before the part and ends a few batches after it, so that its first and its last batch
   have neighbours. Findings about these neighbours are left to the readers of the adjacent parts.
2. The evidence is that of `verify`: the offset index, the leader-epoch checkpoint, and for the last segment the last
   offsets that side files have.
3. A reader of the part need not compute the checksums again (`HeaderVerdicts.spans`).

Checks that need more than headers (indexes, producers, records) are left out.
"""

import os
from array import array
from bisect import bisect_left
from collections import deque
from collections.abc import Iterator
from contextlib import ExitStack
from functools import lru_cache

from kseg.recovery.verify import partition_files
from kseg.recovery.verify.chain import Chain
from kseg.recovery.verify.header_plausibility import HeaderContext, PreviousBatch, SideFileEvidence, no_index
from kseg.recovery.verify.index_check import IndexContext, OffsetIndexCheck
from kseg.recovery.verify.totals import Totals
from kseg.segment import header_tables as C
from kseg.segment import layout as L
from kseg.segment.diagnosis import AlteredBaseOffset
from kseg.segment.errors import FormatError, UnreadableInput, cannot_read
from kseg.segment.files import MappedFile
from kseg.segment.findings import Finding
from kseg.segment.header_tables import Columns
from kseg.segment.kernel import state_fields as S
from kseg.segment.kernel import verify_records
from kseg.segment.kernel.batch_walk import walk
from kseg.segment.partition.bounds import Bounds
from kseg.segment.partition.directory import PartitionDirectory, SegmentFiles, list_partition
from kseg.segment.partition.log_dir_state import read_log_dir_state
from kseg.segment.scanning.damage import Damage
from kseg.segment.scanning.scan import Scanner
from kseg.segment.sidecar.leader_epochs import EpochHistory
from kseg.segment.storage import places
from kseg.segment.values import dataclass

NEIGHBOURS = 4  # number of index entries before a part, and of batches after it, that are included
MAX_WALKED_BYTES = 4 * 1024 * 1024  # from the start of a log if the index does not help
# findings that mean that the records of a batch do not really have the offsets that its header gives
MISPLACED = frozenset(
    {"altered-base-offset", "offset-not-monotonic", "offset-below-segment", "offset-overflow"}
)
Span = tuple[int, int]


@dataclass(frozen=True, slots=True)
class HeaderVerdicts:
    """findings: about batches of the part, in the order in which they were made. misplaced: positions of the batches
    whose offsets, according to them, are wrong. spans: bytes found valid, for `segment.scanning.prevalidated`."""

    findings: tuple[Finding, ...] = ()
    misplaced: frozenset[int] = frozenset()
    spans: tuple[Span, ...] = ()


@dataclass(frozen=True, slots=True)
class _DirectoryEvidence:
    """What the directory of a log contributes to the check."""

    directory: PartitionDirectory
    evidence: SideFileEvidence


def check_headers(path: str, base_offset: int, start: int = 0, stop: int | None = None) -> HeaderVerdicts:
    """Findings about the headers of the batches from position `start` to before `stop` (None: to the end of the file).

    start and stop are where batches begin. Raises UnreadableInput.
    """
    with ExitStack() as stack:
        file = stack.enter_context(MappedFile(path))
        context, index = _context(stack, path, base_offset, is_first_part=start == 0)
        begin = _start_before(file.view, start, index) if start else 0
        return _LogPart(file, context, (begin, start, stop)).verdicts()


def concerns(finding: Finding, bounds: Bounds) -> bool:
    """Whether a finding of `check_headers` means that records within `bounds` may be wrong or missing."""
    first, last = finding.first_offset, finding.last_offset
    if first is None or last is None:
        return True
    claims = [first]
    if isinstance(finding.diagnosis, AlteredBaseOffset):
        claims.append(finding.diagnosis.found)
    return any(each < bounds.to_offset and each + last - first >= bounds.from_offset for each in claims)


class _LogPart:
    """part: (position where the walk begins, start of the part, end of the part, exclusive)."""

    def __init__(self, file: MappedFile, context: HeaderContext, part: tuple[int, int, int | None]) -> None:
        self._view, self._context = file.view, context
        self._begin, self._start, self._stop = part
        self._scanner = Scanner.over(file, context.base_offset, next_base=lambda: context.next_base)
        self._chain = Chain(context)
        self._spans: list[Span] = []
        self._sums = memoryview(array("q", bytes(8 * S.SUM_WIDTH)))

    def verdicts(self) -> HeaderVerdicts:
        findings = tuple(finding for finding in self._findings() if self._is_ours(finding))
        misplaced = frozenset(
            finding.position
            for finding in findings
            if finding.id in MISPLACED and finding.position is not None and finding.path == self._context.path
        )
        return HeaderVerdicts(findings, misplaced, tuple(self._spans))

    def _is_ours(self, finding: Finding) -> bool:
        # about the last batch of the previous segment, which was checked without the next batch
        if finding.path != self._context.path:
            return self._start == 0
        position = finding.position or 0
        return self._start <= position and (self._stop is None or position < self._stop)

    def _findings(self) -> Iterator[Finding]:
        chain, size = self._chain, len(self._view)
        until = size if self._stop is None else _end_after(self._view, self._stop, NEIGHBOURS)
        for item in self._scanner.blocks(self._begin, None, until):
            if isinstance(item, Damage):
                yield from chain.close_before(item)
                self._sums[S.SUM_CONTIGUOUS] = 0
            else:
                self._note_valid(item)
                yield from chain.feed(item)
            self._carry()
        # not the end of the log: without the batches that follow, only side files could judge the last ones here
        if until < size:
            return
        # a walk over part of a segment does not know whether there are gaps before it
        is_gapless = not self._sums[S.SUM_GAPS] and not self._sums[S.SUM_CLEANED]
        chain.rows.is_gapless = is_gapless and self._start == 0
        yield from chain.close()

    def _carry(self) -> None:
        table = self._chain.table
        verify_records.tally(table.cells, table.capacity, 0, self._chain.ready, L.INT64_MAX, self._sums)
        self._chain.carry()

    def _note_valid(self, table: Columns) -> None:
        """Record valid spans, but only of batches that a reader from `start` on reaches."""
        positions = table.column(C.POSITION)
        row = bisect_left(positions, self._start)
        if row == table.count or (not self._spans and positions[row] != self._start):
            return
        first, end = positions[row], positions[-1] + table.at(C.SIZE, table.count - 1)
        if self._spans and self._spans[-1][1] == first:
            first = self._spans.pop()[0]
        self._spans.append((first, end))


def _start_before(view: memoryview, start: int, index: OffsetIndexCheck | None) -> int:
    """The position of a batch some batches before the one at `start`; `start` itself when no walk leads there."""
    entries = [] if index is None else index.last_positions(start, NEIGHBOURS)
    if len(entries) < NEIGHBOURS and start <= MAX_WALKED_BYTES:
        entries = [0, *entries]
    return next((entry for entry in entries if _leads_to(view, entry, start)), start)


def _leads_to(view: memoryview, position: int, start: int) -> bool:
    """Whether a walk over batch lengths from `position`, which may come from a damaged index, reaches `start`."""
    if position < 0:
        return False
    table = Columns(C.BATCH_WIDTH, 256)
    state = memoryview(array("q", [position, 0]))
    while state[S.BATCHES_END] < start:
        walk(view, len(view), table.cells, table.capacity, state, start)
        if not state[S.BATCHES_COUNT]:
            break
    return state[S.BATCHES_END] == start


def _end_after(view: memoryview, position: int, count: int) -> int:
    """The end position of the `count`th batch from `position` on; the end of the file if there are fewer."""
    table = Columns(C.BATCH_WIDTH, count)
    state = memoryview(array("q", [position, 0]))
    walk(view, len(view), table.cells, count, state, -1)
    return state[S.BATCHES_END] if state[S.BATCHES_COUNT] == count else len(view)


# --- the side files


def _context(
    stack: ExitStack, path: str, base_offset: int, *, is_first_part: bool
) -> tuple[HeaderContext, OffsetIndexCheck | None]:
    """The context of a log, and its offset index."""
    directory_evidence = _evidence_beside(path)
    segments = directory_evidence.directory.segments
    at = next((number for number, each in enumerate(segments) if each.log.path == path), None)
    if at is None:  # a file outside a log directory, or not a log of its directory, is checked alone
        return HeaderContext(path, base_offset, is_last=False, evidence=directory_evidence.evidence), None
    previous = (
        _last_batch(segments[at - 1], base_offset, directory_evidence.evidence)
        if at and is_first_part
        else None
    )
    index = _index_of(stack, segments[at])
    context = HeaderContext(
        path,
        base_offset,
        None if at + 1 == len(segments) else segments[at + 1].base_offset,
        at + 1 == len(segments),
        L.NO_LEADER_EPOCH if previous is None else previous.epoch,
        previous,
        directory_evidence.evidence,
        no_index if index is None else index.offset_for,
    )
    return context, index


def _evidence_beside(path: str) -> _DirectoryEvidence:
    directory = os.path.dirname(path)
    try:
        changed_ns = places.stat(directory).st_mtime_ns
    except OSError as error:
        raise cannot_read(directory, error) from error
    return _directory_evidence(directory, changed_ns)


@lru_cache(maxsize=4)
def _directory_evidence(path: str, _changed_ns: int) -> _DirectoryEvidence:
    """The evidence in a directory, read once per process for all parts of a partition, and again when files were added or removed."""
    directory = list_partition(path)
    if not directory.segments:
        return _DirectoryEvidence(directory, SideFileEvidence())
    entries, _ = partition_files.leader_epochs(directory, Totals())
    epochs = None
    if entries is not None:
        try:
            epochs = EpochHistory(entries)
        except FormatError:
            epochs = None  # a checkpoint that contradicts itself is no evidence
    log_dir_state = read_log_dir_state(os.path.dirname(path)) if directory.name is not None else None
    ends = partition_files.known_batch_ends(directory, log_dir_state)
    return _DirectoryEvidence(directory, partition_files.side_file_evidence(ends, epochs))


def _index_of(stack: ExitStack, segment: SegmentFiles) -> OffsetIndexCheck | None:
    """The offset index of a segment, open until `stack` closes."""
    if segment.offset_index is None:
        return None
    try:
        opened = stack.enter_context(MappedFile(segment.offset_index.path))
    except UnreadableInput:
        return None
    return OffsetIndexCheck(
        IndexContext(segment.offset_index.path, segment.base_offset), opened.view, Totals(), opened.data_end
    )


def _last_batch(segment: SegmentFiles, next_base: int, evidence: SideFileEvidence) -> PreviousBatch | None:
    """The leader epoch of the last batch of the previous segment; None if no walk leads there."""
    with ExitStack() as stack:
        try:
            file = stack.enter_context(MappedFile(segment.log.path))
        except UnreadableInput:
            return None
        size = len(file.view)
        start = _start_before(file.view, size, _index_of(stack, segment))
        if start == size:
            return None
        context = HeaderContext(
            segment.log.path, segment.base_offset, next_base, is_last=False, evidence=evidence
        )
        chain = Chain(context)
        for item in Scanner.over(file, segment.base_offset).blocks(start):
            if isinstance(item, Damage):
                return None
            deque(chain.feed(item), maxlen=0)
            chain.carry()
        deque(chain.close(), maxlen=0)
        return chain.last_batch()
