"""The report of `recover`, `compact` and `retain` about many partitions.

The totals come first, then the errors, then the details. For a single partition these are the steps or segments. For several, each that
changes has a line; if there are too many, partitions that differ only in their name share a line, and those with the most at stake come
first. Unchanged partitions are counted by reason.
"""

from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from kseg.cli.report import FAILURES_SHOWN, FINDING_LINES, VERBOSE_SHOWS_ALL, Line, Report
from kseg.cli.run_summary import RunSummary
from kseg.cli.text.amounts import rough_duration_words, size_words
from kseg.cli.text.common import Place, partition_words, place_of
from kseg.segment.counted import counted, shown_of
from kseg.segment.findings import ERROR, INFO, WARNING
from kseg.segment.terminal import shown_path

Values = Mapping[str, Any]

_LINES_SHOWN = 20
_ALIKE_SHOWN = 3
_WORDS_KEPT = 2000
_NAMES_SHOWN = 3
_SETTINGS_SHOWN = 5
_DETAILS_SHOWN = 30
_WORTH_SAYING_BYTES, _WORTH_SAYING_S = 1 << 20, 2.0


class ChangeReport(Report):
    """A `Report` on the results of partitions and log dirs. words: the full text of a row."""

    def __init__(self, words: Callable[[Values], Iterable[str]]) -> None:
        super().__init__()
        self._words = words
        self.partitions = 0
        self._result: list[str] = []  # lines about the first partition
        self._details: list[str] = []  # further lines, if it stays the only one
        self._number_of_details = 0
        self._are_totals_told = False
        self._own = _AlikePartitions()
        self._alike = _AlikePartitions()
        self._unchanged: dict[str, int] = {}
        self._always: list[str] = []
        self._settings: dict[str, list[str]] = {}

    @abstractmethod
    def total(self, values: Values) -> None:
        """Add one partition's result to the totals."""

    @abstractmethod
    def line(self, values: Values) -> str:
        """The line of a partition that gets one of its own; empty for others."""

    @abstractmethod
    def alike(self, values: Values) -> str:
        """The outcome of a partition without a line of its own, in a wording shared by all with that outcome."""

    def stake(self, _values: Values) -> "Stake":
        """How much a partition with a line of its own loses or frees; the largest come first if there are many."""
        return 0, 0

    @abstractmethod
    def is_unchanged(self, values: Values) -> bool: ...

    @abstractmethod
    def verdict(self, summary: RunSummary) -> Line:
        """The totals of several partitions in one line."""

    def totals(self) -> Iterator[str]:
        """More lines of totals, below the verdict."""
        yield from ()

    def settings(self, _values: Values) -> str:
        """The settings that the plan is based on, with their sources; empty if there are none."""
        return ""

    def is_answer(self, _values: Values) -> bool:
        """Whether a row other than a result is always shown because the user asked for it."""
        return False

    def row(self, values: Values) -> None:
        is_result = values.get("type") == "result"
        if is_result and "partition" in values:
            self._partition(values)
            return
        if is_result or self.is_answer(values):
            self._always += self._words(values)
        elif self.partitions <= 1:
            words = [*self._words(values)]
            self._number_of_details += len(words)
            self._details += words[: max(0, _DETAILS_SHOWN + 1 - len(self._details))]

    def opening(self, summary: RunSummary) -> Iterator[Line]:
        self._found.room = FINDING_LINES - min(len(summary.failures), FAILURES_SHOWN)
        self._are_totals_told = True
        if self.partitions == 1:
            yield from map(Line, [*self._result, *self._always])
            yield from self._found.lines(ERROR, WARNING, INFO)
            yield from map(Line, self._detail_lines())
        else:
            yield self.verdict(summary)
            yield from self._totals(summary)
            yield from self._found.lines(ERROR, WARNING)
            yield from map(Line, self._many())
            yield from map(Line, self._always)
            yield from self._found.lines(INFO)

    def _detail_lines(self) -> Iterator[str]:
        shown = shown_of(self._number_of_details, _DETAILS_SHOWN)
        yield from self._details[:shown]
        if self._number_of_details > shown:
            yield f"  … and {counted(self._number_of_details - shown, 'more line')} ({VERBOSE_SHOWS_ALL})"

    def closing(self, summary: RunSummary) -> Iterator[Line]:
        if not self._are_totals_told:
            yield from self._totals(summary)

    def _totals(self, summary: RunSummary) -> Iterator[Line]:
        if self.partitions != 1:
            yield from map(Line, self.totals())
        slow_s, fast_s = summary.estimated_s, summary.estimated_s_on_flash
        if slow_s is None or fast_s is None:
            return
        if self.partitions != 1 or slow_s >= _WORTH_SAYING_S:
            yield Line(estimate_words(slow_s, fast_s, summary))

    def _partition(self, values: Values) -> None:
        self.partitions += 1
        if self.partitions == 1:
            self._result += self._words(values)
        self.total(values)
        place = place_of(values)
        own = self.line(values)
        if not self.is_unchanged(values):
            self._note_settings(shown_path(place[0]), self.settings(values))
        if own:
            self._own.add(place, own, self.stake(values))
        elif self.is_unchanged(values):
            words = self.alike(values)
            self._unchanged[words] = self._unchanged.get(words, 0) + 1
        else:
            self._alike.add(place, self.alike(values))

    def _note_settings(self, name: str, words: str) -> None:
        topics = self._settings.get(words)
        topic = name.rpartition("-")[0]
        if topics is not None:
            if topic not in topics and len(topics) <= _NAMES_SHOWN + 1:
                topics.append(topic)
        elif words and len(self._settings) < _SETTINGS_SHOWN:
            self._settings[words] = [topic]

    def _many(self) -> Iterator[str]:
        yield from self._own.in_a_line_each() if self._own.number <= _LINES_SHOWN else self._own.lines()
        yield from self._alike.lines()
        if [*self._unchanged.values()] != [self.partitions]:  # otherwise the verdict says so
            for words, number in self._unchanged.items():
                yield f"{counted(number, 'partition')}: {words}"
        for words, topics in self._settings.items():
            yield f"{_first_of(topics, len(topics), _NAMES_SHOWN)}: {words}"


