"""Rewrite one group of segments into one new segment: the part of a second pass that is independent of all others."""

from collections.abc import Sequence

from kseg.change.apply.scratch_file import ScratchFile
from kseg.compaction.cleaner.new_log import NewLog, NotWritable
from kseg.compaction.cleaner.second_pass import SegmentCleaner
from kseg.compaction.cleaner.segment_reader import DamagedSegment
from kseg.compaction.cleaner.segment_splitting import SegmentOverflow
from kseg.compaction.cleaner.segments import CleanerSegment, SideFiles
from kseg.segment.findings import Finding
from kseg.segment.kernel import filter_batches as W
from kseg.segment.sidecar.index_builder import OVERFLOW
from kseg.segment.sidecar.txn_index import AbortedTxn, encode_txn_index


def clean_group(
    segment_cleaner: SegmentCleaner,
    group: Sequence[CleanerSegment],
    aborted: Sequence[Sequence[AbortedTxn]],
    interval_bytes: int,
    log: ScratchFile | None,
) -> CleanerSegment | None:
    """The new segment; None when it would equal the old one byte for byte.

    aborted: what is known of each segment of the group before it is read. log: where it is written, None to count only;
    it is closed unless the new segment has it. Raises DamagedSegment, Overflowed.
    """
    new = NewLog(segment_cleaner.buffers, group[0].base_offset, interval_bytes, log)
    entries: list[AbortedTxn] = []
    try:
        for segment, known in zip(group, aborted, strict=True):
            segment_cleaner.transactions.add(known)
            try:
                segment_cleaner.clean_into(new, segment, entries)
            except NotWritable as refused:
                raise _refusal_finding(refused, segment) from refused
        new.indexes.finish()
        segment_cleaner.add_counts(new)
    except BaseException:
        if log is not None:
            log.close()
        raise
    new_segment = _new_segment(new, group, entries, log)
    if len(group) == 1 and _is_same(new, group[0], new_segment):
        if log is not None:
            log.close()
        return None
    if log is not None:
        log.release()
    return new_segment


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
    new: NewLog, group: Sequence[CleanerSegment], entries: Sequence[AbortedTxn], log: ScratchFile | None
) -> CleanerSegment:
    first, last = group[0], group[-1]
    indexes = new.indexes
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
    changes = (W.S_REBUILT, W.S_EMPTIED, W.S_DROPPED)
    if new.size_bytes != old.size_bytes or any(new.state[count] for count in changes):
        return False
    return new_segment.side_files == old.stored_side_files()
