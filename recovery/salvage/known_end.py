"""Determine how far a log once reached, according to the files beside it.

An index entry is trusted unless the log contradicts it. An entry with an offset beyond the log end was altered if a valid batch
is at its position, or if a record of the log is not older than its timestamp: a time index gets an entry only for a greater
timestamp (Kafka: LogSegment.append, TimeIndex.maybeAppend). Snapshots and checkpoints provide only an offset.

A clean shutdown writes everything to disk, and then the log end as the recovery point: no entry proves that a log that still ends there was
longer. It belongs to another log or segment.

Garbage in one of these files can name an offset at any distance beyond the log. So an end whose distance is many times the number of
offsets in the log is believed only if another file indicates a comparable one.
"""

from kseg.recovery.policy import BrokerState
from kseg.recovery.salvage.assessment import Assessment
from kseg.recovery.salvage.logs import Logs
from kseg.recovery.salvage.valid_runs import ValidRunCollector
from kseg.recovery.verify.partition_files import KnownBatchEnd
from kseg.segment import header_tables as C
from kseg.segment import layout as L
from kseg.segment.values import dataclass

_FAR = 20
_FAR_FROM_NOTHING = 100_000


@dataclass(frozen=True, slots=True)
class LogEndEvidence:
    """An offset that side files prove the log once reached. by: these files, as text."""

    last_offset: int
    by: str


def known_end(assessment: Assessment) -> int | None:
    """The greatest plausible offset in any side file."""
    if not assessment.partition.segments:
        return None
    reach = _reach(assessment)
    return max((known.offset for known in assessment.known_ends if known.offset < reach), default=None)


def end_evidence(
    assessment: Assessment, logs: Logs, end_offset: int, broker_state: BrokerState
) -> LogEndEvidence | None:
    """The greatest offset beyond the log end that side files prove and neither the log nor a clean shutdown contradicts."""
    was_stopped_here = broker_state.is_clean and broker_state.recovery_point == end_offset > 0
    if was_stopped_here or not assessment.partition.segments:
        return None
    path = assessment.partition.segments[-1].log.path
    collector = next(collector for collector in assessment.collectors if collector.log.path == path)
    reach = _reach(assessment)
    behind = [known for known in assessment.known_ends if end_offset <= known.offset < reach]
    near = _FAR * _held_offsets(assessment) or _FAR_FROM_NOTHING
    for known in sorted(behind, key=lambda known: known.offset, reverse=True):
        distance = known.offset - end_offset
        is_confirmed = any(
            _FAR * (other.offset - end_offset) >= distance for other in behind if _is_apart(known, other)
        )
        is_believable = is_confirmed or distance <= near
        if is_believable and not _is_contradicted(known, collector, logs):
            return LogEndEvidence(known.offset, "an index, a snapshot or a checkpoint")
    return None


def _held_offsets(assessment: Assessment) -> int:
    """The number of offsets in the valid batches of the log."""
    return sum(
        found.last_offset - found.first_offset + 1
        for collector in assessment.collectors
        for found in collector.valid_runs
    )


def _is_apart(known: KnownBatchEnd, other: KnownBatchEnd) -> bool:
    """Whether they come from different files."""
    if known.position is not None:
        return other.position is None
    if known.timestamp_ms is not None:
        return other.timestamp_ms is None
    return other is not known


def _reach(assessment: Assessment) -> int:
    """The first offset that the last segment cannot hold."""
    lasts = [
        collector.valid_runs[-1].last_offset for collector in assessment.collectors if collector.valid_runs
    ]
    return max((*lasts, assessment.partition.segments[-1].base_offset)) + L.INT32_MAX


def _is_contradicted(known: KnownBatchEnd, collector: ValidRunCollector, logs: Logs) -> bool:
    """Whether the last log contradicts an index entry. collector: of that log."""
    position, timestamp_ms = known.position, known.timestamp_ms
    if position is not None:
        return any(found.position <= position < found.end_position for found in collector.valid_runs)
    if timestamp_ms is None:
        return False
    return any(
        max(table.column(C.MAX_TIMESTAMP), default=-1) >= timestamp_ms
        for found in collector.valid_runs
        for table in logs.tables(found)
    )
