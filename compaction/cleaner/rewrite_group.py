"""Rewrite one group of segments into one new segment: the part of a second pass that is independent of all others."""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager

from kseg.change.apply.scratch_file import ScratchFile
from kseg.compaction.cleaner.log_cuts import SegmentPart, parts
from kseg.compaction.cleaner.new_log import NewLog, NotWritable, WrittenPart
from kseg.compaction.cleaner.second_pass import SegmentCleaner
from kseg.compaction.cleaner.segment_reader import DamagedSegment
from kseg.compaction.cleaner.segment_splitting import SegmentOverflow
from kseg.compaction.cleaner.segments import CleanerSegment, SideFiles
from kseg.segment import layout as L
from kseg.segment.findings import Finding
from kseg.segment.kernel import state_fields as S
from kseg.segment.sidecar.index_builder import OVERFLOW, SegmentIndexes
from kseg.segment.sidecar.txn_index import AbortedTxn, encode_txn_index


class GroupRewriter:
    """Builds the new segment of one group, part by part and in order.

    aborted: the known aborted transactions of each segment of the group. log: where it is written, None to count only; it is
    closed unless the new segment has it.
    """

    def __init__(
        self,
        segment_cleaner: SegmentCleaner,
        group: Sequence[CleanerSegment],
        aborted: Sequence[Sequence[AbortedTxn]],
        interval_bytes: int,
        log: ScratchFile | None,
    ) -> None:
        self._cleaner = segment_cleaner
        self._group = group
        self._aborted = aborted
        self._log = log
        self._indexes = SegmentIndexes(group[0].base_offset, interval_bytes, L.INT32_MAX)
        self._new = NewLog(segment_cleaner.buffers, self._indexes, log)
        self._entries: list[AbortedTxn] = []

    def clean(self, group_parts: Iterable[SegmentPart]) -> None:
        """Rewrite parts in this process. Raises DamagedSegment, SegmentOverflow, NotJoined."""
        with self._closing():
            for part in group_parts:
                segment = self._group[part.number]
                if not part.start:
                    self._cleaner.transactions.add(self._aborted[part.number])
                try:
                    self._cleaner.clean_into(self._new, segment, self._entries, part.start, part.stop)
                except NotWritable as refused:
                    raise _refusal_finding(refused, segment) from refused

    def join(self, part: WrittenPart, notes: memoryview, spool: ScratchFile | None) -> None:
        """Append what another process has written. Raises DamagedSegment, SegmentOverflow; both name an arbitrary segment of the group."""
        with self._closing():
            try:
                self._new.join(part, notes, spool)
            except NotWritable as refused:
                raise _refusal_finding(refused, self._group[-1]) from refused
            self._entries += part.aborted

    def finish(self) -> CleanerSegment | None:
        """The new segment; None if it would equal the old one byte for byte."""
        group, log = self._group, self._log
        with self._closing():
            self._indexes.finish()
            self._cleaner.add_counts(self._new)
            new_segment = _new_segment(self._new, self._indexes, group, self._entries, log)
            is_same = len(group) == 1 and _is_same(self._new, group[0], new_segment)
        if log is not None:
            if is_same:
                log.close()
            else:
                log.release()
        return None if is_same else new_segment

    @contextmanager
    def _closing(self) -> Iterator[None]:
        try:
            yield
        except BaseException:
            if self._log is not None:
                self._log.close()
            raise


def clean_group(
    segment_cleaner: SegmentCleaner,
    group: Sequence[CleanerSegment],
    aborted: Sequence[Sequence[AbortedTxn]],
    interval_bytes: int,
    log: ScratchFile | None,
) -> CleanerSegment | None:
    """Rewrite a whole group. Raises DamagedSegment, SegmentOverflow."""
    rewriter = GroupRewriter(segment_cleaner, group, aborted, interval_bytes, log)
    rewriter.clean(parts(group, None, None))
    return rewriter.finish()


def skip_group(
    segment_cleaner: SegmentCleaner, group: Sequence[CleanerSegment], aborted: Sequence[Sequence[AbortedTxn]]
) -> None:
    """Track the transactions of a group that is skipped."""
    for segment, known in zip(group, aborted, strict=True):
        segment_cleaner.transactions.add(known)
        segment_cleaner.skip(segment)


def _refusal_finding(refused: NotWritable, segment: CleanerSegment) -> Exception:
    if refused.refusal.kafka_exception == OVERFLOW:
        return SegmentOverflow(segment)
    finding = Finding("offset-not-monotonic", segment.path, refused.refusal.sentence)
    return DamagedSegment(segment, (finding,))


def _new_segment(
    new: NewLog,
    indexes: SegmentIndexes,
    group: Sequence[CleanerSegment],
    entries: Sequence[AbortedTxn],
    log: ScratchFile | None,
) -> CleanerSegment:
    first, last = group[0], group[-1]
    files = SideFiles(
        indexes.offset_index.to_bytes(), indexes.time_index.to_bytes(), encode_txn_index(entries)
    )
    largest = indexes.max_timestamp_ms
    return CleanerSegment(
        base_offset=first.base_offset,
        path=first.path if log is None else log.path,
        size_bytes=new.size_bytes,
        mtime_ms=last.mtime_ms,
        index_bytes=len(files.offset_index),
        time_index_bytes=len(files.time_index),
        largest_timestamp_ms=largest if largest >= 0 else last.mtime_ms,
        origins=tuple(origin for segment in group for origin in segment.origins),
        aborted=tuple(entries),
        log=log,
        side_files=files,
        is_whole=True,
        joins_previous=first.joins_previous,
        like=last.like,
    )


def _is_same(new: NewLog, old: CleanerSegment, new_segment: CleanerSegment) -> bool:
    """Whether the new segment equals the old one byte for byte."""
    changes = (S.REWRITE_REBUILT, S.REWRITE_EMPTIED, S.REWRITE_DROPPED)
    if new.size_bytes != old.size_bytes or any(new.state[count] for count in changes):
        return False
    return new_segment.side_files == old.stored_side_files()
