"""Explain why each segment is deleted or kept, and which record or offset holds it.

The passes stop at the first segment that is kept; what holds it also holds all later segments, and the reasons of
those that exceed a limit themselves say so. "Held by" is the record with the greatest timestamp, the high watermark, or the
modification time of a file without timestamps.
"""

from collections.abc import Callable, Iterator

from kseg.compaction.retention.options import Limits, RetainOptions
from kseg.compaction.retention.rules import Decision, LogToRetain, Rule, excess_bytes, is_expired
from kseg.compaction.retention.units import duration_words
from kseg.segment.counted import counted
from kseg.segment.moments import moment
from kseg.segment.values import dataclass

DELETE, KEEP = "delete", "keep"

# what keeps a segment, other than the limits
HIGH_WATERMARK, NOT_COPIED, ACTIVE, FUTURE, ORDER, NO_LIMIT, POLICY, MARKED_ONLY = (
    "high-watermark",
    "not-copied",
    "active",
    "future-timestamp",
    "order",
    "no-limit",
    "cleanup.policy",
    "marked-only",
)


@dataclass(frozen=True, slots=True)
class SegmentTimestamp:
    """Where a segment's age comes from. offset: of the record with the greatest timestamp, None when unknown. is_mtime: the
    segment has no timestamp, the file's modification time counts."""

    timestamp_ms: int
    offset: int | None = None
    is_mtime: bool = False

    @property
    def words(self) -> str:
        if self.is_mtime:
            return f"its file, last written at {moment(self.timestamp_ms)} (no record has a timestamp),"
        where = "" if self.offset is None else f" at offset {self.offset}"
        return f"its greatest timestamp {moment(self.timestamp_ms)}{where}"


@dataclass(frozen=True, slots=True)
class HeldBy:
    """What a kept segment is held by. kind: record, file-time, high-watermark."""

    kind: str
    offset: int | None = None
    timestamp_ms: int | None = None


@dataclass(frozen=True, slots=True)
class Verdict:
    verdict: str
    rule: str
    reason: str
    held_by: HeldBy | None = None


TimestampOf = Callable[[int, bool], SegmentTimestamp]


def verdicts(
    log_to_retain: LogToRetain, options: RetainOptions, decision: Decision, timestamp_of: TimestampOf
) -> Iterator[Verdict]:
    """One verdict for each segment, in order.

    timestamp_of: the source of the age of a segment, by its number; called with True for the one that holds the others, for which
    the record is looked up.
    """
    deleted_count, limits = len(decision.rules), options.limits
    excess = excess_bytes(log_to_retain.candidates, limits)
    for index, rule in enumerate(decision.rules):
        yield _deleted(log_to_retain, limits, rule, index, excess)
        excess -= log_to_retain.candidates[index].size_bytes
    first: Verdict | None = None
    for index in range(deleted_count, len(log_to_retain.candidates)):
        kept = _KeptSegment(log_to_retain, limits, index, excess, first, deleted_count)
        if options.only_marked:
            verdict = Verdict(
                KEEP, MARKED_ONLY, "only files that are already marked for deletion are concerned"
            )
        else:
            verdict = kept.verdict(timestamp_of) if options.cuts is None else kept.not_freed()
        first = first or verdict
        yield verdict


def _deleted(log_to_retain: LogToRetain, limits: Limits, rule: Rule, index: int, excess: int) -> Verdict:
    candidate = log_to_retain.candidates[index]
    match rule:
        case Rule.LOG_START:
            reason = (
                f"the log starts at {log_to_retain.log_start_offset}, and this segment ends before "
                f"{log_to_retain.upper_bound(index)}"
            )
        case Rule.SIZE:
            reason = (
                f"the log is {counted(excess, 'byte')} above the limit of {counted(limits.retention_bytes or 0, 'byte')}, "
                f"and this segment has {counted(candidate.size_bytes, 'byte')}"
            )
        case Rule.TIME:
            age = duration_words(log_to_retain.now_ms - candidate.stamp_ms)
            reason = f"it is {age} old, which is more than {duration_words(limits.retention_ms or 0)}"
        case Rule.FREE:
            age = duration_words(log_to_retain.now_ms - candidate.stamp_ms)
            reason = f"it is {age} old and among the oldest segments, which are deleted to free space"
    return Verdict(DELETE, rule.value, reason)


