"""When appended data is flushed to disk: every M messages, or every N milliseconds.

Messages are counted as offsets between the last flush and the log end (Kafka: UnifiedLog.append with flush.messages), time since
the last flush (flush.ms). A rule that is None is off. A roll and the end of the run always flush.
"""

import time
from collections.abc import Callable

from kseg.segment.values import dataclass


@dataclass(frozen=True, slots=True)
class FlushRules:
    """messages, interval_ms: Kafka's flush.messages and flush.ms; None = the operating system decides."""

    messages: int | None = None
    interval_ms: int | None = None


class FlushCounter:
    """Decides when to flush. next_offset: the log end offset at the start; clock_ns: a monotonic clock."""

    def __init__(
        self, rules: FlushRules, next_offset: int, clock_ns: Callable[[], int] = time.monotonic_ns
    ) -> None:
        self._rules = rules
        self._clock_ns = clock_ns
        self.flushes = 0
        self._note(next_offset)

    def is_due(self, next_offset: int) -> bool:
        """Whether a flush is due now that the log ends at `next_offset`."""
        rules = self._rules
        if rules.messages is not None and next_offset - self._flushed_offset >= rules.messages:
            return True
        if rules.interval_ms is None or next_offset == self._flushed_offset:
            return False
        return self._clock_ns() - self._flushed_ns >= rules.interval_ms * 1_000_000

    def flushed(self, next_offset: int) -> None:
        """Record that everything below `next_offset` is on disk."""
        self.flushes += 1
        self._note(next_offset)

    def _note(self, next_offset: int) -> None:
        self._flushed_offset = next_offset
        self._flushed_ns = self._clock_ns()
