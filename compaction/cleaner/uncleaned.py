"""Whether a broker's cleaner has left a log uncleaned although it was due, for `doctor`: "a compacted topic grows without end".

A cleaner that fails on a log marks the partition as uncleanable, says so once in the broker's log, and does not try it again before the
next start, where it fails again (Kafka: LogCleaner.CleanerThread.tryCleanFilthiestLog). Every file of the log is sound, so nothing else
reports it.

1. The evidence is in the log alone: a day before its newest segment was last written, it was due for cleaning, and the checkpoint of the
   cleaner has not moved past that part since. A cleaner takes the filthiest log every 15 seconds (log.cleaner.backoff.ms).
2. The cause is what the plan of a compaction says. A log from which it would remove nothing is not reported.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from enum import StrEnum

from kseg.change.plan.inputs import inputs_of
from kseg.change.plan.steps import FileIdentity
from kseg.compaction.cleaner.cleanable import LogToClean, cleanable
from kseg.compaction.cleaner.cleaning_evidence import CleaningEvidence, gather, open_log
from kseg.compaction.cleaner.compact import is_past_limit, not_cleaned_by_any, prepare, with_topic_settings
from kseg.compaction.cleaner.options import DAY_MS, CleanSettings, CompactOptions
from kseg.compaction.cleaner.rows import CompactResult
from kseg.jobs.events import Event, Failure, Row
from kseg.segment.errors import KsegError
from kseg.segment.findings import Finding
from kseg.segment.layout import LOG_SUFFIX
from kseg.segment.partition.targets import PartitionTarget
from kseg.segment.partition.topic_settings import Setting, Source, TopicSettings
from kseg.segment.values import dataclass

DEFAULT_MIN_CLEANABLE_DIRTY_RATIO = 0.5
_WAITED_MS = DAY_MS


class Cause(StrEnum):
    """Why the log was not cleaned. FUTURE_TIMESTAMPS: by its files it is old enough for min.compaction.lag.ms, by its records it is not."""

    NEGATIVE_TIMESTAMPS = "negative-timestamps"
    FUTURE_TIMESTAMPS = "future-timestamps"
    HELD_BACK = "last-stable-offset"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class Uncleaned:
    """A log that waits for its cleaner. first_dirty_offset: where the next cleaning begins. dirty_bytes: of closed segments from there on.
    freed_bytes: what a compaction would remove, 0 if an open transaction or the high watermark holds all of it back. held_at: the last
    stable offset. dirty_since_ms: when the first dirty segment was last written. last_written_ms: the same of the newest one."""

    directory: str
    size_bytes: int
    dirty_bytes: int
    freed_bytes: int
    first_dirty_offset: int
    held_at: int
    dirty_since_ms: int
    last_written_ms: int
    cause: Cause


def uncleaned(target: PartitionTarget, options: CompactOptions) -> Iterator[Event]:
    """One row, without values, whose result is an `Uncleaned`; none if the cleaner keeps up, or if that cannot be determined."""
    if not_cleaned_by_any(target) is not None:
        return
    options = replace(options, from_checkpoint=True, top_keys=0)
    try:
        with_settings, known, excluded = with_topic_settings(target, options)
        if excluded is not None:
            return
        inputs = inputs_of(target.path, follow_links=True)
        if not _spans_the_wait(inputs):
            return
        log, dir_state = open_log(target, with_settings)
        with log:
            if not log.segments:
                return
            found = _waiting(
                target.path, gather(log, dir_state, inputs, with_settings), with_settings.settings
            )
        if found is not None and found.cause is not Cause.HELD_BACK:
            if found.cause is Cause.FUTURE_TIMESTAMPS:
                options = _without_lag(target, options, known)
            found = _explained(target, options, found)
    except KsegError:
        return  # `verify` reports what is wrong with it
    if found is not None:
        yield Row({}, found)


def _spans_the_wait(inputs: Sequence[FileIdentity]) -> bool:
    """Whether segments are so old, compared with the newest one, that the log may have waited. Most logs need not be opened then."""
    written = [file.mtime_ns // 1_000_000 for file in inputs if file.name.endswith(LOG_SUFFIX)]
    return bool(written) and max(written) - min(written) >= _WAITED_MS


def _waiting(path: str, evidence: CleaningEvidence, settings: CleanSettings) -> Uncleaned | None:
    """The log, if it was due a day before it was last written, and has not been cleaned since."""
    log, segments = evidence.log_to_clean, evidence.segments
    newest_ms = max(segment.mtime_ms for segment in segments)
    former = replace(settings, now_ms=min(newest_ms, settings.now_ms) - _WAITED_MS)
    without_lag = replace(settings, min_compaction_lag_ms=0)
    before_lag = replace(without_lag, now_ms=former.now_ms - max(0, settings.min_compaction_lag_ms))
    stable = replace(log, last_stable_offset=log.log_end_offset)
    # what would have to be otherwise, so that the cleaner had been due
    for cause, given, then, now in (
        (Cause.UNKNOWN, log, former, settings),
        (Cause.FUTURE_TIMESTAMPS, log, before_lag, without_lag),
        (Cause.HELD_BACK, stable, before_lag, without_lag),
    ):
        if not _is_due(evidence, _as_of(given, then.now_ms), then):
            continue
        range_ = cleanable(given, now)
        dirty = [each for each in segments if each.base_offset >= range_.first_dirty_offset] or segments[-1:]
        return Uncleaned(
            directory=path,
            size_bytes=sum(segment.size_bytes for segment in segments),
            dirty_bytes=range_.dirty_bytes,
            freed_bytes=0,
            first_dirty_offset=range_.first_dirty_offset,
            held_at=log.last_stable_offset,
            dirty_since_ms=dirty[0].mtime_ms,
            last_written_ms=newest_ms,
            cause=cause,
        )
    return None


def _as_of(log: LogToClean, then_ms: int) -> LogToClean:
    """The log with the segments that had been closed by then, and the one after them."""
    segments = log.segments
    closed = 0
    while closed < len(segments) - 1 and segments[closed].mtime_ms <= then_ms:
        closed += 1
    return replace(log, segments=segments[: closed + 1])


def _is_due(evidence: CleaningEvidence, log: LogToClean, settings: CleanSettings) -> bool:
    range_ = cleanable(log, settings)
    former = replace(evidence, log_to_clean=log)
    return range_.is_due(settings, is_past_limit(former, range_, settings))


def _without_lag(
    target: PartitionTarget, options: CompactOptions, known: TopicSettings | None
) -> CompactOptions:
    """The options of a compaction that ignores min.compaction.lag.ms."""
    settings = replace(options.settings, min_compaction_lag_ms=0)
    if known is None:
        return replace(options, settings=settings)
    topic = {**known.settings, "min.compaction.lag.ms": Setting("0", Source.OPTION)}
    return replace(options, settings=settings, topics={target.path: replace(known, settings=topic)})


def _explained(target: PartitionTarget, options: CompactOptions, found: Uncleaned) -> Uncleaned | None:
    """`found` with what the plan of a compaction tells; None if it would remove nothing, or if the log is damaged."""
    is_negative, planning = False, prepare(target, options)
    while True:
        try:
            event = next(planning)
        except StopIteration as ended:
            prepared = ended.value
            break
        if isinstance(event, Failure):
            return None
        is_negative |= isinstance(event, Finding) and event.id == "negative-timestamp-rewritten"
    if prepared is None:
        return None
    result: CompactResult = prepared.result
    freed_bytes = result.bytes_before - result.bytes_after
    if is_negative:
        return replace(found, freed_bytes=freed_bytes, cause=Cause.NEGATIVE_TIMESTAMPS)
    return replace(found, freed_bytes=freed_bytes) if freed_bytes > 0 else None
