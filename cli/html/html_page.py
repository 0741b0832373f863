"""Collect the rows, findings and failures of a run for `--html`, the same that text and JSON output are made of.

Nothing is computed a second time for the report. Its verdict and closing lines are those of the text report, its figures those of the
`summary` line; tables are built from the rows (`html_tables`), charts from their results (`html_pictures`).
"""

import os
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import kseg
from kseg.cli.html.html_cells import number
from kseg.cli.html.html_document import ReportStep, check_place, rendered, write_report
from kseg.cli.html.html_pictures import PictureData
from kseg.cli.html.html_tables import FORMS, RowsByType
from kseg.cli.next_command import command_line
from kseg.cli.report import Line
from kseg.cli.request import Request
from kseg.cli.run_summary import RunSummary
from kseg.cli.streams import complain
from kseg.cli.text.amounts import size_words
from kseg.inspection.copies.compare_copies import PairPicture
from kseg.jobs.events import Failure
from kseg.segment.counted import counted
from kseg.segment.findings import ERROR, INFO, WARNING, Finding
from kseg.segment.moments import moment
from kseg.segment.partition.log_shape import LogShape
from kseg.segment.partition.target_guards import refuse_inside
from kseg.segment.partition.targets import Target


class Figure(NamedTuple):
    """A number at the top of a report."""

    name: str
    text: str
    style: str = ""


# totals of a run: (name, label, whether it is bytes, whether any value but 0 is bad)
_SUMS = (
    ("bytes_total", "examined", True, False),
    ("bytes_damaged", "damaged", True, True),
    ("bytes_unreadable", "unreadable", True, True),
    ("files", "files", False, False),
    ("batches", "batches", False, False),
    ("records", "records", False, False),
)


# sums over the rows of partitions: (type, command, field, label, whether it is bytes)
_ADDED = (
    ("partition", None, "bytes", "in all files", True),
    ("partition", None, "segments", "segments", False),
    ("partition", None, "records", "records", False),
    ("result", "retain", "bytes_freed", "of logs go", True),
    ("result", "retain", "segments", "segments stay", False),
    ("topic", None, "bytes", "in logs", True),
    ("topic", None, "sampled_bytes", "recompressed", True),
    ("result", "compact", "bytes_before", "before", True),
    ("result", "compact", "bytes_after", "after", True),
    ("result", "compact", "records_before", "records before", False),
    ("result", "compact", "records_after", "records after", False),
)


class HtmlPage:
    """The report of one run. path: of the file. now_ms: the time of the run."""

    def __init__(self, path: str, command: str, now_ms: int) -> None:
        check_place(path)
        self._path = path
        self._command = command
        self._now_ms = now_ms
        self._forms = FORMS[command]
        self._rows = RowsByType(self._forms)
        self._pictures = PictureData()
        self._steps: list[ReportStep] = []
        self._partitions = 0
        self._added: dict[tuple[str, bool], int] = {}

    def begin(self, targets: Sequence[Target]) -> None:
        """Called before the work. Raises Refused when the file would be inside the evidence."""
        refuse_inside(self._path, targets)

    def row(self, values: Mapping[str, object], result: object) -> None:
        kind = str(values.get("type"))
        if kind == "step" and "number" in values:
            self._steps.append(ReportStep(str(values["why"]), str(values["command"])))
        if kind == "topic":
            self._partitions += number(values.get("partitions"))
        if kind in ("partition", "comparison") or (kind == "verified" and values.get("kind") == "partition"):
            self._partitions += 1
        for type_, command, name, words, is_bytes in _ADDED:
            value = values.get(name)
            if kind == type_ and values.get("command") == command and isinstance(value, int):
                self._added[words, is_bytes] = self._added.get((words, is_bytes), 0) + value
        self._rows.add(kind, values)
        self._pictures.row(kind, values)
        shape = getattr(result, "shape", result)
        if isinstance(shape, LogShape):
            self._pictures.shape(shape)
        elif isinstance(result, PairPicture):
            self._pictures.pair(result)

    def finding(self, finding: Finding) -> None:
        self._rows.add("finding", finding.as_row())
        self._pictures.finding(finding)

    def failure(self, failure: Failure) -> None:
        self._rows.add(
            "error", {"path": failure.path, "message": failure.sentence, "exit_status": failure.exit_status}
        )

    def finish(
        self,
        summary: RunSummary,
        request: Request,
        lines: Sequence[Line],
        advice: str,
    ) -> None:
        """Write the file. lines: of the text report, the verdict first. advice: the next command. Raises Refused."""
        if self._command == "list":  # no advice
            lines = [Line(self._inventory_words(), INFO if summary.is_spotless else WARNING), *lines]
        verdict, *others = lines
        if summary.interrupted:
            verdict = Line(f"INTERRUPTED, so this is not all: {verdict.text}", ERROR)
        steps = self._steps or ([ReportStep("Next", advice)] if advice else [])
        tables = [self._rows.table(form) for form in self._forms]
        data = rendered(
            command=self._command,
            version=kseg.__version__,
            command_line=command_line(self._command, {}, request),
            host=os.uname().nodename,
            pictures=self._pictures.as_data(),
            made_at=moment(self._now_ms),
            verdict=verdict,
            lines=[verdict, *others],
            figures=self._figures(summary),
            steps=steps,
            tables=[table for table in tables if table.rows],
        )
        write_report(self._path, data)

    def say(self, quiet: bool) -> None:
        if not quiet:
            complain(f"kseg {self._command}: wrote {self._path} ({size_words(os.stat(self._path).st_size)})")

    def _figures(self, summary: RunSummary) -> list[Figure]:
        figures = [
            Figure("errors", f"{summary.errors:,}", "bad" if summary.errors else "good"),
            Figure("warnings", f"{summary.warnings:,}", "doubtful" if summary.warnings else ""),
        ]
        if self._partitions:
            figures.append(Figure("partitions", f"{self._partitions:,}"))
        if summary.failed_paths:
            figures.append(Figure("not examined", f"{len(summary.failed_paths):,}", "bad"))
        for name, words, is_bytes, is_alarm in _SUMS:
            if name in summary.sums and (summary.sums[name] or name != "bytes_unreadable"):
                value = summary.sums[name]
                style = "bad" if is_alarm and value else ""
                figures.append(Figure(words, size_words(value) if is_bytes else f"{value:,}", style))
        figures += (
            Figure(words, size_words(value) if is_bytes else f"{value:,}")
            for (words, is_bytes), value in self._added.items()
        )
        return figures

    def _inventory_words(self) -> str:
        held = self._added.get(("in all files", True), 0)
        return f"{counted(self._partitions, 'partition')}, {size_words(held)}"
