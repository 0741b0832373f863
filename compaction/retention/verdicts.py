"""Why each segment goes or stays, in words, and what holds it.

The first segment that stays is the one that the passes stopped at; what holds it holds all behind it, which is said
of those that would go on their own. "Held by" is the record with the greatest timestamp, the high watermark, or the
modification time of a file without timestamps.
"""

from collections.abc import Callable, Iterator

from kseg.compaction.retention.options import Limits, RetainOptions
from kseg.compaction.retention.rules import Decision, LogToRetain, Rule, excess_bytes, is_expired
from kseg.compaction.retention.units import bytes_words, duration_words
from kseg.segment.values import dataclass

DELETE, KEEP = "delete", "keep"

# what keeps a segment, besides the limits
HIGH_WATERMARK, ACTIVE, FUTURE, ORDER, NO_LIMIT, POLICY = (
    "high-watermark",
    "active",
    "future-timestamp",
    "order",
    "no-limit",
    "cleanup.policy",
)


@dataclass(frozen=True, slots=True)
class Stamp:
    """Where a segment's age comes from. offset: of the record with the greatest timestamp, None when nobody knows.
    is_mtime: it has none, the file's modification time counts."""

    timestamp_ms: int
    offset: int | None = None
    is_mtime: bool = False

    @property
    def words(self) -> str:
        if self.is_mtime:
            return f"its file, last written at {self.timestamp_ms} (no record has a timestamp),"
        where = "" if self.offset is None else f" at offset {self.offset}"
        return f"its greatest timestamp {self.timestamp_ms}{where}"


@dataclass(frozen=True, slots=True)
class HeldBy:
    """What a segment that stays waits for. kind: record, file-time, high-watermark."""

    kind: str
    offset: int | None = None
    timestamp_ms: int | None = None


@dataclass(frozen=True, slots=True)
class Verdict:
    verdict: str
    rule: str
    reason: str
    held_by: HeldBy | None = None


StampOf = Callable[[int, bool], Stamp]


def verdicts(
    standing: LogToRetain, options: RetainOptions, decision: Decision, stamp_of: StampOf
) -> Iterator[Verdict]:
    """One for each segment, in order. stamp_of: where the age of a segment by number comes from; asked with True for
    the one that holds the others, whose record is worth looking for."""
    gone, limits = len(decision.rules), options.limits
    excess = excess_bytes(standing.candidates, limits)
    for index, rule in enumerate(decision.rules):
        yield _deleted(standing, limits, rule, index, excess)
        excess -= standing.candidates[index].size_bytes
    first: Verdict | None = None
    for index in range(gone, len(standing.candidates)):
        stays = _Stays(standing, limits, index, excess, first, gone)
        verdict = stays.verdict(stamp_of) if options.cuts is None else stays.not_freed()
        first = first or verdict
        yield verdict


def _deleted(standing: LogToRetain, limits: Limits, rule: Rule, index: int, excess: int) -> Verdict:
    candidate = standing.candidates[index]
    match rule:
        case Rule.LOG_START:
            reason = (
                f"the log starts at {standing.log_start_offset}, and this segment ends before "
                f"{standing.upper_bound(index)}"
            )
        case Rule.SIZE:
            reason = (
                f"the log is {bytes_words(excess)} above the limit of {bytes_words(limits.retention_bytes or 0)}, "
                f"and this segment has {bytes_words(candidate.size_bytes)}"
            )
        case Rule.TIME:
            age = duration_words(standing.now_ms - candidate.stamp_ms)
            reason = f"it is {age} old, which is more than {duration_words(limits.retention_ms or 0)}"
        case Rule.FREE:
            age = duration_words(standing.now_ms - candidate.stamp_ms)
            reason = f"it is {age} old and among the oldest segments, whose bytes are to be freed"
    return Verdict(DELETE, rule.value, reason)


@dataclass(frozen=True, slots=True)
class _Stays:
    """One segment that stays. excess: bytes above the limit when the passes come to it. first: the verdict of the
    first one that stays, None for itself."""

    standing: LogToRetain
    limits: Limits
    index: int
    excess: int
    first: Verdict | None
    first_index: int

    def not_freed(self) -> Verdict:
        """Where segments are chosen by the bytes that are to be freed."""
        standing = self.standing
        if not self.limits.deletes:
            return Verdict(KEEP, POLICY, self._policy())
        if self.index + 1 == len(standing.candidates):
            return Verdict(KEEP, ACTIVE, "the active segment never goes for its bytes")
        if not standing.is_below_high_watermark(self.index):
            return self._at_high_watermark()
        return Verdict(KEEP, Rule.FREE.value, "it is not among what is chosen to be freed")

    def verdict(self, stamp_of: StampOf) -> Verdict:
        standing, limits = self.standing, self.limits
        if standing.is_empty_last(self.index):
            return Verdict(KEEP, ACTIVE, "the active segment, and empty: it never goes")
        if not limits.deletes:
            return Verdict(KEEP, POLICY, self._policy())
        if not limits.has_time and not limits.has_size:
            return Verdict(KEEP, NO_LIMIT, "no limit was given")
        if not standing.is_below_high_watermark(self.index):
            return self._at_high_watermark()
        if self.first is not None and self._would_go_alone():
            base = standing.candidates[self.first_index].base_offset
            reason = f"it would go, but segment {base} before it stays"
            return Verdict(KEEP, ORDER, reason, self.first.held_by)
        return self._within_limits(stamp_of)

    def _policy(self) -> str:
        word = self.limits.policy_text
        return f"cleanup.policy is {word}" if word else "cleanup.policy is empty"

    def _at_high_watermark(self) -> Verdict:
        high_watermark = self.standing.high_watermark
        upper = self.standing.upper_bound(self.index)
        reason = f"the high watermark {high_watermark} has not reached {upper}, where the segment ends"
        return Verdict(KEEP, HIGH_WATERMARK, reason, HeldBy("high-watermark", high_watermark))

    def _would_go_alone(self) -> bool:
        candidate = self.standing.candidates[self.index]
        is_too_much = self.limits.has_size and self.excess >= candidate.size_bytes
        return is_too_much or is_expired(self.standing, self.limits, candidate)

    def _within_limits(self, stamp_of: StampOf) -> Verdict:
        reasons = []
        rule: str = Rule.SIZE.value
        held_by = None
        if self.limits.has_time and self.limits.retention_ms is not None:
            stamp = stamp_of(self.index, self.first is None)
            age_ms = self.standing.now_ms - stamp.timestamp_ms
            limit = duration_words(self.limits.retention_ms)
            kind = "file-time" if stamp.is_mtime else "record"
            held_by = HeldBy(kind, stamp.offset, stamp.timestamp_ms)
            if age_ms < 0:
                rule = FUTURE
                reasons.append(f"{stamp.words} lies {duration_words(-age_ms)} in the future")
            else:
                rule = Rule.TIME.value
                reasons.append(f"{stamp.words} is {duration_words(age_ms)} old, the limit is {limit}")
        if self.limits.has_size:
            reasons.append(self._size())
        if self.limits.has_size and self.first is None:
            reasons[-1] += " (only whole segments go, and the log never gets smaller than the limit)"
        return Verdict(KEEP, rule, "; ".join(reasons), held_by)

    def _size(self) -> str:
        size = bytes_words(self.standing.candidates[self.index].size_bytes)
        limit = bytes_words(self.limits.retention_bytes or 0)
        if self.excess < 0:
            return f"the log is within {limit}"
        return f"the log is {bytes_words(self.excess)} above {limit}, and this segment has {size}"
