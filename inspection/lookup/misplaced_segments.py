"""Segments whose files have other names than their batches need: the contents of two segments have changed places, for example.

A broker finds a segment by its name alone, and a lookup answers as a broker does: with a later record, or none, although the one that was
asked for is in another segment. An answer from such a segment, or past one, is followed by what is wrong with it, and by the place of the
offset that was asked for.
"""

from collections.abc import Iterator

from kseg.inspection.lookup.answer import Answer
from kseg.segment.counted import offsets_words
from kseg.segment.findings import Finding
from kseg.segment.model import Batch
from kseg.segment.partition.log_segment import LogSegment
from kseg.segment.partition.partition_log import PartitionLog
from kseg.segment.terminal import shown_path


def misplaced_segments(log: PartitionLog, answer: Answer, asked: int | None) -> Iterator[Finding]:
    """The findings about the segment of an answer. asked: the offset that was looked up, None for another kind of lookup."""
    batch = answer.batch
    found = None if batch is None else _wrong_name_in(log, answer.segment, batch)
    is_passed = asked is not None and (batch is None or not batch.base_offset <= asked <= batch.last_offset)
    if found is None and is_passed and asked is not None:
        at = log.floor_index(asked)
        found = None if at < 0 else _wrong_name_of(log.segments[at])
    if found is None:
        return
    place = _place_of(log, asked) if is_passed and asked is not None else ""
    yield Finding(found.id, found.path, f"{found.message}{place}", found.position, found.length)


def _wrong_name_in(log: PartitionLog, path: str | None, batch: Batch) -> Finding | None:
    """path: of the segment that has the batch."""
    at = log.floor_index(batch.base_offset)
    if at >= 0 and log.segments[at].path == path:
        return None  # as almost always, so that the segments need not be searched for each of many answers
    own = next((each for each in log.segments if each.path == path), None)
    return None if own is None else wrong_name(own, batch)


def wrong_name(segment: LogSegment, batch: Batch) -> Finding | None:
    """The finding about a batch whose offsets are not those of its segment."""
    words = offsets_words(batch.base_offset, batch.last_offset)
    if batch.last_offset < segment.base_offset:
        message = f"a batch has {words}, below the base offset {segment.base_offset} in the file name"
        return Finding("offset-below-segment", segment.path, message, batch.position, batch.size_bytes)
    following = segment.next_base_offset
    if following is not None and batch.base_offset >= following:
        message = f"a batch has {words}, but the next segment starts at offset {following}"
        return Finding("segment-overlap", segment.path, message, batch.position, batch.size_bytes)
    return None


def _wrong_name_of(segment: LogSegment) -> Finding | None:
    """The same for the first and the last batches of a segment."""
    first = next(segment.reaching(0, 0), None)
    found = None if first is None else wrong_name(segment, first)
    if found is None and segment.next_base_offset is not None:
        last = segment.batch_reaching(segment.next_base_offset)
        found = None if last is None else wrong_name(segment, last)
    return found


def _place_of(log: PartitionLog, offset: int) -> str:
    """Where the offset is, as the end of a sentence; empty if it is nowhere."""
    for segment in log.segments:
        batch = segment.batch_reaching(offset)
        if batch is not None and batch.base_offset <= offset:
            return f"; offset {offset} is in {shown_path(segment.path)}, where no broker looks for it"
    return ""
