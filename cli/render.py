"""Show a stream of events: the last of the three parts of every command.

    Text     bytes to stdout as they are
    Row      a JSON line on stdout, else the command's words for it, else a table
    Finding  a JSON line on stdout; without --json a sentence, on stdout where findings are the result (verify),
             on stderr where they accompany one (dump)
    Failure  a sentence on stderr, and with --json an `error` line on stdout
    Advance  the progress bar

Rows of type `summary` or `verified` are sums over one target: their numbers are added up over all targets and shown
once, at the end (JSON lines have the `verified` rows too). The end is also where the exit status is settled and the next command to type is given.
"""

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from kseg.cli.progress import Progress
from kseg.cli.run_summary import RunSummary, counted
from kseg.cli.streams import Output, complain, silence
from kseg.jobs.events import Advance, Event, Failure, Row, Text
from kseg.segment.errors import KsegError
from kseg.segment.findings import ERROR, INFO, Finding
from kseg.segment.terminal import visible
from kseg.segment.values import dataclass

if TYPE_CHECKING:
    from kseg.cli.text.table import Table

SUMMED = ("summary", "verified")

Values = Mapping[str, object]
Words = Callable[[Values], Iterable[str]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Style:
    """How one run is shown.

    command: its name. words: the lines for a row in text mode; without it rows become JSON lines. table: rows
    become tables. findings_are_result: findings go to stdout and an INFO is worth showing. summary: the words for
    the summed `summary` rows, None shows no summary line. missed: whether a row is an answer that says "none".
    remains: whether a row says that something is still to be done; with it, findings alone do not settle the exit
    status. advice: the next command to type, instead of the one that the worst finding hints at. raw: the texts are bytes
    that were asked for as such.
    """

    command: str
    json: bool = False
    quiet: bool = False
    progress: bool = True
    table: bool = False
    findings_are_result: bool = False
    words: Words | None = None
    summary: Callable[[RunSummary], str] | None = None
    missed: Callable[[Values], bool] | None = None
    remains: Callable[[Values], bool] | None = None
    advice: Callable[[RunSummary], str] | None = None
    raw: bool = False


def show(events: Iterator[Event], style: Style, paths: Sequence[str], tally: RunSummary) -> int:
    """Show all events and return the exit status. paths: what is worked on, for the progress bar's total."""
    out = Output()
    progress = Progress(paths, style.progress and not style.quiet, out.is_terminal)
    screen = _Screen(out, progress, style, tally)
    try:
        for event in events:
            if isinstance(event, Advance):
                progress.advance(event.path, event.bytes_done)
            else:
                screen.show(event)
        screen.finish()
    except KeyboardInterrupt:
        tally.interrupted = True
        _close(events)
        screen.finish()
    except KsegError:  # what was found before the whole run ended is not lost
        screen.show_what_waits()
        raise
    except BrokenPipeError:
        _close(events)
        silence()
    finally:
        progress.hide()
    return tally.exit_status()


def _close(events: Iterator[Event]) -> None:
    close = getattr(events, "close", None)
    if close is not None:
        close()


class _Screen:
    """Where each kind of event goes in one run."""

    def __init__(self, out: Output, progress: Progress, style: Style, tally: RunSummary) -> None:
        self._out = out
        self._progress = progress
        self._style = style
        self._tally = tally
        self._table: Table | None = None
        self._worst: Finding | None = None
        self._unreadable: set[tuple[str, int | None, int | None]] = set()

    def show(self, event: Text | Row | Finding | Failure) -> None:
        if isinstance(event, Text):
            self._make_room()
            (self._out.write_exactly if self._style.raw else self._out.write)(event.data)
        elif isinstance(event, Row):
            self._row(event.values)
        elif isinstance(event, Finding):
            self._finding(event)
        else:
            self._failure(event)

    def show_what_waits(self) -> None:
        self._end_table()
        self._out.flush()

    def finish(self) -> None:
        self._end_table()
        tally, style = self._tally, self._style
        if style.json and style.summary is not None:
            self._json(tally.as_row(style.command))
        self._out.flush()
        self._progress.hide()
        if tally.interrupted:
            complain(f"kseg {style.command}: interrupted: {tally.progress_words()}")
        if style.quiet:
            return
        if style.summary is not None and (style.findings_are_result or not tally.is_spotless):
            self._human(style.summary(tally))
        if tally.unreadable:
            self._human(rescue_words(tally.unreadable))
        advice = self._advice()
        if advice:
            self._human(f"next: {advice}")
        self._out.flush()

    def _advice(self) -> str:
        if self._style.advice is not None:
            return self._style.advice(self._tally)
        if self._worst is None:
            return ""
        from kseg.cli.next_command import next_command

        return next_command(self._worst, self._style.command)

    def _row(self, values: Values) -> None:
        if values.get("type") in SUMMED:
            self._tally.add(values)
            if self._style.json and values["type"] != "summary":
                self._json(values)
            return
        if self._style.missed is not None:
            self._tally.answer(not self._style.missed(values))
        if self._style.remains is not None and self._style.remains(values):
            self._tally.remains()
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
        if finding.id == "unreadable":
            # several targets may have met the same bad sector: the log of an index, a file of the data directory
            place = finding.path, finding.position, finding.length
            if place in self._unreadable:
                return
            self._unreadable.add(place)
        self._tally.count(finding)
        if self._worst is None:
            self._worst = finding if finding.severity != INFO else None
        elif finding.severity == ERROR != self._worst.severity:
            self._worst = finding
        if self._style.json:
            self._json(finding.as_row())
        elif not (self._style.quiet and finding.severity == INFO):
            self._end_table()
            self._human(finding_sentence(finding))

    def _failure(self, failure: Failure) -> None:
        self._tally.fail(failure)
        self._end_table()
        self._out.flush()
        self._progress.hide()
        complain(f"kseg: {failure.sentence}")
        if failure.trace and os.environ.get("KSEG_TRACEBACK") == "1":
            for line in failure.trace.rstrip().split("\n"):
                complain(line)
        if self._style.json:
            self._json(
                {
                    "type": "error",
                    "path": failure.path,
                    "message": failure.sentence,
                    "exit_status": failure.exit_status,
                }
            )

    def _human(self, sentence: str) -> None:
        """A sentence for people: on stdout where sentences are the result, else on stderr."""
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

        if self._table is None:
            self._table = Table(self._out)
        self._table.add(values)

    def _end_table(self) -> None:
        if self._table is not None:
            self._table.end()
            self._table = None

    def _make_room(self) -> None:
        if self._out.is_terminal or self._style.findings_are_result:
            self._progress.hide()


def rescue_words(found: Sequence[Finding]) -> str:
    """What could be read of the files with bad areas, and what could not; as ddrescue sums up."""
    sizes = {finding.path: _number(finding, "file_bytes") for finding in found}
    lost_bytes = sum(finding.length or 0 for finding in found)
    errors = sum(_number(finding, "read_errors") for finding in found)
    return (
        f"rescued: {sum(sizes.values()) - lost_bytes:,} bytes of {counted(len(sizes), 'file')}; unreadable: "
        f"{counted(lost_bytes, 'byte')}, {counted(len(found), 'bad area')}, {counted(errors, 'read error')}"
    )


def _number(finding: Finding, name: str) -> int:
    value = finding.numbers.get(name)
    return value if isinstance(value, int) else 0


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
    return f"{finding.path}: {finding.severity}: {finding.message} ({'; '.join(marks)})"