Stake = tuple[int, int]


def _first_of(names: list[str], number: int, most: int) -> str:
    """`a, b, c, …`, if the total is printed elsewhere."""
    shown = shown_of(number, most)
    return f"{', '.join(names[:shown])}{', …' if number > shown else ''}"


class _AlikePartitions:
    """Partitions grouped by the text of their line, with the first names of each group."""

    def __init__(self) -> None:
        self.number = 0
        self._places: dict[str, list[Place]] = {}
        self._counts: dict[str, int] = {}
        self._stakes: dict[str, Stake] = {}
        self._in_order: list[tuple[Place, str]] = []

    def add(self, place: Place, words: str, stake: Stake = (0, 0)) -> None:
        self.number += 1
        if len(self._in_order) < _LINES_SHOWN:
            self._in_order.append((place, words))
        self._counts[words] = self._counts.get(words, 0) + 1
        first, second = self._stakes.get(words, (0, 0))
        self._stakes[words] = first + stake[0], second + stake[1]
        places = self._places.setdefault(words, [])
        if len(places) <= _ALIKE_SHOWN:
            places.append(place)
        if len(self._counts) > _WORDS_KEPT:
            self._forget_the_least()

    def in_a_line_each(self) -> Iterator[str]:
        called = partition_words(place for place, _ in self._in_order)
        yield from (f"{called[place]}: {words}" for place, words in self._in_order)

    def lines(self) -> Iterator[str]:
        """The lines with the most at stake first, then the number of those left out."""
        if self.number <= _ALIKE_SHOWN:
            yield from self.in_a_line_each()
            return
        shown, most = 0, self._by_stake()[:_LINES_SHOWN]
        called = partition_words(place for words in most for place in self._places[words])
        for words in most:
            number, names = self._counts[words], [called[place] for place in self._places[words]]
            shown += number
            if number == 1:
                yield f"{names[0]}: {words}"
            else:
                yield f"{counted(number, 'partition')} ({_first_of(names, number, _ALIKE_SHOWN)}): {words}"
        if shown < self.number:
            yield f"… and {counted(self.number - shown, 'more partition')} ({VERBOSE_SHOWS_ALL})"

    def _by_stake(self) -> list[str]:
        return sorted(self._counts, key=self._stakes.__getitem__, reverse=True)

    def _forget_the_least(self) -> None:
        for words in self._by_stake()[_WORDS_KEPT // 2 :]:
            del self._counts[words], self._places[words], self._stakes[words]


def incomplete_words(summary: RunSummary, others: str) -> str:
    """The verdict if targets failed. others: the outcome of the other targets, empty if there are none."""
    words = f"INCOMPLETE: {summary.targets_failed:,} of {counted(summary.targets, 'target')} failed"
    return f"{words}; {others}" if others else words


def estimate_words(slow_s: float, fast_s: float, summary: RunSummary) -> str:
    """How long it takes to carry out the plan on a spinning disk and on flash, and what the estimate is based on. It contains no
    measured time, so that two runs with the same findings print the same."""
    slow, fast = rough_duration_words(slow_s), rough_duration_words(fast_s)
    words = f"about {slow}" if slow == fast else f"about {fast} on flash, {slow} on a spinning disk"
    parts = [counted(summary.planned_changes, "change")]
    if summary.planned_bytes >= _WORTH_SAYING_BYTES:
        parts.append(f"{size_words(summary.planned_bytes)} to write")
    return f"--apply plans again and then takes {words} ({', '.join(parts)})"
