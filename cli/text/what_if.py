"""The text of `what-if`: the verdict, then for each topic a table of settings and their sizes."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from kseg.cli.report import GOOD, VERBOSE_SHOWS_ALL, Line, Report
from kseg.cli.run_summary import RunSummary
from kseg.cli.text.amounts import duration_words, size_words
from kseg.cli.text.columns import TextColumn, aligned
from kseg.segment.counted import counted
from kseg.segment.findings import ERROR, WARNING
from kseg.segment.terminal import visible

Values = Mapping[str, Any]
_WORTH_TELLING = 0.005  # of the bytes of a topic

_TOPICS_SHOWN = 5
_WORTH_IT = 0.95  # fraction of the current bytes: saving less is no reason to change anything


class WhatIfReport(Report):
    """A `Report` on the rows of `what-if`. is_verbose: all topics. columns: of the terminal, None for any width."""

    def __init__(self, is_verbose: bool, columns: int | None) -> None:
        super().__init__()
        self._is_verbose = is_verbose
        self._columns = columns
        self._topics: list[Values] = []
        self._settings: dict[str, list[Values]] = {}

    def row(self, values: Values) -> None:
        if values["type"] == "topic":
            self._topics.append(values)
        elif values["type"] == "setting":
            self._settings.setdefault(values["topic"], []).append(values)

    def opening(self, summary: RunSummary) -> Iterator[Line]:
        yield self._verdict()
        yield from self._found.lines(ERROR, WARNING)
        shown = self._topics if self._is_verbose else self._topics[:_TOPICS_SHOWN]
        for topic in shown:
            yield Line("")
            yield Line(visible(_about(topic)))
            yield from map(Line, self._table(self._settings.get(topic["topic"], ())))
        more = len(self._topics) - len(shown)
        if more:
            yield Line("")
            yield Line(f"… and {counted(more, 'smaller topic')} ({VERBOSE_SHOWS_ALL})")

    def closing(self, summary: RunSummary) -> Iterator[Line]:
        if any(not setting["exact"] for settings in self._settings.values() for setting in settings):
            yield Line("")
            yield Line("intervals contain the true number with 95 % confidence; --sample SIZE narrows them")

    def _verdict(self) -> Line:
        """The codec with the smallest total over all topics, for batches as they are."""
        now = sum(topic["bytes"] for topic in self._topics)
        if not now:
            return Line("NOTHING TO MEASURE: no log has a batch", GOOD)
        then: dict[str, int] = {}
        for settings in self._settings.values():
            for setting in settings:
                if setting["kind"] == "codec":
                    then[_name(setting)] = then.get(_name(setting), 0) + setting["bytes"]
        words = f"{size_words(now)} in {counted(len(self._topics), 'topic')}"
        if not then:
            return Line(f"{words}: no batch was recompressed", GOOD)
        best = min(then, key=lambda name: then[name])
        share = then[best] / now
        if share > _WORTH_IT:
            return Line(f"{words}: no codec saves more than {100 * max(0.0, 1 - share):.0f} %", GOOD)
        return Line(
            f"{words}: with {best} about {size_words(then[best])} ({100 * (1 - share):.0f} % less)", GOOD
        )

    def _table(self, settings: Sequence[Values]) -> Iterator[str]:
        if not settings:
            return
        columns = [
            TextColumn("setting", [_name(each) for each in settings]),
            TextColumn("bytes", [size_words(each["bytes"]) for each in settings], right=True),
            TextColumn("± 95 %", [_margin(each) for each in settings], right=True, dropped=1),
            TextColumn("of now", [_share(each) for each in settings], right=True),
            TextColumn("cpu/GiB", [_cpu(each) for each in settings], right=True, dropped=2),
            TextColumn("set", [_properties(each) for each in settings], dropped=3),
        ]
        yield from (visible(f"  {line}") for line in aligned(columns, None if self._columns is None else self._columns - 2))  # fmt: skip


def _about(topic: Values) -> str:
    """`orders: 12 GiB in 12 partitions, lz4 100 %; sampled in 32 places`."""
    codecs = ", ".join(f"{name} {100 * share:.0f} %" for name, share in topic["codecs"].items())
    sampled = (
        "all of it measured"
        if topic["is_all"]
        else f"{size_words(topic['sampled_bytes'])} measured in {counted(topic['places'], 'place')}"
    )
    head = f"{topic['topic']}: {size_words(topic['bytes'])} in {counted(topic['partitions'], 'partition')}"
    if topic["fixed"] >= _WORTH_TELLING:
        sampled += f"; no setting changes {100 * topic['fixed']:.0f} % (message formats v0 and v1, control batches, damage)"
    return f"{head}, now {codecs}; {sampled}" if codecs else f"{head}; no batches"


def _name(setting: Values) -> str:
    properties = setting["properties"]
    if setting["kind"] == "retention":
        name, value = next(iter(properties.items()))
        words = duration_words(int(value)) if name == "retention.ms" else size_words(int(value))
        return f"{name} {words}"
    if setting["kind"] == "compaction":
        without = setting["records_without_key"]
        return f"compacted (drops {counted(without, 'record')} without a key)" if without else "compacted"
    codec = setting["codec"] or "current codec"
    words = codec if setting["level"] is None else f"{codec} level {setting['level']}"
    if setting["batch_size"] is not None:
        words += f", batches of {size_words(setting['batch_size'])}"
    if setting["linger_ms"] is not None:
        words += f", linger {duration_words(setting['linger_ms'])}"
    return words


def _margin(setting: Values) -> str:
    return "exact" if setting["exact"] else f"±{size_words((setting['bytes_most'] - setting['bytes_least']) // 2)}"  # fmt: skip


def _share(setting: Values) -> str:
    now = setting["bytes_now"]
    return f"{100 * setting['bytes'] / now:.1f} %" if now else ""


def _cpu(setting: Values) -> str:
    seconds = setting.get("cpu_s_per_gib")
    return "" if seconds is None else f"{seconds:.1f} s"


def _properties(setting: Values) -> str:
    named = " ".join(f"{name}={value}" for name, value in setting["properties"].items())
    return f"{setting['where']}: {named}"
