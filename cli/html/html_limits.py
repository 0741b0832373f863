"""The data behind the sliders of a report: what other limits would free, from the rows of `retain` and `compact`.

For each segment, `retain` reports the largest value of each limit at which it would be deleted (`goes_at`). A limit therefore frees
the segments whose value is not below it, without another plan. For each partition, `compact` reports the dirty ratio and the bytes
that compaction saves: a broker compacts those above min.cleanable.dirty.ratio.
"""

from collections.abc import Mapping

from kseg.segment.errors import FormatError
from kseg.segment.partition.names import parse_partition_directory
from kseg.segment.values import dataclass

Values = Mapping[str, object]

_NOT_DELETED = "cleanup.policy"  # the rule for segments to which no limit applies, because of the policy
_RULES = ("retention_ms", "retention_bytes")
STEPS_TOLD = 20_000  # for all topics together
_LEAST_STEPS = 4


@dataclass(slots=True)
class SegmentMark:
    """A segment in a chart, or `count` adjacent ones merged. verdict: `delete` or `keep`, empty if retention was not evaluated."""

    base_offset: int
    end_offset: int
    size_bytes: int
    earliest_ms: int | None
    latest_ms: int | None
    verdict: str = ""
    count: int = 1

    def joined(self, other: "SegmentMark") -> "SegmentMark":
        earliest = [time for time in (self.earliest_ms, other.earliest_ms) if time is not None]
        latest = [time for time in (self.latest_ms, other.latest_ms) if time is not None]
        return SegmentMark(
            self.base_offset,
            other.end_offset,
            self.size_bytes + other.size_bytes,
            min(earliest, default=None),
            max(latest, default=None),
            self.verdict,
            self.count + other.count,
        )


class LimitsData:
    def __init__(self) -> None:
        self._judged: dict[str, list[Values]] = {}
        self._steps: dict[str, dict[str, dict[int, tuple[int, int]]]] = {}
        self._held: dict[str, int] = {}
        self._compactions: list[tuple[str, int, int, float]] = []

    def judged(self, row: Values) -> None:
        """Add a segment as evaluated by `retain`."""
        self._judged.setdefault(str(row["partition"]), []).append(row)

    def settled(self, row: Values) -> list[SegmentMark]:
        """Add the result of a partition, which follows the rows of its segments; returns the segments for its chart."""
        name = str(row["partition"])
        if row.get("command") == "compact":
            self._note_compaction(name, row)
            return []
        judged = self._judged.pop(name, [])
        topic = _topic(name)
        marks: list[SegmentMark] = []
        before_ms: int | None = None
        for at, segment in enumerate(judged):
            end = judged[at + 1]["base_offset"] if at + 1 < len(judged) else row["log_end_offset"]
            base, latest = _whole(segment["base_offset"]), _whole(segment["largest_timestamp"], -1)
            latest_ms = latest if latest >= 0 else None
            earliest_ms = before_ms if before_ms is not None and latest_ms is not None else latest_ms
            before_ms = latest_ms if latest_ms is not None else before_ms
            size = _whole(segment["bytes"])
            if earliest_ms is not None and latest_ms is not None:
                earliest_ms = min(earliest_ms, latest_ms)
            marks.append(SegmentMark(base, max(base, _whole(end, base)), size, earliest_ms, latest_ms, str(segment["verdict"])))  # fmt: skip
            self._held[topic] = self._held.get(topic, 0) + size
            if segment.get("rule") != _NOT_DELETED:
                self._note_limits(topic, segment["goes_at"], size)
        return marks

    def _note_limits(self, topic: str, goes_at: object, size_bytes: int) -> None:
        for rule in _RULES:
            limit = goes_at.get(rule) if isinstance(goes_at, Mapping) else None
            if isinstance(limit, int):
                steps = self._steps.setdefault(topic, {}).setdefault(rule, {})
                freed, segments = steps.get(limit, (0, 0))
                steps[limit] = freed + size_bytes, segments + 1

    def _note_compaction(self, name: str, row: Values) -> None:
        before, after, ratio = row.get("bytes_before"), row.get("bytes_after"), row.get("dirty_ratio")
        if isinstance(before, int) and isinstance(after, int) and isinstance(ratio, float) and before:
            self._compactions.append((name, before, after, ratio))

    def as_data(self) -> dict[str, object]:
        """The data for the file; empty if no segment was evaluated."""
        data: dict[str, object] = {}
        if self._held:
            most = max(_LEAST_STEPS, STEPS_TOLD // max(1, len(self._steps) * len(_RULES)))
            data["freed"] = [
                {"topic": topic, "bytes": self._held[topic]}
                | {rule: _shown_steps(steps, most) for rule, steps in self._steps.get(topic, {}).items()}
                for topic in sorted(self._held)
            ]
        if self._compactions:
            data["compactions"] = sorted(self._compactions, key=lambda each: each[2] - each[1])[:5000]
        return data


def _shown_steps(steps: Mapping[int, tuple[int, int]], most: int) -> list[tuple[int, int, int]]:
    """(limit, bytes, segments) deleted at that limit, largest limit first. If there are very many, adjacent ones are merged under
    the smallest of their limits, so that the chart never promises more than is freed."""
    ordered = sorted(steps.items(), reverse=True)
    each = -(-len(ordered) // most)
    shown = []
    for at in range(0, len(ordered), each):
        several = ordered[at : at + each]
        shown.append(
            (several[-1][0], sum(freed for _, (freed, _) in several), sum(count for _, (_, count) in several))
        )
    return shown


def _topic(name: str) -> str:
    try:
        return parse_partition_directory(name).topic
    except FormatError:
        return name


def _whole(value: object, otherwise: int = 0) -> int:
    return value if isinstance(value, int) else otherwise
