"""Byte ranges of a log that another process has validated, and when the scanner may skip them.

A `ValidatedSpans` states: a walk over the lengths from the first byte of the span passes only valid batches, and the last
one ends where the span ends (`validated_spans`). Where batches begin depends on where the walk started, so only a walk that passed
through the first byte of a span may skip it; after damage a walk may resume in the middle.

A span is used only if the file is unchanged: same size, same modification time.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from typing import Protocol

from kseg.segment import header_tables as C
from kseg.segment.header_tables import Columns
from kseg.segment.values import dataclass

MAX_SPANS = 1000
Span = tuple[int, int]


@dataclass(frozen=True, slots=True)
class ValidatedSpans:
    """spans: of a file, in order. with_records: their records are valid too (`scanning.record_validation`)."""

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
    """The spans of a file that can be skipped; None if there are none."""
    identity = file.path, file.size_bytes, file.mtime_ms
    spans: list[Span] = []
    for claim in claims:
        is_of_it = (claim.path, claim.size_bytes, claim.mtime_ms) == identity
        if is_of_it and claim.with_records >= with_records:
            for start, stop in claim.spans:
                join_spans(spans, start, stop)
    return SkippableSpans(spans, with_records=with_records) if spans else None


def join_spans(spans: list[Span], start: int, stop: int) -> None:
    if spans and spans[-1][1] == start:
        spans[-1] = spans[-1][0], stop
    else:
        spans.append((start, stop))


class SkippableSpans:
    """Valid spans of one file, in order, for one forward pass over it. with_records: their records are valid too."""

    def __init__(self, spans: Sequence[Span], *, with_records: bool) -> None:
        self.with_records = with_records
        self._starts = [start for start, _ in spans]
        self._spans = spans
        self._walked = -1, -1  # a span, and the position that a walk through its first byte has reached

    def covers(self, table: Columns, position: int, end: int) -> bool:
        """Whether all batches of a walk from `position` to `end` that filled `table` are known to be valid."""
        at, reached = self._walked
        is_on_walk = at >= 0 and reached == position
        if not is_on_walk:
            at = bisect_right(self._starts, position) - 1
            is_on_walk = at >= 0 and self._spans[at][0] == position
        if is_on_walk and end <= self._spans[at][1]:
            self._walked = at, end
            return True
        self._enter(table, end)
        return False

    def _enter(self, table: Columns, end: int) -> None:
        """Record the span in which the walk ended, if the walk came through that span's first byte."""
        at = bisect_right(self._starts, end) - 1
        self._walked = -1, -1
        if at >= 0 and end <= self._spans[at][1]:
            positions = table.column(C.POSITION)
            row = bisect_left(positions, self._spans[at][0])
            if row < len(positions) and positions[row] == self._spans[at][0]:
                self._walked = at, end
