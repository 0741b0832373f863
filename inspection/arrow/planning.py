"""Plan which byte ranges of which files must be read for a partition and bounds.

1. By name: a segment whose successor begins at or below the lowest offset, or that begins at or above the highest, is
   left out. No file is opened for that.
2. By time: a segment is left out when the last entry of its time index, which covers all of it, is below the least
   timestamp. Only the last 12 bytes of that file are read. An index that does not cover its segment, or is not valid, is
   ignored; the last segment is always read, because a broker completes its index only when it rolls.
3. In the first and the last segment the offset index locates the first and the last batch. An entry is trusted only if a
   valid batch that matches it begins there.
4. A range larger than a part is split into parts of equal size, at valid batches found through the index; without
   an index, at batches found by following the headers.
5. For readers of committed data the batch headers of all segments are replayed; or the transaction indexes and the
   newest snapshot are trusted, as a broker trusts them (`committed_ranges`).
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace

from kseg.inspection.arrow.committed_ranges import from_indexes, from_log
from kseg.inspection.arrow.log_ranges import Aborted, LogPiece
from kseg.segment import header_tables as C
from kseg.segment.errors import cannot_read
from kseg.segment.kafka07.log07 import Log07
from kseg.segment.layout import INT64_MAX, MAGIC_V2
from kseg.segment.partition.bounds import Bounds
from kseg.segment.partition.log_segment import LogSegment
from kseg.segment.partition.narrowing import segments_within, stop_for
from kseg.segment.partition.partition_log import PartitionLog
from kseg.segment.partition.targets import PartitionTarget
from kseg.segment.scanning.damage import Damage
from kseg.segment.storage import places
from kseg.segment.values import dataclass

SMALLEST_PART_BYTES = 64 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadPlanOptions:
    """read_committed: leave out what a read_committed consumer does not receive. trust_transactions: trust the transaction
    indexes and snapshots. checks_markers: report where those and the log disagree. use_indexes: use offset and time indexes."""

    read_committed: bool = False
    trust_transactions: bool = False
    checks_markers: bool = True
    use_indexes: bool = True


@dataclass(frozen=True, slots=True)
class SegmentRead:
    """The range to read of one segment, before it is cut. segment: None for a file of Kafka 0.7, which is not cut."""

    segment: LogSegment | None
    piece: LogPiece

    def cut(self, part_bytes: int, use_indexes: bool = True) -> list[LogPiece]:
        """Pieces of equal size, at most about `part_bytes`, as far as batch boundaries allow. Raises UnreadableInput."""
        return _cut(self.segment, self.piece, part_bytes, use_indexes) if self.segment else [self.piece]

    def cut_by_offsets(self, max_offsets: int) -> list[LogPiece]:
        """Pieces of at most `max_offsets` offsets. Offsets that were compacted away count, as in Spark's own source."""
        return list(_cut_by_offsets(self.segment, self.piece, max_offsets)) if self.segment else [self.piece]


def segment_reads(
    log: PartitionLog, topic: str, partition: int, bounds: Bounds, plan_options: ReadPlanOptions
) -> list[SegmentRead]:
    """The ranges to read for everything within `bounds`, in order. Raises UnreadableInput."""
    if bounds.is_empty:
        return []
    if log.is_kafka07:
        return [SegmentRead(None, piece) for piece in _kafka07_pieces(log, topic, partition, bounds)]
    aborted: Sequence[Aborted] = ()
    if plan_options.read_committed:
        aborted, stable_offset = _transactions(log, bounds, plan_options)
        bounds = replace(bounds, to_offset=min(bounds.to_offset, stable_offset))
    reads: list[SegmentRead] = []
    for segment in segments_within(log, bounds, plan_options.use_indexes):
        whole_piece = LogPiece(
            segment.path,
            topic,
            partition,
            segment.base_offset,
            bounds,
            checks_markers=plan_options.read_committed
            and plan_options.trust_transactions
            and plan_options.checks_markers,
        )
        for piece in _trimmed(segment, whole_piece, plan_options.use_indexes):
            reads.append(SegmentRead(segment, _with_aborted(piece, segment, aborted)))
        segment.close()
    return reads


def _kafka07_pieces(log: PartitionLog, topic: str, partition: int, bounds: Bounds) -> list[LogPiece]:
    with Log07(PartitionTarget(log.directory)) as kafka07_files:
        return [
            LogPiece(
                file.path,
                topic,
                partition,
                file.base_offset,
                bounds,
                size_bytes=file.size_bytes,
                is_kafka07=True,
            )
            for file in kafka07_files.files
            if file.end_offset > bounds.from_offset and file.base_offset < bounds.to_offset
        ]


# --- which bytes of a segment


def _trimmed(segment: LogSegment, whole_piece: LogPiece, use_indexes: bool) -> Iterator[LogPiece]:
    """The byte range that contains everything within the bounds; empty for an empty file."""
    bounds = whole_piece.bounds
    size_bytes = _size_of(segment)
    if not size_bytes:
        return
    start, stop = 0, None
    if use_indexes and size_bytes > SMALLEST_PART_BYTES:
        following = segment.next_base_offset
        if bounds.from_offset > segment.base_offset:
            start = segment.start_for(bounds.from_offset)
        if bounds.to_offset < INT64_MAX and (following is None or following > bounds.to_offset):
            stop = stop_for(segment, bounds.to_offset, start)
    end = size_bytes if stop is None else stop
    yield replace(whole_piece, start=start, stop=stop, size_bytes=end - start)


