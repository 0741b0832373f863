"""Text output of a run that may concern thousands of partitions: collected while it runs, printed at its end, the verdict first.

A `Report` receives every row and finding and keeps counts and the first few of each kind, so its memory does not grow with the
run. `--verbose` prints every row and finding as it arrives, and only the closing lines of the report. `--json` has no report.
"""

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from kseg.cli.run_summary import RunSummary
from kseg.segment.counted import counted
from kseg.segment.findings import ERROR, INFO, WARNING, Finding
from kseg.segment.terminal import shown_path, visible

GOOD = "good"  # the tone of a verdict that all is well

ERRORS_SHOWN, ERRORS_OF_A_KIND = 20, 5
WARNINGS_SHOWN, WARNINGS_OF_A_KIND = 8, 3
FAILURES_SHOWN, FAILURES_ALIKE_SHOWN = 20, 3
VERBOSE_SHOWS_ALL = "--verbose shows all"
FINDING_LINES = 34  # more would push the rest of a report off the screen
_LESSER_SHARE = 4  # warnings and infos may each take this fraction of them


class Line(NamedTuple):
    """A line to print. tone: ERROR, WARNING, INFO or GOOD; a terminal colours its severity, its first word, or all of it if it
    is indented."""

    text: str
    tone: str = ""


class FindingGroups:
    """The findings of a run by kind: the number of each, and the first ones in full. room: the maximum number of lines for all
    kinds together."""

    def __init__(self, room: int = FINDING_LINES) -> None:
        self.room = room
        self._counts: dict[tuple[str, str], int] = {}
        self._first: dict[tuple[str, str], list[Finding]] = {}

    def add(self, finding: Finding) -> None:
        kind = finding.severity, finding.id
        self._counts[kind] = self._counts.get(kind, 0) + 1
        first = self._first.setdefault(kind, [])
        if len(first) < ERRORS_SHOWN:
            first.append(finding)

    def lines(self, *severities: str) -> Iterator[Line]:
        """Errors and warnings: the first ones of each kind and the number of the others. Infos: a line for each kind. If these are too
        many lines: a line for each kind, and only numbers for the remaining kinds."""
        needed = sum(len(self._in_full(each)) for each in (ERROR, WARNING, INFO))
        for severity in severities:
            kinds = [kind for kind in self._counts if kind[0] == severity]
            if needed <= self.room:
                yield from self._in_full(severity)
            elif kinds:
                yield from self._a_line_each(kinds, self._room_of(severity))

    def _in_full(self, severity: str) -> list[Line]:
        kinds = [kind for kind in self._counts if kind[0] == severity]
        if severity == INFO:
            return [*map(self._folded, kinds)]
        shown, of_a_kind = (
            (ERRORS_SHOWN, ERRORS_OF_A_KIND) if severity == ERROR else (WARNINGS_SHOWN, WARNINGS_OF_A_KIND)
        )
        if sum(self._counts[kind] for kind in kinds) <= shown:
            of_a_kind = shown
        lines = []
        for kind in kinds:
            # one more finding takes no more space than a line that counts it
            is_one_more = self._counts[kind] == of_a_kind + 1
            first = self._first[kind][: of_a_kind + is_one_more]
            for finding in first:
                lines.append(Line(visible(finding_sentence(finding)), severity))
            more = self._counts[kind] - len(first)
            if more > 0:
                lines.append(Line(f"  … and {more:,} more {kind[1]} ({VERBOSE_SHOWS_ALL})"))
        return lines

    def _room_of(self, severity: str) -> int:
        if severity != ERROR:
            return self.room // _LESSER_SHARE
        lesser = Counter(each for each, _ in self._counts if each != ERROR)
        return self.room - sum(min(number + 1, self.room // _LESSER_SHARE) for number in lesser.values())

    def _a_line_each(self, kinds: list[tuple[str, str]], room: int) -> Iterator[Line]:
        severity = kinds[0][0]
        shown = room if len(kinds) < room else room - 1  # the last line is for the numbers
        for kind in kinds[:shown]:
            if severity == INFO:
                yield self._folded(kind)
                continue
            more = self._counts[kind] - 1
            others = f"; and {more:,} more" if more else ""
            yield Line(visible(f"{finding_sentence(self._first[kind][0])}{others}"), severity)
        folded = [f"{self._counts[kind]:,} × {kind[1]}" for kind in kinds[shown:]]
        if folded:
            kinds_words = f"{counted(len(folded), 'more kind')} of {severity}"
            yield Line(f"  … and {kinds_words}: {', '.join(folded)} ({VERBOSE_SHOWS_ALL})")
        elif severity != INFO:
            yield Line(f"  … {counted(len(kinds), 'kind')} of {severity} ({VERBOSE_SHOWS_ALL})")

    def _folded(self, kind: tuple[str, str]) -> Line:
        first = self._first[kind][0]
        if self._counts[kind] == 1:
            return Line(visible(finding_sentence(first)), INFO)
        words = f"{self._counts[kind]:,} × {kind[1]}: info: {first.kind.sentence} (first: {shown_path(first.path)})"
        return Line(visible(words), INFO)


class Report(ABC):
    """Collects the rows and findings of a run and formats them as lines. streams_rows: the rows are printed as they arrive. room: as in
    `FindingGroups`."""

    streams_rows = False

    def __init__(self, room: int = FINDING_LINES) -> None:
        self._found = FindingGroups(room)

    def finding(self, finding: Finding) -> None:
        self._found.add(finding)

    @abstractmethod
    def row(self, values: Mapping[str, Any]) -> None: ...

    @abstractmethod
    def opening(self, summary: RunSummary) -> Iterator[Line]:
        """The verdict, followed by the facts that it is based on."""

    def closing(self, _summary: RunSummary) -> Iterator[Line]:
        """The closing lines; printed with --verbose as well."""
        return iter(())


def severities_words(summary: RunSummary) -> str:
    """`2 errors, 1 warning`."""
    return f"{counted(summary.errors, 'error')}, {counted(summary.warnings, 'warning')}"


def finding_sentence(finding: Finding) -> str:
    """`path: severity: message (id; bytes a-b; offsets c-d)`: ranges are inclusive."""
    marks = [finding.id]
    if finding.position is not None:
        if finding.length is not None and finding.length > 0:
            marks.append(f"bytes {finding.position}-{finding.position + finding.length - 1}")
        else:
            marks.append(f"byte {finding.position}")
    first, last = finding.first_offset, finding.last_offset
    if first is not None and last is not None and first != last:
        marks.append(f"offsets {first}-{last}")
    elif first is not None or last is not None:
        marks.append(f"offset {first if first is not None else last}")
    return f"{shown_path(finding.path)}: {finding.severity}: {finding.message} ({'; '.join(marks)})"
