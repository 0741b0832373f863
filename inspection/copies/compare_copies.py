"""`diff` on one pair of copies: compare them, and build the row.

The verdict is the most serious one that applies to a pair:

    diverged      both have a record at the same offset, and the records differ
    damaged       a copy contains bytes that are not valid batches; where both can be read they are the same
    missing       a copy lacks records in the middle of its log, and no cleaning explains it
    epochs        the same records, in batches of another leader epoch, or under another one in the leader epoch caches
    compacted     a copy lacks records that a cleaning has removed
    behind       one copy ends earlier, with the same records before that
    trimmed       one copy begins later
    repacked      the same records in other batches: another codec, level or size of batches
    same          the same batches

and `only-in-a`, `only-in-b` if one copy does not have the partition. Gaps are explained by `gap_causes`.
"""

from collections.abc import Generator, Iterator, Mapping, Sequence
from dataclasses import field
from functools import partial

from kseg.change.run.rereading import repeated
from kseg.inspection.copies.copy_batches import CopyBatches, OffsetSpan
from kseg.inspection.copies.copy_pairs import CopyPair
from kseg.inspection.copies.copy_stretches import Compared, CopyCounts, compared_in_stretches, result_of
from kseg.inspection.copies.gap_causes import GapCauses, GapJudge
from kseg.inspection.copies.log_comparison import LogComparison
from kseg.inspection.copies.record_stream import Missing
from kseg.jobs.events import Advance, Event, Row
from kseg.jobs.guarded import guarded
from kseg.segment.errors import FormatError, UnreadableInput
from kseg.segment.partition.log_dir_state import read_log_dir_state
from kseg.segment.partition.names import PartitionState, Role
from kseg.segment.partition.partition_log import PartitionLog
from kseg.segment.partition.targets import LogTarget
from kseg.segment.sidecar.checkpoint import decode_leader_epochs
from kseg.segment.sidecar.leader_epochs import EpochHistory
from kseg.segment.sidecar.metadata_files import decode_partition_metadata
from kseg.segment.values import dataclass

VERDICTS = (
    *("diverged", "damaged", "missing", "only-in-a", "only-in-b", "epochs"),
    *("compacted", "behind", "trimmed", "repacked", "same"),
)
SAME_RECORDS = frozenset(("same", "repacked"))
_SEGMENTS_DRAWN = 400


@dataclass(frozen=True, slots=True)
class CopyPicture:
    """The data for a picture of one copy. segments: the first base offsets, up to a limit. damaged, missing: offsets, both ends
    inclusive."""

    start_offset: int
    end_offset: int
    segments: Sequence[int] = ()
    damaged: Sequence[OffsetSpan] = ()
    missing: Sequence[OffsetSpan] = ()


@dataclass(frozen=True, slots=True)
class PairPicture:
    """The data for a picture of a pair. differs_at: where the copies diverge."""

    name: str
    verdict: str
    a: CopyPicture | None
    b: CopyPicture | None
    differs_at: int | None = None


@dataclass(slots=True)
class _Copy:
    """One side of a comparison. causes: why it lacks records; None if it lacks none."""

    target: LogTarget
    log: PartitionLog
    start_offset: int
    checkpoints: Mapping[Role, int | None]
    damaged: Sequence[OffsetSpan] = ()
    damaged_bytes: int = 0
    counts: CopyCounts = field(default_factory=lambda: CopyCounts(Missing(0), 0, 0, 0))
    causes: GapCauses | None = None

    @property
    def end_offset(self) -> int:
        return max(self.counts.end_offset, self.start_offset)

    def ranges(self, cause: str) -> Sequence[OffsetSpan]:
        found: Sequence[OffsetSpan] = () if self.causes is None else getattr(self.causes, cause).ranges
        return found


def compare_copies(pair: CopyPair, options: object) -> Iterator[Event]:
    """Findings of damage in either copy, then one row, whose result is a `PairPicture`; a Failure when a copy cannot be listed."""
    yield from repeated(partial(guarded, _compare, pair, options), *pair.targets)


