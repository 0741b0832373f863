"""The text of `list --remote`: the verdict, then a line for each partition, the worst first."""

from collections.abc import Iterator, Mapping
from typing import Any

from kseg.cli.report import GOOD, VERBOSE_SHOWS_ALL, Line, Report
from kseg.cli.run_summary import RunSummary
from kseg.cli.text.amounts import size_words
from kseg.cli.text.columns import TextColumn, aligned
from kseg.segment.counted import counted, listed, shown_of
from kseg.segment.findings import ERROR, INFO, WARNING
from kseg.segment.moments import moment
from kseg.segment.terminal import visible

Values = Mapping[str, Any]

_PARTITIONS_SHOWN = 40
_RANGES_SHOWN = 3
_DANGLING_SHOWN = 10


class RemoteReport(Report):
    """A `Report` on the rows of `list --remote`. columns: of the terminal, None for no limit."""

    def __init__(self, columns: int | None) -> None:
        super().__init__()
        self._columns = columns
        self._partitions: list[Values] = []
        self._dangling: list[Values] = []

    def row(self, values: Values) -> None:
        if values["type"] == "remote_partition":
            self._partitions.append(values)
        elif values["type"] == "remote_segment" and values["dangling"]:
            self._dangling.append(values)

    def opening(self, summary: RunSummary) -> Iterator[Line]:
        if not summary.targets_failed:
            yield self._verdict()
        yield from self._found.lines(ERROR, WARNING, INFO)
        if self._partitions:
            yield from map(Line, self._table())
        shown = shown_of(len(self._dangling), _DANGLING_SHOWN)
        for values in self._dangling[:shown]:
            yield Line(_segment_line(values))
        more = len(self._dangling) - shown
        if more > 0:
            yield Line(f"  … and {counted(more, 'more dangling segment')} ({VERBOSE_SHOWS_ALL})")

    def _verdict(self) -> Line:
        holed = [values for values in self._partitions if values["missing_offsets"]]
        dangling = f"; {counted(len(self._dangling), 'dangling segment')}" if self._dangling else ""
        if holed:
            offsets = sum(values["missing_offsets"] for values in holed)
            words = f"MISSING: {counted(offsets, 'offset')} of {counted(len(holed), 'partition')}"
            return Line(f"{words} are neither local nor remote{dangling}", ERROR)
        words = f"COMPLETE: nothing is missing in {counted(len(self._partitions), 'partition')} with remote storage"
        return Line(words + dangling, WARNING if dangling else GOOD)

    def _table(self) -> Iterator[str]:
        order = sorted(self._partitions, key=lambda each: (-each["missing_offsets"], -each["dangling"]))
        shown = order[: shown_of(len(order), _PARTITIONS_SHOWN)]
        columns = [
            TextColumn("partition", [visible(f"{each['topic']}-{each['partition']}") for each in shown]),
            TextColumn("remote only", [_ranges(each["remote_only"]) for each in shown]),
            TextColumn("both", [_ranges(each["both"]) for each in shown], dropped=2),
            TextColumn("local", [_local(each) for each in shown], dropped=1),
            TextColumn("missing", [_ranges(each["missing"]) for each in shown]),
            TextColumn("segments", [f"{each['segments']:,}" for each in shown], right=True, dropped=4),
            TextColumn("remote size", [size_words(each["bytes"]) for each in shown], right=True, dropped=3),
            TextColumn("dangling", [f"{each['dangling']:,}" for each in shown], right=True, dropped=5),
            TextColumn("", [_note(each) for each in shown]),
        ]
        yield from aligned(columns, self._columns)
        more = len(order) - len(shown)
        if more > 0:
            yield f"… and {counted(more, 'more partition')} ({VERBOSE_SHOWS_ALL})"


def remote_words(values: Values) -> Iterator[str]:
    """The lines for one row, with --verbose."""
    if values["type"] == "remote_segment":
        yield _segment_line(values)
        return
    words = [
        f"{name.replace('_', ' ')} {_ranges(values[name])}"
        for name in ("remote_only", "both", "local", "missing")
    ]
    size = f"{counted(values['segments'], 'segment')} of {size_words(values['bytes'])} in remote storage"
    yield visible(
        f"{values['topic']}-{values['partition']} ({values['topic_id']}): {', '.join(words)}; {size}"
    )


def _segment_line(values: Values) -> str:
    state = values["state"] + (", dangling" if values["dangling"] else "" if values["read"] else ", not read")
    return visible(
        f"  {values['topic']}-{values['partition']} {values['segment_id']}: offsets {values['start_offset']}-{values['end_offset']}, "
        f"{size_words(values['bytes'])}, {state} (broker {values['broker_id']}, {moment(values['event_timestamp'])})"
    )


def _ranges(ranges: list[list[int]]) -> str:
    return listed([f"{first}-{last}" for first, last in ranges], _RANGES_SHOWN) or "-"


def _local(values: Values) -> str:
    return "not here" if values["directory"] is None else _ranges(values["local"])


def _note(values: Values) -> str:
    return "" if values["delete_state"] is None else "is being deleted"
