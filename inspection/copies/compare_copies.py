"""`diff` on one pair of copies: the work, and its row.

The verdict is the most serious one that applies to a pair:

    diverged      both have a record at an offset, and not the same one
    damaged       a copy contains bytes that are not valid batches; where both can be read they are the same
    missing       a copy lacks records in the middle of its log, and no cleaning explains it
    epochs        the same records, in batches of another leader epoch, or under another one in the leader epoch caches
    compacted     a copy lacks records that a cleaning has removed
    behind        one copy ends earlier, with the same records before that
    trimmed       one copy begins later
    repacked      the same records in other batches: another codec, level or size of batches
    same          the same batches

and `only-in-a`, `only-in-b` if one copy has no such partition. The cleaner's checkpoints of both data directories decide which gaps a cleaning explains: a
replica that was fetched from a cleaned one has its gaps without a cleaning of its own. Without such a checkpoint gaps are attributed to a cleaning.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import field

from kseg.inspection.copies.copy_batches import CopyBatches, OffsetSpan
from kseg.inspection.copies.copy_pairs import CopyPair, LogTarget
from kseg.inspection.copies.log_comparison import LogComparison, Missing
from kseg.jobs.events import Advance, Event, Row
from kseg.segment import layout as L
from kseg.segment.errors import FormatError, UnreadableInput
from kseg.segment.partition.log_dir_state import read_log_dir_state
from kseg.segment.partition.names import PartitionState, Role
from kseg.segment.partition.partition_log import PartitionLog
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
    """The data for a picture of one copy. segments: the first base offsets, up to a limit. damaged, missing: offsets, both ends inclusive."""

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
    """One side of a comparison."""

    target: LogTarget
    log: PartitionLog
    batches: CopyBatches
    start_offset: int
    checkpoints: Mapping[Role, int | None] = field(default_factory=dict)
    told_bytes: int = 0

    @property
    def end_offset(self) -> int:
        return max(self.batches.end_offset, self.start_offset)


def compare_copies(pair: CopyPair, _options: object) -> Iterator[Event]:
    """Findings of damage in either copy, then one row, whose result is a `PairPicture`. Raises UnreadableInput where a copy cannot be listed."""
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
        try:
            comparison = LogComparison(a.batches, b.batches, max(a.start_offset, b.start_offset))
            for _ in comparison.run():
                yield from _advances(a, b)
            yield from _advances(a, b)
        finally:
            a.batches.close()
            b.batches.close()
        yield from log_a.findings
        yield from log_b.findings
        yield _row(pair, a, b, comparison)


def _opened(target: LogTarget, log: PartitionLog) -> _Copy:
    checkpoints: dict[Role, int | None] = {}
    name = log.name
    if log.log_dir is not None and name is not None and name.state is PartitionState.LIVE:
        state = read_log_dir_state(log.log_dir)
        checkpoints = {role: state.offset(role, name.topic, name.partition) for role in state.checkpoints}
    start = log.start_offset
    return _Copy(target, log, CopyBatches(log), start, checkpoints)


def _advances(*copies: _Copy) -> Iterator[Advance]:
    for copy in copies:
        more = copy.batches.read_bytes - copy.told_bytes
        if more:
            copy.told_bytes += more
            yield Advance(copy.target.path, more)


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


def _row(pair: CopyPair, a: _Copy, b: _Copy, found: LogComparison) -> Row:
    start, end = max(a.start_offset, b.start_offset), min(a.end_offset, b.end_offset)
    damaged_in_a, lost_in_a, cleaned_in_a = _sorted_out(found.missing_in_a, a, b)
    damaged_in_b, lost_in_b, cleaned_in_b = _sorted_out(found.missing_in_b, b, a)
    epochs_at = _epochs_differ_at(
        a.log, b.log, start, end if found.differs_at is None else found.differs_at + 1
    )
    verdict = _verdict(
        diverged=found.differs_at is not None,
        damaged=bool(a.batches.damaged_bytes or b.batches.damaged_bytes or damaged_in_a or damaged_in_b)
        or any(each.id == "unreadable-file" for log in (a.log, b.log) for each in log.findings),
        missing=bool(lost_in_a or lost_in_b),
        epochs=found.epochs_differ_at is not None or epochs_at is not None,
        compacted=bool(cleaned_in_a or cleaned_in_b),
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
        "a": _of_copy(a, found.missing_in_a, cleaned_in_a, lost_in_a, damaged_in_a),
        "b": _of_copy(b, found.missing_in_b, cleaned_in_b, lost_in_b, damaged_in_b),
    }
    pictures = (_drawn(a, found.missing_in_a), _drawn(b, found.missing_in_b))
    return Row(values, PairPicture(pair.name, verdict, *pictures, found.differs_at))


def _verdict(**facts: bool) -> str:
    return next((verdict for verdict in VERDICTS if facts.get(verdict)), "same")


def _sorted_out(
    missing: Missing, copy: _Copy, other: _Copy
) -> tuple[list[OffsetSpan], list[OffsetSpan], list[OffsetSpan]]:
    """Classify the gaps of a copy: damaged, missing without a reason, and removed by a cleaning."""
    known = [each.checkpoints[Role.CLEANER_OFFSETS] or 0 for each in (copy, other) if Role.CLEANER_OFFSETS in each.checkpoints]  # fmt: skip
    cleaned_to = max(known) if known else L.INT64_MAX
    damaged, lost, cleaned = list[OffsetSpan](), list[OffsetSpan](), list[OffsetSpan]()
    for each in missing.ranges:
        if copy.batches.is_damaged_in(each):
            damaged.append(each)
        else:
            (cleaned if each.first < cleaned_to else lost).append(each)
    return damaged, lost, cleaned


def _of_copy(
    copy: _Copy,
    missing: Missing,
    cleaned: Sequence[OffsetSpan],
    lost: Sequence[OffsetSpan],
    damaged: Sequence[OffsetSpan],
) -> dict[str, object]:
    return {
        "path": copy.target.path,
        "log_start_offset": copy.start_offset,
        "log_end_offset": copy.end_offset,
        "high_watermark": copy.checkpoints.get(Role.HIGH_WATERMARKS),
        "segments": len(copy.log.segments),
        "batches": copy.batches.batches,
        "bytes": copy.batches.read_bytes,
        "damaged_bytes": copy.batches.damaged_bytes,
        "records_missing": missing.records,
        "cleaned": _pairs(cleaned),
        "missing": _pairs(lost),
        "damaged": _pairs(damaged),
    }


def _pairs(ranges: Sequence[OffsetSpan]) -> list[list[int]]:
    return [[each.first, each.last] for each in ranges]


def _drawn(copy: _Copy, missing: Missing) -> CopyPicture:
    segments = [segment.base_offset for segment in copy.log.segments[:_SEGMENTS_DRAWN]]
    end = copy.end_offset
    damaged = [OffsetSpan(each.first, min(each.last, max(each.first, end))) for each in copy.batches.damaged]
    return CopyPicture(copy.start_offset, end, segments, damaged, missing.ranges)


# --- what lies beside the log


def _topic_id(log: PartitionLog) -> str | None:
    data = _side_file(log, Role.PARTITION_METADATA)
    try:
        return None if data is None else decode_partition_metadata(data).topic_id
    except FormatError:
        return None


def _epochs_differ_at(a: PartitionLog, b: PartitionLog, start: int, end: int) -> int | None:
    """The first offset that both logs have and their leader epoch caches assign to different epochs; None where there is none, or a cache
    that cannot be read."""
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
