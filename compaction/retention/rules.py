"""Which segments a broker's retention deletes (Kafka: UnifiedLog.deleteOldSegments; fact sheet §7).

1. With `delete` in cleanup.policy there are three passes: log start offset, size, time. Otherwise only the first.
2. A pass starts at the oldest remaining segment and stops at the first one that is kept. A segment is deleted when
   a. the high watermark has reached its upper bound: the next segment's base offset, or the log end for the last segment;
   b. the rule of the pass is breached:
          log start   there is a next segment, and it begins at or below the log start offset
          size        the bytes of `.log` files still above the limit are at least this segment's size
          time        now − its greatest timestamp (or the file's modification time) > retention.ms
   c. it is not an empty last segment;
   d. with tiered storage, its offsets are in remote storage up to its upper bound, or below the log start offset.
3. When no segment would remain, an empty segment is created at the log end first.
4. The log start offset becomes the base of the first segment left, if that is greater; with tiered storage it stays.

With tiered storage a broker also rolls an active segment that exceeds a limit, so that it can be copied. That deletes nothing, and is left
to the broker, with one exception: once the pass of the size has rolled it, the pass of the time finds it closed, and deletes it if all of
it is below the log start offset (rule 2d).

Kafka 0.7 (`retain07`) has only the rules of size and time, in reverse order.
"""

from collections.abc import Sequence
from dataclasses import replace
from enum import StrEnum

from kseg.compaction.retention.options import Limits
from kseg.segment.values import dataclass


class Rule(StrEnum):
    """The rule that deletes a segment; the value appears in the rows."""

    LOG_START = "log-start-offset"
    SIZE = "retention.bytes"
    TIME = "retention.ms"
    FREE = "free"


@dataclass(frozen=True, slots=True)
class Candidate:
    """Input of the rules. stamp_ms: the greatest timestamp, or the modification time if there is none."""

    base_offset: int
    size_bytes: int
    stamp_ms: int


@dataclass(frozen=True, slots=True)
class LogToRetain:
    """A log as the rules see it. candidates: all segments, oldest first. The offsets are the log's. remote_end_offset: the offset after the
    last one in remote storage; None for a log whose segments are not copied there."""

    candidates: tuple[Candidate, ...]
    log_start_offset: int
    log_end_offset: int
    high_watermark: int
    now_ms: int
    remote_end_offset: int | None = None

    def upper_bound(self, index: int) -> int:
        """The offset that the high watermark must have reached before a segment may be deleted."""
        if index + 1 < len(self.candidates):
            return self.candidates[index + 1].base_offset
        return self.log_end_offset

    def is_below_high_watermark(self, index: int) -> bool:
        return self.high_watermark >= self.upper_bound(index)

    def is_copied(self, index: int) -> bool:
        """Whether a segment is in remote storage if it has to be (Kafka: UnifiedLog.isSegmentEligibleForDeletion)."""
        if self.remote_end_offset is None:
            return True
        upper_bound = self.upper_bound(index)
        is_below_start = index + 1 < len(self.candidates) and upper_bound <= self.log_start_offset
        return is_below_start or 0 < upper_bound <= self.remote_end_offset

    def start_without(self, count: int) -> int:
        """The log start offset once the `count` oldest segments are deleted."""
        if not count or self.remote_end_offset is not None:
            return self.log_start_offset
        return max(self.upper_bound(count - 1), self.log_start_offset)

    def is_empty_last(self, index: int) -> bool:
        return index + 1 == len(self.candidates) and not self.candidates[index].size_bytes

    @property
    def size_bytes(self) -> int:
        return sum(candidate.size_bytes for candidate in self.candidates)


@dataclass(frozen=True, slots=True)
class Decision:
    """rules: the rule that deletes each segment, oldest first; the others are kept. rolls: an empty segment is created
    at the log end. log_start_offset: afterwards."""

    rules: tuple[Rule, ...]
    rolls: bool
    log_start_offset: int


def decide(log_to_retain: LogToRetain, limits: Limits) -> Decision:
    """Decide which segments are deleted, by the rules above."""
    rules = [Rule.LOG_START] * _breached_by_start(log_to_retain)
    if limits.deletes:
        rules += [Rule.SIZE] * _breached_by_size(log_to_retain, limits, len(rules))
        rules += [Rule.TIME] * _breached_by_time(log_to_retain, limits, len(rules))
        if _is_rolled_and_expired(log_to_retain, limits, len(rules)):
            rules.append(Rule.TIME)
    rolls = bool(rules) and len(rules) == len(log_to_retain.candidates)
    return Decision(tuple(rules), rolls, log_to_retain.start_without(len(rules)))


def decide_to_free(log_to_retain: LogToRetain, due: Decision, cut: int | None) -> Decision:
    """Delete the oldest segments below the offset `cut`, None for none.

    due: what the topic's own limits delete; these segments get the rule of that limit. The last segment is kept, and so are
    segments that end above the high watermark.
    """
    rules: list[Rule] = []
    while (
        cut is not None
        and (index := len(rules)) + 1 < len(log_to_retain.candidates)
        and log_to_retain.upper_bound(index) <= cut
        and is_deletable(log_to_retain, index)
    ):
        rules.append(due.rules[index] if index < len(due.rules) else Rule.FREE)
    return Decision(tuple(rules), False, log_to_retain.start_without(len(rules)))