def _cut(segment: LogSegment, whole_piece: LogPiece, part_bytes: int, use_indexes: bool) -> list[LogPiece]:
    size_bytes = whole_piece.size_bytes
    end = whole_piece.start + size_bytes
    edges = [whole_piece.start]
    parts = min(-(-size_bytes // max(1, part_bytes)), size_bytes // SMALLEST_PART_BYTES)
    if parts > 1:
        goals = [whole_piece.start + size_bytes * number // parts for number in range(1, parts)]
        edges += _boundaries(segment, whole_piece.start, end, goals, use_indexes)
        segment.close()
    pieces = []
    for edge, following in zip(edges, [*edges[1:], None], strict=True):
        stop = whole_piece.stop if following is None else following
        size_bytes = (end if following is None else following) - edge
        pieces.append(replace(whole_piece, start=edge, stop=stop, size_bytes=size_bytes))
    return pieces


def _cut_by_offsets(segment: LogSegment, whole_piece: LogPiece, max_offsets: int) -> Iterator[LogPiece]:
    last = segment.next_base_offset
    if last is None:
        tail = segment.walk.last(segment.start_for(INT64_MAX))
        last = segment.base_offset if tail is None else tail.last_offset + 1
    low = max(segment.base_offset, whole_piece.bounds.from_offset)
    high = min(last, whole_piece.bounds.to_offset)
    end = whole_piece.start + whole_piece.size_bytes
    # more offsets than bytes: most do not exist, and a wrong number in a file name or header must not cause millions of pieces
    is_sparse = high - low > whole_piece.size_bytes
    while low < high:
        following = min(low + max_offsets, high)
        is_last = following == high
        start = max(whole_piece.start, segment.start_for(low) if low > segment.base_offset else 0)
        stop = whole_piece.stop if is_last else stop_for(segment, following, start)
        bounds = replace(
            whole_piece.bounds,
            from_offset=low,
            to_offset=whole_piece.bounds.to_offset if is_last else following,
        )
        size_bytes = (end if stop is None else stop) - start
        yield replace(whole_piece, bounds=bounds, start=start, stop=stop, size_bytes=size_bytes)
        low = following
        if is_sparse and not is_last:
            low += _gap_behind(segment, low, high - 1) // max_offsets * max_offsets
    segment.close()


def _gap_behind(segment: LogSegment, offset: int, last: int) -> int:
    """Number of offsets from `offset` on, up to but not including `last`, that no batch covers."""
    batch = segment.batch_reaching(offset)
    if batch is not None and batch.magic < MAGIC_V2:
        # the header of a compressed set does not have its first offset
        return 0
    return max(0, (last if batch is None else min(last, batch.base_offset)) - offset)


def _size_of(segment: LogSegment) -> int:
    try:
        return places.stat(segment.path).st_size
    except OSError as error:
        raise cannot_read(segment.path, error) from error


def _boundaries(
    segment: LogSegment, start: int, end: int, goals: Sequence[int], use_indexes: bool
) -> Iterator[int]:
    """Positions of valid batches between `start` and `end`, each the first at or after its target position."""
    if use_indexes and segment.offset_index is not None and len(segment.offset_index) > 1:
        yield from _indexed_boundaries(segment, start, end, goals)
    else:
        yield from _walked_boundaries(segment, start, end, goals)


def _indexed_boundaries(segment: LogSegment, start: int, end: int, goals: Sequence[int]) -> Iterator[int]:
    index = segment.offset_index
    assert index is not None
    slot, last = 0, start
    for goal in goals:
        while last < goal:
            # positions increase from entry to entry; an entry out of order points to no valid batch
            slot = index.slot_at(goal, slot)
            if slot == len(index):
                return
            entry = index.entry(slot)
            slot += 1
            if not last < entry.position < end:
                return
            batch = segment.walk.valid_batch_at(entry.position)
            if batch is not None and batch.base_offset <= entry.offset <= batch.last_offset:
                last = entry.position
                yield last


def _walked_boundaries(segment: LogSegment, start: int, end: int, goals: Sequence[int]) -> Iterator[int]:
    ahead = iter(goals)
    goal = next(ahead, end)
    for block in segment.walk.blocks(start):
        if isinstance(block, Damage):
            continue
        for position in block.column(C.POSITION):
            if position >= end or goal >= end:
                return
            if position < goal or segment.walk.valid_batch_at(position) is None:
                continue
            yield position
            while goal <= position:
                goal = next(ahead, end)


# --- transactions


def _transactions(
    log: PartitionLog, bounds: Bounds, plan_options: ReadPlanOptions
) -> tuple[Sequence[Aborted], int]:
    """The aborted transactions, and the last stable offset."""
    if not log.segments:
        return [], INT64_MAX
    return from_indexes(log, bounds) if plan_options.trust_transactions else from_log(log)


def _with_aborted(piece: LogPiece, segment: LogSegment, aborted: Sequence[Aborted]) -> LogPiece:
    """The piece with the transactions that extend into its segment."""
    low = max(segment.base_offset, piece.bounds.from_offset)
    high = INT64_MAX if segment.next_base_offset is None else segment.next_base_offset
    high = min(high, piece.bounds.to_offset)
    touching = tuple(
        each for each in aborted if each.marker_offset >= low and each.first_offset < max(high, low + 1)
    )
    return replace(piece, aborted=touching)
