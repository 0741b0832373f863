"""Which segments a broker's retention deletes (Kafka: UnifiedLog.deleteOldSegments; fact sheet §7).

1. With `delete` in cleanup.policy three passes follow each other: log start offset, size, time. Otherwise only the first.
2. A pass begins at the oldest segment that is left and stops at the first one that stays. A segment goes when
   a. the high watermark has reached its upper bound: the next segment's base, of the last segment the log end;
   b. the rule of the pass is breached:
          log start   there is a next segment, and it begins at or below the log start offset
          size        of all bytes in `.log` files above the limit at least this segment's are still to go
          time        now − its greatest timestamp (or the file's modification time) > retention.ms
   c. it is not an empty last segment.
3. When nothing would be left, an empty segment is begun at the log end first.
4. The log start offset becomes the base of the first segment left, if that is greater.

Of Kafka 0.7 (module ancient) only the two rules of size and time are the same, in the other order.
"""

from collections.abc import Sequence
from dataclasses import replace
from enum import StrEnum

from kseg.compaction.retention.options import Limits
from kseg.segment.values import dataclass


class Rule(StrEnum):
    """By which a segment goes; the value is the word in the rows."""

    LOG_START = "log-start-offset"
    SIZE = "retention.bytes"
    TIME = "retention.ms"
    FREE = "free"


@dataclass(frozen=True, slots=True)
class Candidate:
    """What the rules look at. stamp_ms: the greatest timestamp, or the modification time where there is none."""

    base_offset: int
    size_bytes: int
    stamp_ms: int


@dataclass(frozen=True, slots=True)
class LogToRetain:
    """A log as the rules see it. candidates: all segments, oldest first. The offsets are the log's."""

    candidates: tuple[Candidate, ...]
    log_start_offset: int
    log_end_offset: int
    high_watermark: int
    now_ms: int

    def upper_bound(self, index: int) -> int:
        """What the high watermark must have reached for a segment to go."""
        if index + 1 < len(self.candidates):
            return self.candidates[index + 1].base_offset
        return self.log_end_offset

    def is_below_high_watermark(self, index: int) -> bool:
        return self.high_watermark >= self.upper_bound(index)

    def is_empty_last(self, index: int) -> bool:
        return index + 1 == len(self.candidates) and not self.candidates[index].size_bytes

    @property
    def size_bytes(self) -> int:
        return sum(candidate.size_bytes for candidate in self.candidates)


@dataclass(frozen=True, slots=True)
class Decision:
    """rules: by which each deleted segment goes, oldest first; the others stay. rolls: an empty segment is begun
    at the log end. log_start_offset: afterwards."""

    rules: tuple[Rule, ...]
    rolls: bool
    log_start_offset: int


def decide(standing: LogToRetain, limits: Limits) -> Decision:
    """What goes, by the plan above."""
    rules = [Rule.LOG_START] * _breached_by_start(standing)
    if limits.deletes:
        rules += [Rule.SIZE] * _breached_by_size(standing, limits, len(rules))
        rules += [Rule.TIME] * _breached_by_time(standing, limits, len(rules))
    if not rules:
        return Decision((), rolls=False, log_start_offset=standing.log_start_offset)
    rolls = len(rules) == len(standing.candidates)
    first = standing.upper_bound(len(rules) - 1)
    return Decision(tuple(rules), rolls, max(first, standing.log_start_offset))


def decide_to_free(standing: LogToRetain, due: Decision, cut: int | None) -> Decision:
    """What goes of the oldest segments below the offset `cut`, None for nothing. due: what the topic's own limits delete, which gives
    those their rule. The last segment stays, and so does what reaches above the high watermark."""
    rules: list[Rule] = []
    while (
        cut is not None
        and (index := len(rules)) + 1 < len(standing.candidates)
        and standing.upper_bound(index) <= cut
        and may_go(standing, index)
    ):
        rules.append(due.rules[index] if index < len(due.rules) else Rule.FREE)
    if not rules:
        return Decision((), rolls=False, log_start_offset=standing.log_start_offset)
    first = standing.upper_bound(len(rules) - 1)
    return Decision(tuple(rules), False, max(first, standing.log_start_offset))