def is_deletable(log_to_retain: LogToRetain, index: int) -> bool:
    """Whether a segment may be deleted, apart from retention limits."""
    return (
        log_to_retain.is_below_high_watermark(index)
        and not log_to_retain.is_empty_last(index)
        and log_to_retain.is_copied(index)
    )


def _breached_by_start(log_to_retain: LogToRetain) -> int:
    count = 0
    while (
        count + 1 < len(log_to_retain.candidates)
        and log_to_retain.upper_bound(count) <= log_to_retain.log_start_offset
        and is_deletable(log_to_retain, count)
    ):
        count += 1
    return count


def excess_bytes(candidates: Sequence[Candidate], limits: Limits) -> int:
    """By how many bytes these segments exceed retention.bytes; negative when they are below, or there is no limit."""
    size_bytes = sum(candidate.size_bytes for candidate in candidates)
    return (
        size_bytes - limits.retention_bytes if limits.has_size and limits.retention_bytes is not None else -1
    )


def _breached_by_size(log_to_retain: LogToRetain, limits: Limits, start: int) -> int:
    excess = excess_bytes(log_to_retain.candidates[start:], limits)
    if excess < 0:
        return 0
    index = start
    while index < len(log_to_retain.candidates) and is_deletable(log_to_retain, index):
        excess -= log_to_retain.candidates[index].size_bytes
        if excess < 0:
            break
        index += 1
    return index - start


def is_expired(log_to_retain: LogToRetain, limits: Limits, candidate: Candidate) -> bool:
    """Whether a timestamp is strictly older than the limit."""
    if not limits.has_time or limits.retention_ms is None:
        return False
    return log_to_retain.now_ms - candidate.stamp_ms > limits.retention_ms


def _breached_by_time(log_to_retain: LogToRetain, limits: Limits, start: int) -> int:
    index = start
    while (
        index < len(log_to_retain.candidates)
        and is_deletable(log_to_retain, index)
        and is_expired(log_to_retain, limits, log_to_retain.candidates[index])
    ):
        index += 1
    return index - start


def _is_rolled_and_expired(log_to_retain: LogToRetain, limits: Limits, index: int) -> bool:
    """Whether the active segment, the first one that is left, is rolled because of its size and then deleted because of its age."""
    if index + 1 != len(log_to_retain.candidates) or log_to_retain.remote_end_offset is None:
        return False
    last = log_to_retain.candidates[index]
    is_whole = log_to_retain.log_end_offset <= min(
        log_to_retain.log_start_offset, log_to_retain.high_watermark
    )
    is_rolled = last.size_bytes and excess_bytes([last], limits) >= last.size_bytes
    return bool(is_whole and is_rolled) and is_expired(log_to_retain, limits, last)


# --- other limits


@dataclass(frozen=True, slots=True)
class Threshold:
    """The greatest limits that delete a segment, each alone; None: no limit does."""

    retention_ms: int | None
    retention_bytes: int | None


def thresholds(log_to_retain: LogToRetain) -> tuple[Threshold, ...]:
    """The thresholds of each segment, in linear time."""
    found = []
    youngest_ms: int | None = None
    remaining_bytes = log_to_retain.size_bytes
    can_delete = True
    for index, candidate in enumerate(log_to_retain.candidates):
        can_delete = can_delete and is_deletable(log_to_retain, index)
        youngest_ms = candidate.stamp_ms if youngest_ms is None else max(youngest_ms, candidate.stamp_ms)
        remaining_bytes -= candidate.size_bytes
        age_ms = log_to_retain.now_ms - youngest_ms - 1
        found.append(
            Threshold(
                age_ms if can_delete and age_ms >= 0 else None,
                remaining_bytes if can_delete else None,
            )
        )
    return tuple(found)


@dataclass(frozen=True, slots=True)
class WhatIf:
    """What one limit would free, on top of the log start offset. rule: of that limit."""

    rule: Rule
    value: int
    segments: int
    bytes_freed: int
    log_start_offset: int


_LADDER_MS = tuple(
    hours * 3_600_000 for hours in (1, 6, 24, 2 * 24, 3 * 24, 7 * 24, 14 * 24, 30 * 24, 90 * 24, 365 * 24)
)
_LADDER_PERCENT = (0, 10, 25, 50, 75, 90)


def what_if(log_to_retain: LogToRetain, limits: Limits) -> tuple[WhatIf, ...]:
    """Simulated limits: ages from an hour to a year, and shares of the current size."""
    ladder = [(Rule.TIME, value) for value in _LADDER_MS]
    ladder += [(Rule.SIZE, log_to_retain.size_bytes * percent // 100) for percent in _LADDER_PERCENT]
    return tuple(_simulated(log_to_retain, limits, rule, value) for rule, value in ladder)


def _simulated(log_to_retain: LogToRetain, limits: Limits, rule: Rule, value: int) -> WhatIf:
    only_this = replace(
        limits,
        retention_ms=value if rule is Rule.TIME else None,
        retention_bytes=value if rule is Rule.SIZE else None,
    )
    decision = decide(log_to_retain, only_this)
    deleted = len(decision.rules)
    freed = sum(candidate.size_bytes for candidate in log_to_retain.candidates[:deleted])
    return WhatIf(rule, value, deleted, freed, decision.log_start_offset)