def _compare(pair: CopyPair, _options: object) -> Iterator[Event]:
    if pair.a is None or pair.b is None:
        yield _alone(pair)
        return
    with PartitionLog(pair.a) as log_a, PartitionLog(pair.b) as log_b:
        for log in (log_a, log_b):
            if log.is_kafka07:
                raise UnreadableInput(
                    f"{log.directory} is a log of Kafka 0.7, which kseg diff does not compare"
                )
        a, b = _opened(pair.a, log_a), _opened(pair.b, log_b)
        start = max(a.start_offset, b.start_offset)
        found = yield from compared_in_stretches((pair.a, pair.b), start, pair.jobs)
        if found is None:
            found = yield from _compared(a, b, start)
        a.counts, b.counts = found.a, found.b
        yield from _causes(a, b, start)
        yield from _causes(b, a, start)
        yield from log_a.findings
        yield from log_b.findings
        yield _row(pair, a, b, found)


def _opened(target: LogTarget, log: PartitionLog) -> _Copy:
    checkpoints: dict[Role, int | None] = {}
    name = log.name
    if log.log_dir is not None and name is not None and name.state is PartitionState.LIVE:
        state = read_log_dir_state(log.log_dir)
        checkpoints = {role: state.offset(role, name.topic, name.partition) for role in state.checkpoints}
    return _Copy(target, log, log.start_offset, checkpoints)


def _compared(a: _Copy, b: _Copy, start_offset: int) -> Generator[Advance, None, Compared]:
    """Compare both logs in order; yields progress and returns the result."""
    of_a, of_b = CopyBatches(a.log), CopyBatches(b.log)
    reported = [0, 0]
    try:
        comparison = LogComparison(of_a, of_b, start_offset)
        for _ in comparison.run():
            for number, (copy, batches) in enumerate(((a, of_a), (b, of_b))):
                more = batches.read_bytes - reported[number]
                if more:
                    reported[number] = batches.read_bytes
                    yield Advance(copy.target.path, more)
    finally:
        of_a.close()
        of_b.close()
    for copy, batches in ((a, of_a), (b, of_b)):
        copy.damaged, copy.damaged_bytes = batches.damaged, batches.damaged_bytes
    return result_of(comparison, of_a, of_b)


def _causes(copy: _Copy, other: _Copy, start_offset: int) -> Iterator[Event]:
    """Find out why a copy lacks records. The cleaner checkpoints of both copies count: a replica that was fetched from a cleaned
    one has its gaps without having been cleaned itself."""
    if not copy.counts.missing.records:
        return
    cleaned = [each.checkpoints[Role.CLEANER_OFFSETS] or 0 for each in (copy, other) if Role.CLEANER_OFFSETS in each.checkpoints]  # fmt: skip
    judge = GapJudge(other.target, copy.target, start_offset, copy.damaged, max(cleaned, default=None))
    for step in judge.run():
        if step is None:
            yield Advance(copy.target.path, 0)
        else:
            copy.causes = step


def _alone(pair: CopyPair) -> Row:
    """The row of a partition that only one side has."""
    (target,) = pair.targets
    verdict = "only-in-b" if pair.a is None else "only-in-a"
    with PartitionLog(target) as log:
        start, end = log.start_offset, log.end_offset
        of_it: dict[str, object] = {
            "path": target.path,
            "log_start_offset": start,
            "log_end_offset": end,
            "segments": len(log.segments),
        }
    picture = CopyPicture(start, end)
    return Row(
        {
            "type": "comparison",
            "partition": pair.name,
            "verdict": verdict,
            "a": None if pair.a is None else of_it,
            "b": None if pair.b is None else of_it,
        },
        PairPicture(pair.name, verdict, *((None, picture) if pair.a is None else (picture, None))),
    )


