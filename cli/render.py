"""Show a stream of events: the last of the three parts of every command.

    Text     bytes to stdout, unchanged
    Row      a JSON line on stdout, else the command's text for it, else a table
    Finding  a JSON line on stdout; without --json a sentence, on stdout where findings are the result (verify),
             on stderr where they accompany one (dump)
    Failure  a sentence on stderr, and with --json an `error` line on stdout
    Advance  the progress bar

A command with a `report` prints rows and findings at the end, sorted and folded (`cli/report`); with --verbose it prints them as they
arrive and only ends with the report. --json has no report: it prints everything as it arrives.

Rows of type `summary` or `verified` are totals of one target: their numbers are added up over all targets and shown once, at the end
(JSON lines have the `verified` rows too). At the end the exit status is determined and the next command printed.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from kseg.cli.failure_lines import FailureLines
from kseg.cli.progress import Progress
from kseg.cli.report import Line, Report, finding_sentence
from kseg.cli.request import Request
from kseg.cli.run_summary import RunSummary
from kseg.cli.streams import Output, complain, silence, terminal_columns
from kseg.cli.termination import interrupted_words
from kseg.jobs.events import Advance, Event, Failure, Row, Text
from kseg.segment.counted import counted
from kseg.segment.errors import KsegError, Refused
from kseg.segment.findings import ERROR, INFO, WARNING, Finding
from kseg.segment.terminal import visible
from kseg.segment.values import dataclass

if TYPE_CHECKING:
    from kseg.cli.html.html_page import HtmlPage
    from kseg.cli.text.table import Table

_HINTED_PATHS = 8  # paths in a suggested command; more are hard to read
# Findings that several targets may report about the same bytes: about a bad sector in a log, which the check of an index reads as well, or
# in a file of the data directory; and about a checkpoint entry, which both the partition and its data directory report.
_REPORTED_BY_SEVERAL = frozenset(
    ("unreadable", "checkpoint-beyond-log", "checkpoint-below-log", "dirty-offset-reset")
)
SUMMED = ("summary", "verified")

Values = Mapping[str, object]
Words = Callable[[Values], Iterable[str]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Style:
    """How one run is shown.

    command: its name. words: the lines for a row in text mode; without it rows become JSON lines. table: rows become a table, of the
    columns that `tabulated` returns if it is given (None omits a row). findings_are_result: findings go to stdout, and those of severity
    INFO are shown. summary: the text for the summed `summary` rows; None shows no summary line. missed: whether a row says that nothing was
    found. remains: whether a row says that something still has to be done; with it, findings alone do not determine the exit status, unless
    `errors_settle`. advice: the suggested next command, None for the hint of the most severe finding. going_back: the command that undoes
    what an interrupted run has changed; empty if it changes nothing. has_changed: whether that would take back anything of this run.
    goes_on: whether the run continues when its output is not read or cannot be written, as a change does, which should not stop halfway.
    raw: `Text` events are bytes to be written unchanged. request: set by `run`. report: printed instead of each row and finding, with
    `verbose` in addition to them. page: a report that is also written to a file.
    """

    command: str
    json: bool = False
    quiet: bool = False
    progress: bool = True
    table: bool = False
    tabulated: Callable[[Values], Values | None] | None = None
    findings_are_result: bool = False
    words: Words | None = None
    summary: Callable[[RunSummary], str] | None = None
    missed: Callable[[Values], bool] | None = None
    remains: Callable[[Values], bool] | None = None
    errors_settle: bool = False
    advice: Callable[[RunSummary], str | None] | None = None
    going_back: str = ""
    has_changed: Callable[[], bool] = lambda: True
    goes_on: bool = False
    raw: bool = False
    request: Request | None = None
    report: Report | None = None
    verbose: bool = False
    page: "HtmlPage | None" = None

    @property
    def has_summary(self) -> bool:
        """Whether a `summary` line ends the JSON."""
        return self.summary is not None or (self.report is not None and not self.report.streams_rows)


def show(
    events: Iterator[Event],
    style: Style,
    paths: Sequence[str],
    tally: RunSummary,
    progress: Progress | None = None,
) -> int:
    """Show all events and return the exit status. paths: the paths of the run, for the progress bar's total. progress: the bar, if the
    work itself advances it between events."""
    back = f", and is undone by: {style.going_back}" if style.going_back else ""
    out = Output(f"{style.command} continues{back}" if style.goes_on else "")
    progress = progress or Progress(paths, style.progress and not style.quiet, tally)
    screen = _Screen(out, progress, style, tally)
    try:
        for event in events:
            if isinstance(event, Advance):
                progress.advance(event.path, event.bytes_done)
            else:
                screen.show(event)
                if screen.is_silent:
                    progress.tick()
        screen.finish()
    except KeyboardInterrupt as interrupt:
        tally.interrupted = interrupted_words(interrupt)
        _close(events)
        try:
            screen.finish()
        except BrokenPipeError:
            silence()
    except KsegError:  # what was found before the run failed is shown
        if style.going_back and style.has_changed():
            complain(f"kseg {style.command}: what was changed is undone by: {style.going_back}")
        screen.show_pending()
        raise
    except BrokenPipeError:
        _close(events)
        silence()
    finally:
        progress.hide()
    return Refused.exit_status if out.has_failed else tally.exit_status()


def _close(events: Iterator[Event]) -> None:
    close = getattr(events, "close", None)
    if close is not None:
        close()


def _headed(report: "Report", tally: RunSummary) -> Iterator[Line]:
    """The opening lines of a report; of an interrupted run, the verdict says that it is about a part of the targets."""
    lines = iter(report.opening(tally))
    first = next(lines, None)
    if first is not None and tally.interrupted:
        done = f"INTERRUPTED after {tally.finished:,} of {counted(tally.targets, 'target')}"
        if tally.finished:
            done = f"{done}; of these: {first.text}"
        first = Line(done, first.tone if first.tone == ERROR else WARNING)
    yield from () if first is None else (first, *lines)


class _Screen:
    """The destination of each kind of event in one run."""

    def __init__(self, out: Output, progress: Progress, style: Style, tally: RunSummary) -> None:
        self._out = out
        self._progress = progress
        self._style = style
        self._tally = tally
        self._table: Table | None = None
        self._hints: dict[str, dict[str, list[str]]] = {ERROR: {}, WARNING: {}}
        # (path, position, length, message) of the findings in _REPORTED_BY_SEVERAL
        self._reported: set[tuple[object, ...]] = set()
        self._is_collected = style.report is not None and not style.json and not style.verbose
        self._failures = FailureLines(folds=self._is_collected)

    def show(self, event: Text | Row | Finding | Failure) -> None:
        if isinstance(event, Text):
            self._make_room()
            (self._out.write_exactly if self._style.raw else self._out.write)(event.data)
        elif isinstance(event, Row):
            self._row(event)
        elif isinstance(event, Finding):
            self._finding(event)
        else:
            self._failure(event)

    @property
    def is_silent(self) -> bool:
        """Whether nothing appears on the terminal before the end."""
        return self._is_collected or not self._out.is_terminal

    def show_pending(self) -> None:
        self._end_table()
        report = self._style.report
        # a report that streams its rows has no verdict, but may have findings
        if report is not None and self._is_collected and report.streams_rows:
            self._lines(report.opening(self._tally))
        self._failures.print_number_folded()
        self._out.flush()

    def finish(self) -> None:
        self._end_table()
        tally, style = self._tally, self._style
        if style.json and style.has_summary:
            self._json(tally.as_row(style.command))
        self._out.flush()
        self._progress.hide()
        self._failures.print_number_folded()
        if tally.interrupted:
            back = ""
            if style.going_back and style.has_changed():
                back = f"; what was changed until then is undone by: {style.going_back}"
            complain(f"kseg {style.command}: {tally.interrupted}: {tally.progress_words()}{back}")
        if style.report is not None and self._is_collected:
            self._lines(_headed(style.report, tally))
        if not style.quiet:
            self._closing_words()
        self._out.flush()
        self._write_page()

    def _closing_words(self) -> None:
        tally, style = self._tally, self._style
        if style.report is not None and not style.json:
            self._lines(style.report.closing(tally))
        if style.summary is not None and (style.findings_are_result or not tally.is_spotless):
            self._human(style.summary(tally))
        if tally.unreadable:
            self._human(tally.rescue_words())
        has_begun = tally.has_changed_partition and not tally.has_changed_log_dir
        if style.going_back and tally.failures and has_begun:
            self._human(f"what was changed is undone by: {style.going_back}")
        advice = self._advice()
        if advice:
            self._human(f"next: {advice}")

    def _write_page(self) -> None:
        style, tally = self._style, self._tally
        if style.page is None or style.request is None:
            return
        report = style.report
        lines = [] if report is None else [*_headed(report, tally), *report.closing(tally)]
        style.page.finish(tally, style.request, lines, self._advice())
        style.page.say(style.quiet)

    def _advice(self) -> str:
        if self._tally.lacks_room:  # what the plan says about free space comes first
            return ""
        if self._style.advice is not None:
            advice = self._style.advice(self._tally)
            if advice is not None:
                return advice
        if self._style.request is None:
            return ""
        from kseg.cli.next_command import next_command, once_more

        if not self._hints[ERROR] and self._tally.failures:
            again = once_more(self._tally.failures, self._style.command, self._style.request)
            if again:  # targets that were not checked come before warnings
                return again
        hints = self._hints[ERROR] or self._hints[WARNING]
        # repairing such a metadata log on its own makes it worse, and `recover` refuses what has such a change
        first = self._tally.metadata_gaps or self._tally.stuck_changes
        if first:
            hints = {finding.hint: [finding.path] for finding in first}
        if not hints:
            return ""
        return next_command(hints, self._style.command, self._style.request)

    def _lines(self, lines: Iterable[Line]) -> None:
        self._make_room()
        for line in lines:
            if self._style.quiet and line.tone not in (ERROR, WARNING):
                continue
            if line.tone and not self._style.findings_are_result:
                self._out.flush()
                complain(line.text)
            else:
                self._out.painted(line.text, line.tone)

    def _row(self, row: Row) -> None:
        values = row.values
        if self._style.page is not None:
            self._style.page.row(values, row.result)
        if self._style.report is not None:
            self._style.report.row(values)
        if values.get("type") == "result":
            self._tally.note_result(values)
        if values.get("type") in SUMMED:
            self._tally.add(values)
            if self._style.json and values["type"] != "summary":
                self._json(values)
            return
        if self._style.missed is not None:
            self._tally.answer(not self._style.missed(values))
        if self._style.remains is not None and self._style.remains(values):
            self._tally.remains()
        if self._is_collected and not (self._style.report and self._style.report.streams_rows):
            return
        self._make_room()
        if self._style.json:
            self._json(values)
        elif self._style.table:
            self._tabulate(values)
        elif self._style.words is not None:
            for line in self._style.words(values):
                self._out.line(line)
        else:
            self._json(values)

    def _finding(self, finding: Finding) -> None:
        if finding.id in _REPORTED_BY_SEVERAL:
            what = finding.path, finding.position, finding.length, finding.message
            if what in self._reported:
                return
            self._reported.add(what)
        self._tally.count(finding)
        if finding.severity != INFO:
            paths = self._hints[finding.severity].setdefault(finding.hint, [])
            if len(paths) < _HINTED_PATHS and finding.path not in paths:
                paths.append(finding.path)
        if self._style.page is not None:
            self._style.page.finding(finding)
        if self._style.report is not None:
            self._style.report.finding(finding)
        if self._style.json:
            self._json(finding.as_row())
        elif not self._is_collected and not (self._style.quiet and finding.severity == INFO):
            self._end_table()
            self._human(finding_sentence(finding))

    def _failure(self, failure: Failure) -> None:
        if not self._tally.fail(failure):
            return
        if self._style.page is not None:
            self._style.page.failure(failure)
        self._end_table()
        self._out.flush()
        self._progress.hide()
        if self._style.json:
            self._json(
                {
                    "type": "error",
                    "path": failure.path,
                    "message": failure.sentence,
                    "exit_status": failure.exit_status,
                }
            )
        self._failures.print(failure)

    def _human(self, sentence: str) -> None:
        """A sentence for people: on stdout if sentences are the result, else on stderr."""
        self._make_room()
        if self._style.findings_are_result and not self._style.json:
            self._out.line(visible(sentence))
        else:
            self._out.flush()
            complain(sentence)

    def _json(self, values: Values) -> None:
        from kseg.segment.json_line import json_line

        self._make_room()
        self._out.write(json_line(values))

    def _tabulate(self, values: Values) -> None:
        from kseg.cli.text.table import Table

        if self._style.tabulated is not None:
            shown = self._style.tabulated(values)
            if shown is None:
                return
            values = shown
        if self._table is None:
            self._table = Table(self._out, terminal_columns())
        self._table.add(values)

    def _end_table(self) -> None:
        if self._table is not None:
            self._table.end()
            self._table = None

    def _make_room(self) -> None:
        if self._out.is_terminal or self._style.findings_are_result:
            self._progress.hide()
