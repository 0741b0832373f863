"""Byte ranges of a log that another process has validated, and when the scanner may skip them.

`ValidatedSpans` says of a span of bytes: following the lengths from its first byte on leads through valid batches only, and the last
of them ends where the span ends (`validated_spans`). Where batches begin depends on where the walk started, so only a walk that passed
through the first byte of a span may skip it; after damage a walk may resume in the middle.

A span is used only if the file is unchanged: same size, same modification time.
"""

from bisect import bisect_left, bisect_right
from collections import deque
from collections.abc import Sequence
from typing import Protocol

from kseg.segment import header_tables as C
from kseg.segment.header_tables import Columns
from kseg.segment.layout import INT64_MAX
from kseg.segment.values import dataclass

MAX_SPANS = 1000
Span = tuple[int, int]


@dataclass(frozen=True, slots=True)
class ValidatedSpans:
    """spans: of a file, in order. with_records: their records are sound too (`scanning.record_validation`)."""

    path: str
    size_bytes: int
    mtime_ms: int
    spans: tuple[Span, ...]
    with_records: bool


class Identity(Protocol):
    """Values that change when a file does."""

    @property
    def path(self) -> str: ...
    @property
    def size_bytes(self) -> int: ...
    @property
    def mtime_ms(self) -> int: ...


def skippable_spans(
    claims: Sequence[ValidatedSpans], file: Identity, *, with_records: bool
) -> "SkippableSpans | None":
    """The spans of a file that can be trusted; None when nothing was claimed."""
    identity = file.path, file.size_bytes, file.mtime_ms
    spans: list[Span] = []
    for claim in claims:
        is_of_it = (claim.path, claim.size_bytes, claim.mtime_ms) == identity
        if is_of_it and claim.with_records >= with_records:
            for start, stop in claim.spans:
                join_spans(spans, start, stop)
    return SkippableSpans(spans) if spans else None


def join_spans(spans: list[Span], start: int, stop: int) -> None:
    if spans and spans[-1][1] == start:
        spans[-1] = spans[-1][0], stop
    else:
        spans.append((start, stop))


class ValidatedRecords:
    """Spans of one file whose batches have sound records, told in order as they become known, for one pass that goes forward."""

    def __init__(self) -> None:
        self._spans: deque[Span] = deque()

    def add(self, start: int, stop: int) -> None:
        if self._spans and self._spans[-1][1] == start:
            start, _ = self._spans.pop()
        self._spans.append((start, stop))

    def until(self, position: int) -> int:
        """The end of the run of sound batches that begins at `position`; `position` itself when that batch was not found sound."""
        spans = self._spans
        while spans and spans[0][1] <= position:
            spans.popleft()
        return spans[0][1] if spans and spans[0][0] <= position else position

    def next_start(self, position: int) -> int:
        """The next byte after `position` that begins a span; call `until` for a position before."""
        return next((start for start, _ in self._spans if start > position), INT64_MAX)


class SkippableSpans:
    """Sound spans of one file, in order, held by one pass over it that goes forward."""

    def __init__(self, spans: Sequence[Span]) -> None:
        self._starts = [start for start, _ in spans]
        self._spans = spans
        self._skipped: list[Span] = []
        self._walked = -1, -1  # a span, and up to where a walk that came through its first byte has got

    def covers(self, table: Columns, position: int, end: int) -> bool:
        """Whether the batches of a walk from `position` to `end` that filled `table` were all found sound."""
        at, reached = self._walked
        is_on_walk = at >= 0 and reached == position
        if not is_on_walk:
            at = bisect_right(self._starts, position) - 1
            is_on_walk = at >= 0 and self._spans[at][0] == position
        if is_on_walk and end <= self._spans[at][1]:
            self._walked = at, end
            join_spans(self._skipped, position, end)
            return True
        self._enter(table, end)
        return False

    def until(self, position: int) -> int:
        """The end of the run of trusted batches that begins at `position`; `position` itself when that batch was not trusted."""
        at = bisect_right(self._skipped, (position, INT64_MAX)) - 1
        return self._skipped[at][1] if at >= 0 and position < self._skipped[at][1] else position

    def next_start(self, position: int) -> int:
        """The next trusted byte after `position`."""
        at = bisect_right(self._skipped, (position, INT64_MAX))
        return self._skipped[at][0] if at < len(self._skipped) else INT64_MAX

    def _enter(self, table: Columns, end: int) -> None:
        """Note the span in which the walk ended, if the walk came through that span's first byte."""
        at = bisect_right(self._starts, end) - 1
        self._walked = -1, -1
        if at >= 0 and end <= self._spans[at][1]:
            positions = table.column(C.POSITION)
            row = bisect_left(positions, self._spans[at][0])
            if row < len(positions) and positions[row] == self._spans[at][0]:
                self._walked = at, end
