"""A range of offsets and timestamps that a read is limited to."""

from kseg.segment.layout import INT64_MAX
from kseg.segment.values import dataclass

INT64_MIN = -INT64_MAX - 1


@dataclass(frozen=True, slots=True)
class Bounds:
    """Inclusive below, exclusive above; offsets of the log, timestamps in ms (a record without one has −1)."""

    from_offset: int = 0
    to_offset: int = INT64_MAX
    from_ms: int = INT64_MIN
    to_ms: int = INT64_MAX

    @property
    def is_empty(self) -> bool:
        return self.from_offset >= self.to_offset or self.from_ms >= self.to_ms

    def contain(self, offset: int, timestamp_ms: int) -> bool:
        return self.from_offset <= offset < self.to_offset and self.from_ms <= timestamp_ms < self.to_ms

    def within(self, other: "Bounds") -> "Bounds":
        """The intersection of the two."""
        return Bounds(
            max(self.from_offset, other.from_offset),
            min(self.to_offset, other.to_offset),
            max(self.from_ms, other.from_ms),
            min(self.to_ms, other.to_ms),
        )
