"""One group of segments becomes one new segment: the part of a second pass that can be done apart from all others."""

from collections.abc import Sequence

from kseg.change.apply.scratch_file import ScratchFile
from kseg.compaction.cleaner.new_log import NewLog, NotWritable
from kseg.compaction.cleaner.second_pass import Cleaning
from kseg.compaction.cleaner.segment_reader import DamagedSegment
from kseg.compaction.cleaner.segment_splitting import Overflowed
from kseg.compaction.cleaner.segments import CleanerSegment, SideFiles
from kseg.segment.findings import Finding
from kseg.segment.kernel import filter_batches as W
from kseg.segment.sidecar.index_builder import OVERFLOW
from kseg.segment.sidecar.txn_index import AbortedTxn, encode_txn_index


def clean_group(
    cleaning: Cleaning,
    group: Sequence[CleanerSegment],
    aborted: Sequence[Sequence[AbortedTxn]],
    interval_bytes: int,
    log: ScratchFile | None,
) -> CleanerSegment | None:
    """The new segment; None when it would be the old one, byte for byte.

    aborted: what is known of each segment of the group before it is read. log: where it is written, None to count only;
    it is closed unless the new segment has it. Raises DamagedSegment, Overflowed.
    """
    new = NewLog(cleaning.buffers, group[0].base_offset, interval_bytes, log)
    entries: list[AbortedTxn] = []
    try:
        for segment, known in zip(group, aborted, strict=True):
            cleaning.transactions.add(known)
            try:
                cleaning.into(new, segment, entries)
            except NotWritable as refused:
                raise _meaning(refused, segment) from refused
        new.indexes.finish()
        cleaning.add_counts(new)
    except BaseException:
        if log is not None:
            log.close()
        raise
    made = _made(new, group, entries, log)
    if len(group) == 1 and _is_same(new, group[0], made):
        if log is not None:
            log.close()
        return None
    if log is not None:
        log.let_go()
    return made


def pass_over(
    cleaning: Cleaning, group: Sequence[CleanerSegment], aborted: Sequence[Sequence[AbortedTxn]]
) -> None:
    """Let the transactions see a group that is left alone."""
    for segment, known in zip(group, aborted, strict=True):
        cleaning.transactions.add(known)
        cleaning.pass_over(segment)


def _meaning(refused: NotWritable, segment: CleanerSegment) -> Exception:
    if refused.refusal.kafka_exception == OVERFLOW:
        return Overflowed(segment)
    finding = Finding("offset-not-monotonic", segment.path, refused.refusal.sentence)
    return DamagedSegment(segment, (finding,))


def _made(
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


def _is_same(new: NewLog, old: CleanerSegment, made: CleanerSegment) -> bool:
    """Whether the new segment is the old one, byte for byte."""
    changes = (W.S_REBUILT, W.S_EMPTIED, W.S_DROPPED)
    if new.size_bytes != old.size_bytes or any(new.state[count] for count in changes):
        return False
    return made.side_files == old.stored_side_files()
