"""Determine how far a log once reached, according to the files beside it.

An index entry is trusted unless the log contradicts it. An entry with an offset beyond the log end was altered if a valid batch
is at its position, or if a record of the log is not older than its timestamp: a time index gets an entry only for a greater
timestamp (Kafka: LogSegment.append, TimeIndex.maybeAppend). Nor does a sector of garbage prove anything: a time far in the future, or
many more records in the missing bytes than the log has in as many. Snapshots and checkpoints provide only an offset.
"""

from kseg.recovery.salvage.assessment import Assessment
from kseg.recovery.salvage.logs import Logs
from kseg.recovery.salvage.valid_runs import ValidRunCollector
from kseg.recovery.verify.partition_files import KnownBatchEnd, known_batch_ends
from kseg.segment import header_tables as C
from kseg.segment import layout as L
from kseg.segment.files import Reader
from kseg.segment.values import dataclass

_FAR_MS = 10 * 365 * 24 * 60 * 60 * 1000
_DENSER = 20


@dataclass(frozen=True, slots=True)
class LogEndEvidence:
    """An offset that side files prove the log once reached. by: these files, as text."""

    last_offset: int
    by: str


def known_end(assessment: Assessment, reader: Reader) -> int | None:
    """The greatest plausible offset in any side file."""
    if not assessment.partition.segments:
        return None
    lasts = known_batch_ends(assessment.partition, assessment.log_dir_state, reader)
    reach = _reach(assessment)
    return max((known.offset for known in lasts if known.offset < reach), default=None)


def end_evidence(
    assessment: Assessment, reader: Reader, logs: Logs, end_offset: int, now_ms: int
) -> LogEndEvidence | None:
    """The greatest such offset beyond the log end that the log does not contradict. now_ms: the clock."""
    if not assessment.partition.segments:
        return None
    path = assessment.partition.segments[-1].log.path
    collector = next(collector for collector in assessment.collectors if collector.log.path == path)
    reach = _reach(assessment)
    lasts = known_batch_ends(assessment.partition, assessment.log_dir_state, reader)
    behind = [known for known in lasts if end_offset <= known.offset < reach]
    for known in sorted(behind, key=lambda known: known.offset, reverse=True):
        if not _is_contradicted(known, collector, logs, end_offset, now_ms):
            return LogEndEvidence(known.offset, "an index, a snapshot or a checkpoint")
    return None


def _reach(assessment: Assessment) -> int:
    """The first offset that the last segment cannot hold."""
    lasts = [
        collector.valid_runs[-1].last_offset for collector in assessment.collectors if collector.valid_runs
    ]
    return max((*lasts, assessment.partition.segments[-1].base_offset)) + L.INT32_MAX


def _is_contradicted(
    known: KnownBatchEnd, collector: ValidRunCollector, logs: Logs, end_offset: int, now_ms: int
) -> bool:
    """Whether the last log contradicts an index entry. collector: of that log."""
    position, timestamp_ms = known.position, known.timestamp_ms
    if position is not None:
        is_there = any(found.position <= position < found.end_position for found in collector.valid_runs)
        return is_there or _is_too_dense(known.offset - end_offset, position, collector)
    if timestamp_ms is None:
        return False
    tables = (table for found in collector.valid_runs for table in logs.tables(found))
    newest_ms = max((max(table.column(C.MAX_TIMESTAMP), default=-1) for table in tables), default=-1)
    return not newest_ms < timestamp_ms <= max(newest_ms, now_ms) + _FAR_MS


def _is_too_dense(offsets: int, position: int, collector: ValidRunCollector) -> bool:
    """Whether so many offsets before the batch at `position` are beyond belief, by what the valid batches of the log have."""
    runs = collector.valid_runs
    held = sum(found.last_offset - found.first_offset + 1 for found in runs)
    held_bytes = sum(found.length for found in runs)
    missing_bytes = position - max((found.end_position for found in runs), default=0)
    return bool(runs) and offsets * held_bytes > _DENSER * held * max(missing_bytes, held_bytes)
