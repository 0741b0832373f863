"""The cleanable range of a log (Kafka: LogCleanerManager, LogToClean; fact sheet §8.1)."""

from collections.abc import Sequence
from enum import StrEnum

from kseg.compaction.cleaner.options import CleanSettings
from kseg.compaction.cleaner.segments import CleanerSegment, between
from kseg.segment.values import dataclass


class Bound(StrEnum):
    """What limits the cleanable range."""

    ACTIVE = "active segment"
    UNSTABLE = "last stable offset"
    LAG = "min.compaction.lag.ms"


@dataclass(frozen=True, slots=True)
class LogToClean:
    """Input of the rules. segments: the last one is the active one. last_clean_offset: from the cleaner checkpoint or
    the user, None if neither has one; first_batch_timestamps is called only for max.compaction.lag.ms."""

    segments: Sequence[CleanerSegment]
    log_start_offset: int
    log_end_offset: int
    last_stable_offset: int
    last_clean_offset: int | None


@dataclass(frozen=True, slots=True)
class Cleanable:
    """first_dirty_offset <= offset < first_uncleanable_offset is cleaned, the latter being the base of a segment.
    clean_bytes, dirty_bytes: of the logs, by whole segments. bound: what ends the range. is_reset: the checkpointed
    offset is outside the log, so cleaning starts at the log start offset."""

    first_dirty_offset: int
    first_uncleanable_offset: int
    clean_bytes: int
    dirty_bytes: int
    bound: Bound
    is_reset: bool

    @property
    def dirty_ratio(self) -> float:
        """0 for a log without bytes."""
        total = self.clean_bytes + self.dirty_bytes
        return self.dirty_bytes / total if total else 0.0

    def is_due(self, settings: CleanSettings, is_overdue: bool) -> bool:
        """Whether a cleaner would select the log. is_overdue: max.compaction.lag.ms has passed for part of it."""
        if not self.dirty_bytes:
            return False
        return is_overdue or self.dirty_ratio > settings.min_cleanable_dirty_ratio


def cleanable(log: LogToClean, settings: CleanSettings) -> Cleanable:
    """The cleanable range. The log must have at least one segment."""
    first_dirty, is_reset = _first_dirty(log)
    active = log.segments[-1]
    bounds = [(log.last_stable_offset, Bound.UNSTABLE), (active.base_offset, Bound.ACTIVE)]
    lagging = _lagging(log, settings, first_dirty)
    if lagging is not None:
        bounds.append((lagging, Bound.LAG))
    uncleanable, bound = min(bounds)
    if uncleanable == active.base_offset:
        bound = Bound.ACTIVE
    uncleanable = max(first_dirty, uncleanable)
    inactive = between(log.segments, uncleanable, active.base_offset)
    first_uncleanable = (inactive[0] if inactive else active).base_offset
    clean = between(log.segments, 0, first_dirty)
    dirty = between(log.segments, min(first_dirty, first_uncleanable), first_uncleanable)
    return Cleanable(
        first_dirty,
        first_uncleanable,
        sum(segment.size_bytes for segment in clean if segment.base_offset < first_dirty),
        sum(segment.size_bytes for segment in dirty),
        bound,
        is_reset,
    )


def _first_dirty(log: LogToClean) -> tuple[int, bool]:
    last_clean = log.last_clean_offset
    if last_clean is None:
        return log.log_start_offset, False
    if log.log_start_offset <= last_clean <= log.log_end_offset:
        return last_clean, False
    return log.log_start_offset, True


def _lagging(log: LogToClean, settings: CleanSettings, first_dirty: int) -> int | None:
    if settings.min_compaction_lag_ms <= 0:
        return None
    youngest_ms = settings.now_ms - settings.min_compaction_lag_ms
    active = log.segments[-1].base_offset
    for segment in between(log.segments, first_dirty, active):
        if segment.largest_timestamp_ms > youngest_ms:
            return segment.base_offset
    return None


def is_overdue(first_timestamps: Sequence[int], settings: CleanSettings) -> bool:
    """Whether records have waited longer than max.compaction.lag.ms.

    first_timestamps: the maximum timestamp of the first batch of each dirty segment except the active one.
    """
    if settings.max_compaction_lag_ms is None:
        return False
    known = [timestamp for timestamp in first_timestamps if timestamp > 0]
    return bool(known) and min(known) < settings.now_ms - max(0, settings.max_compaction_lag_ms)