def _row(pair: CopyPair, a: _Copy, b: _Copy, found: Compared) -> Row:
    start, end = max(a.start_offset, b.start_offset), min(a.end_offset, b.end_offset)
    epochs_at = _epochs_differ_at(
        a.log, b.log, start, end if found.differs_at is None else found.differs_at + 1
    )
    verdict = _verdict(
        diverged=found.differs_at is not None,
        damaged=any(copy.damaged_bytes or copy.ranges("damaged") for copy in (a, b))
        or any(each.id == "unreadable-file" for log in (a.log, b.log) for each in log.findings),
        missing=bool(a.ranges("lost") or b.ranges("lost")),
        epochs=found.epochs_differ_at is not None or epochs_at is not None,
        compacted=bool(a.ranges("cleaned") or b.ranges("cleaned")),
        behind=a.end_offset != b.end_offset,
        trimmed=a.start_offset != b.start_offset,
        repacked=bool(found.repacked_batches),
    )
    ids = [_topic_id(copy.log) for copy in (a, b)]
    values = {
        "type": "comparison",
        "partition": pair.name,
        "verdict": verdict,
        "compared_from": start,
        "compared_to": max(start, end if found.differs_at is None else found.differs_at),
        "differs_at": found.differs_at,
        "epochs_differ_at": found.epochs_differ_at,
        "epoch_caches_differ_at": epochs_at,
        "same_batches": found.same_batches,
        "repacked_batches": found.repacked_batches,
        "same_topic_id": None if None in ids else ids[0] == ids[1],
        "a": _of_copy(a),
        "b": _of_copy(b),
    }
    return Row(values, PairPicture(pair.name, verdict, _drawn(a), _drawn(b), found.differs_at))


def _verdict(**facts: bool) -> str:
    return next((verdict for verdict in VERDICTS if facts.get(verdict)), "same")


def _of_copy(copy: _Copy) -> dict[str, object]:
    counts = copy.counts
    return {
        "path": copy.target.path,
        "log_start_offset": copy.start_offset,
        "log_end_offset": copy.end_offset,
        "high_watermark": copy.checkpoints.get(Role.HIGH_WATERMARKS),
        "segments": len(copy.log.segments),
        "batches": counts.batches,
        "bytes": counts.read_bytes,
        "damaged_bytes": copy.damaged_bytes,
        "records_missing": counts.missing.records,
        "records_cleaned": 0 if copy.causes is None else copy.causes.cleaned.records,
        "records_lost": 0 if copy.causes is None else copy.causes.lost.records,
        "cleaned": _pairs(copy.ranges("cleaned")),
        "missing": _pairs(copy.ranges("lost")),
        "damaged": _pairs(copy.ranges("damaged")),
    }


def _pairs(ranges: Sequence[OffsetSpan]) -> list[list[int]]:
    return [[each.first, each.last] for each in ranges]


def _drawn(copy: _Copy) -> CopyPicture:
    segments = [segment.base_offset for segment in copy.log.segments[:_SEGMENTS_DRAWN]]
    end = copy.end_offset
    damaged = [OffsetSpan(each.first, min(each.last, max(each.first, end))) for each in copy.damaged]
    return CopyPicture(copy.start_offset, end, segments, damaged, copy.counts.missing.ranges)


# --- files beside the log


def _topic_id(log: PartitionLog) -> str | None:
    data = _side_file(log, Role.PARTITION_METADATA)
    try:
        return None if data is None else decode_partition_metadata(data).topic_id
    except FormatError:
        return None


def _epochs_differ_at(a: PartitionLog, b: PartitionLog, start: int, end: int) -> int | None:
    """The first offset that both logs have and that their leader epoch caches assign to different epochs; None if there is none,
    or a cache cannot be read."""
    histories = [_history(log) for log in (a, b)]
    first, second = histories
    if first is None or second is None:
        return None
    changes = {entry.start_offset for history in (first, second) for entry in history.entries}
    for offset in sorted({start, *(offset for offset in changes if start < offset < end)}):
        if start < end and first.epoch_for_offset(offset) != second.epoch_for_offset(offset):
            return offset
    return None


def _history(log: PartitionLog) -> EpochHistory | None:
    data = _side_file(log, Role.LEADER_EPOCHS)
    try:
        return None if data is None else EpochHistory(decode_leader_epochs(data))
    except FormatError:
        return None


def _side_file(log: PartitionLog, role: Role) -> bytes | None:
    try:
        return log.read_side_file(role)
    except UnreadableInput:
        return None