def may_go(standing: LogToRetain, index: int) -> bool:
    """Whether nothing but its age or the size of the log keeps a segment."""
    return standing.is_below_high_watermark(index) and not standing.is_empty_last(index)


def _breached_by_start(standing: LogToRetain) -> int:
    count = 0
    while (
        count + 1 < len(standing.candidates)
        and standing.upper_bound(count) <= standing.log_start_offset
        and may_go(standing, count)
    ):
        count += 1
    return count


def excess_bytes(candidates: Sequence[Candidate], limits: Limits) -> int:
    """By how much these segments are above retention.bytes; negative when they are below, or there is no limit."""
    size_bytes = sum(candidate.size_bytes for candidate in candidates)
    return (
        size_bytes - limits.retention_bytes if limits.has_size and limits.retention_bytes is not None else -1
    )


def _breached_by_size(standing: LogToRetain, limits: Limits, start: int) -> int:
    excess = excess_bytes(standing.candidates[start:], limits)
    if excess < 0:
        return 0
    index = start
    while index < len(standing.candidates) and may_go(standing, index):
        excess -= standing.candidates[index].size_bytes
        if excess < 0:
            break
        index += 1
    return index - start


def is_expired(standing: LogToRetain, limits: Limits, candidate: Candidate) -> bool:
    """Strictly older than the limit."""
    if not limits.has_time or limits.retention_ms is None:
        return False
    return standing.now_ms - candidate.stamp_ms > limits.retention_ms


def _breached_by_time(standing: LogToRetain, limits: Limits, start: int) -> int:
    index = start
    while (
        index < len(standing.candidates)
        and may_go(standing, index)
        and is_expired(standing, limits, standing.candidates[index])
    ):
        index += 1
    return index - start


# --- other limits


@dataclass(frozen=True, slots=True)
class Threshold:
    """The greatest limits with which a segment would go, each alone; None: with no limit."""

    retention_ms: int | None
    retention_bytes: int | None


def thresholds(standing: LogToRetain) -> tuple[Threshold, ...]:
    """For each segment. Linear in their number."""
    found = []
    youngest_ms: int | None = None
    rest_bytes = standing.size_bytes
    can_go = True
    for index, candidate in enumerate(standing.candidates):
        can_go = can_go and may_go(standing, index)
        youngest_ms = candidate.stamp_ms if youngest_ms is None else max(youngest_ms, candidate.stamp_ms)
        rest_bytes -= candidate.size_bytes
        age_ms = standing.now_ms - youngest_ms - 1
        found.append(Threshold(age_ms if can_go and age_ms >= 0 else None, rest_bytes if can_go else None))
    return tuple(found)


@dataclass(frozen=True, slots=True)
class WhatIf:
    """What one limit would free, with nothing but the log start offset beside it. rule: of that limit."""

    rule: Rule
    value: int
    segments: int
    bytes_freed: int
    log_start_offset: int


_LADDER_MS = tuple(
    hours * 3_600_000 for hours in (1, 6, 24, 2 * 24, 3 * 24, 7 * 24, 14 * 24, 30 * 24, 90 * 24, 365 * 24)
)
_LADDER_PERCENT = (0, 10, 25, 50, 75, 90)


def what_if(standing: LogToRetain, limits: Limits) -> tuple[WhatIf, ...]:
    """A ladder of ages from an hour to a year, and of shares of what is there now."""
    ladder = [(Rule.TIME, value) for value in _LADDER_MS]
    ladder += [(Rule.SIZE, standing.size_bytes * percent // 100) for percent in _LADDER_PERCENT]
    return tuple(_if(standing, limits, rule, value) for rule, value in ladder)


def _if(standing: LogToRetain, limits: Limits, rule: Rule, value: int) -> WhatIf:
    alone = replace(
        limits,
        retention_ms=value if rule is Rule.TIME else None,
        retention_bytes=value if rule is Rule.SIZE else None,
    )
    decision = decide(standing, alone)
    gone = len(decision.rules)
    freed = sum(candidate.size_bytes for candidate in standing.candidates[:gone])
    return WhatIf(rule, value, gone, freed, decision.log_start_offset)