@dataclass(frozen=True, slots=True)
class _KeptSegment:
    """One segment that is kept. excess: bytes above the limit when the passes reach it. first: the verdict of the
    first kept segment, None for that segment itself."""

    log_to_retain: LogToRetain
    limits: Limits
    index: int
    excess: int
    first: Verdict | None
    first_index: int

    def not_freed(self) -> Verdict:
        """The verdict when segments are chosen by the bytes to free."""
        log_to_retain = self.log_to_retain
        if not self.limits.deletes:
            return Verdict(KEEP, POLICY, self._policy())
        if self.index + 1 == len(log_to_retain.candidates):
            return Verdict(KEEP, ACTIVE, "the active segment is never deleted to free space")
        if not log_to_retain.is_below_high_watermark(self.index):
            return self._at_high_watermark()
        if not log_to_retain.is_copied(self.index):
            return self._not_copied()
        return Verdict(KEEP, Rule.FREE.value, "it is not among the segments chosen to free space")

    def verdict(self, timestamp_of: TimestampOf) -> Verdict:
        log_to_retain, limits = self.log_to_retain, self.limits
        if log_to_retain.is_empty_last(self.index):
            return Verdict(KEEP, ACTIVE, "the active segment is empty and is never deleted")
        if not limits.deletes:
            return Verdict(KEEP, POLICY, self._policy())
        if not limits.has_time and not limits.has_size:
            return Verdict(KEEP, NO_LIMIT, self._no_limit())
        if not log_to_retain.is_below_high_watermark(self.index):
            return self._at_high_watermark()
        if self.first is not None and self._exceeds_limits():
            base = log_to_retain.candidates[self.first_index].base_offset
            reason = f"it would be deleted, but segment {base} before it is kept"
            return Verdict(KEEP, ORDER, reason, self.first.held_by)
        if self._exceeds_limits() and not log_to_retain.is_copied(self.index):
            return self._not_copied()
        return self._within_limits(timestamp_of)

    def _no_limit(self) -> str:
        """The reason if neither limit applies: -1 is unlimited, None was not given."""
        limits = {"retention.ms": self.limits.retention_ms, "retention.bytes": self.limits.retention_bytes}
        off = " and ".join(f"{name} is {value}" for name, value in limits.items() if value is not None)
        start = self.log_to_retain.log_start_offset
        below = f"; it ends above the log start offset {start}" if start else ""
        return f"{f'{off}, no limit' if off else 'no retention limit was given'}{below}"

    def _policy(self) -> str:
        word = self.limits.policy_text
        return f"cleanup.policy is {word}" if word else "cleanup.policy is empty"

    def _at_high_watermark(self) -> Verdict:
        high_watermark = self.log_to_retain.high_watermark
        upper = self.log_to_retain.upper_bound(self.index)
        reason = (
            f"the high watermark {high_watermark} has not reached {upper}, where the segment ends; a leader raises it when the in-sync "
            "replicas have the records"
        )
        return Verdict(KEEP, HIGH_WATERMARK, reason, HeldBy("high-watermark", high_watermark))

    def _not_copied(self) -> Verdict:
        end, upper = self.log_to_retain.remote_end_offset, self.log_to_retain.upper_bound(self.index)
        known = (
            f"remote storage has the log up to {end}" if end else "nothing here says what remote storage has"
        )
        reason = f"{known}, and the segment ends at {upper}: only segments that have been copied are deleted"
        return Verdict(KEEP, NOT_COPIED, reason)

    def _exceeds_limits(self) -> bool:
        candidate = self.log_to_retain.candidates[self.index]
        exceeds_size = self.limits.has_size and self.excess >= candidate.size_bytes
        return exceeds_size or is_expired(self.log_to_retain, self.limits, candidate)

    def _within_limits(self, timestamp_of: TimestampOf) -> Verdict:
        reasons = []
        rule: str = Rule.SIZE.value
        held_by = None
        if self.limits.has_time and self.limits.retention_ms is not None:
            timestamp = timestamp_of(self.index, self.first is None)
            age_ms = self.log_to_retain.now_ms - timestamp.timestamp_ms
            limit = duration_words(self.limits.retention_ms)
            kind = "file-time" if timestamp.is_mtime else "record"
            held_by = HeldBy(kind, timestamp.offset, timestamp.timestamp_ms)
            if age_ms < 0:
                rule = FUTURE
                reasons.append(f"{timestamp.words} is {duration_words(-age_ms)} in the future")
            else:
                rule = Rule.TIME.value
                reasons.append(f"{timestamp.words} is {duration_words(age_ms)} old, the limit is {limit}")
        if self.limits.has_size:
            reasons.append(self._size())
        if self.limits.has_size and self.first is None:
            reasons[-1] += " (only whole segments are deleted, and the log never shrinks below the limit)"
        return Verdict(KEEP, rule, "; ".join(reasons), held_by)

    def _size(self) -> str:
        size = counted(self.log_to_retain.candidates[self.index].size_bytes, "byte")
        limit = counted(self.limits.retention_bytes or 0, "byte")
        if self.excess < 0:
            return f"the log is within {limit}"
        return f"the log is {counted(self.excess, 'byte')} above {limit}, and this segment has {size}"
