"""The text of `diff`: the verdict, then a line for each partition that differs."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from kseg.cli.report import GOOD, VERBOSE_SHOWS_ALL, Line, Report
from kseg.cli.run_summary import RunSummary
from kseg.inspection.copies.compare_copies import SAME_RECORDS, VERDICTS
from kseg.segment.counted import counted, listed, log_range_words, offsets_words, shown_of
from kseg.segment.findings import ERROR, INFO, WARNING
from kseg.segment.storage import places
from kseg.segment.terminal import shell_quoted, shown_path, visible

Values = Mapping[str, Any]

_LINES_SHOWN = 40
_RANGES_SHOWN = 3
_WORDS = {
    "only-in-a": "only in A",
    "only-in-b": "only in B",
    "epochs": "with different leader epochs",
    "compacted": "compacted further in one",
    "missing": "with missing records",
    "trimmed": "starting later in one",
    "repacked": "with the same records in other batches",
}


class DiffReport(Report):
    """A `Report` on the rows of `diff`. paths: A and B. is_verbose: a line for each partition, including equal ones. worst: the
    most serious row, None if all are the same."""

    def __init__(self, paths: Sequence[str], is_verbose: bool) -> None:
        super().__init__()
        self._paths = paths
        self._is_verbose = is_verbose
        self._counts: dict[str, int] = {}
        self._rows: dict[str, list[Values]] = {}
        self.worst: Values | None = None

    def row(self, values: Values) -> None:
        if values["type"] != "comparison":
            return
        verdict = values["verdict"]
        self._counts[verdict] = self._counts.get(verdict, 0) + 1
        kept = self._rows.setdefault(verdict, [])
        if self._is_verbose or len(kept) <= _LINES_SHOWN:
            kept.append(values)
        if verdict not in SAME_RECORDS and (
            self.worst is None or VERDICTS.index(verdict) < VERDICTS.index(self.worst["verdict"])
        ):
            self.worst = values

    def opening(self, summary: RunSummary) -> Iterator[Line]:
        yield self._verdict(summary)
        for letter, path in zip("AB", self._paths, strict=True):
            yield Line(f"  {letter}: {shown_path(path)}")
        yield from self._found.lines(ERROR, WARNING, INFO)
        rows = [
            row for verdict in VERDICTS for row in self._rows.get(verdict, ()) if self._is_worth_a_line(row)
        ]
        # partitions that are the same, but printed for another reason
        others = len(rows) - sum(row["verdict"] != "same" for row in rows)
        number = others + sum(count for verdict, count in self._counts.items() if verdict != "same")
        shown = rows if self._is_verbose else rows[: shown_of(number, _LINES_SHOWN)]
        for row in shown:
            yield Line(visible(f"{row['partition']}: {'; '.join(_about(row))}"))
        more = number - len(shown)
        if more > 0 and not self._is_verbose:
            yield Line(f"… and {counted(more, 'more partition')} ({VERBOSE_SHOWS_ALL})")

    def _is_worth_a_line(self, row: Values) -> bool:
        return self._is_verbose or row["verdict"] != "same" or row["same_topic_id"] is False

    def _verdict(self, summary: RunSummary) -> Line:
        total = sum(self._counts.values())
        different = sum(self._counts[verdict] for verdict in self._counts if verdict not in SAME_RECORDS)
        if summary.failures and not different:
            return Line(
                f"INCOMPLETE: {counted(len(summary.failed_paths), 'partition')} could not be compared", ERROR
            )
        if not different:
            repacked = self._counts.get("repacked", 0)
            words = f", {repacked:,} {_WORDS['repacked']}" if repacked else ""
            return Line(f"SAME: {counted(total, 'partition')}{words}", GOOD)
        kinds = ", ".join(
            f"{self._counts[verdict]:,} {_WORDS.get(verdict, verdict)}"
            for verdict in VERDICTS
            if verdict in self._counts and verdict not in SAME_RECORDS
        )
        grave = any(verdict in self._counts for verdict in ("diverged", "damaged", "missing"))
        return Line(
            f"DIFFERENT: {different:,} of {counted(total, 'partition')}: {kinds}", ERROR if grave else WARNING
        )


def advice_for(row: Values | None) -> str | None:
    """The suggested command for a row: to show both copies where they begin to differ, or to repair the damaged one. Empty if there is
    none, None for the hint of the findings."""
    if row is None or row["a"] is None or row["b"] is None:
        return ""
    copies = [row["a"], row["b"]]
    if row["verdict"] == "damaged":
        damaged = [copy["path"] for copy in copies if copy["damaged_bytes"]]
        if any(map(places.is_elsewhere, damaged)):
            return None
        return f"kseg recover {' '.join(map(shell_quoted, damaged))}" if damaged else ""
    offset = row["epochs_differ_at"] if row["differs_at"] is None else row["differs_at"]
    if offset is None:
        return ""
    return f"kseg lookup --offset {offset} {' '.join(shell_quoted(copy['path']) for copy in copies)}"


def _about(row: Values) -> Iterator[str]:
    """The facts about a partition, most serious first."""
    verdict, a, b = row["verdict"], row["a"], row["b"]
    if a is None or b is None:
        there = b if a is None else a
        yield f"{_WORDS[verdict]}, {log_range_words(there['log_start_offset'], there['log_end_offset'])}"
        return
    if row["differs_at"] is not None:
        yield from _divergence(row)
    for letter, copy in (("A", a), ("B", b)):
        if copy["damaged_bytes"] or copy["damaged"]:
            yield f"{counted(copy['damaged_bytes'], 'byte')} of {letter} damaged{_ranges(copy['damaged'])}"
        if copy["missing"]:
            lost = counted(copy["records_lost"], "record")
            yield f"{letter} has lost {lost} in the middle of its log{_ranges(copy['missing'])}: compaction does not explain it"
        if copy["cleaned"]:
            yield f"{letter} is compacted further: {counted(copy['records_cleaned'], 'record')} fewer"
    yield from _epochs(row)
    if row["differs_at"] is None:
        yield from _ends(row)
    if row["repacked_batches"]:
        yield f"{counted(row['repacked_batches'], 'batch')} of A with the same records in other batches of B"
    if row["same_topic_id"] is False:
        yield "the topic ids differ: the topic was deleted and created again, or B is of another cluster"
    if verdict == "same":
        yield f"same, {log_range_words(a['log_start_offset'], a['log_end_offset'])}"


def _divergence(row: Values) -> Iterator[str]:
    offset, a, b = row["differs_at"], row["a"], row["b"]
    ends = f"A has {_offsets(a['log_end_offset'] - offset)} from there on, B {b['log_end_offset'] - offset:,}"
    yield f"diverged at offset {offset}: {ends}"
    below = [letter for letter, copy in (("A", a), ("B", b)) if (copy["high_watermark"] or 0) > offset]
    if below:
        yield f"the offset is below the high watermark of {' and '.join(below)}: consumers may have read it"


def _epochs(row: Values) -> Iterator[str]:
    at, caches = row["epochs_differ_at"], row["epoch_caches_differ_at"]
    if at is not None:
        yield f"batches of the same records have different leader epochs from offset {at} on"
    if caches is not None and caches != at:
        yield f"the leader epoch caches differ from offset {caches} on"


def _ends(row: Values) -> Iterator[str]:
    for name in ("log_end_offset", "log_start_offset"):
        (low, lower), (high, higher) = sorted((row[letter.lower()][name], letter) for letter in "AB")
        if low == high:
            continue
        if name == "log_end_offset":
            yield f"{lower} is behind: it ends {_offsets(high - low)} earlier, at {low} ({higher}: {high})"
        else:
            yield f"{higher} starts {_offsets(high - low)} later, at {high} ({lower}: {low})"


def _offsets(number: int) -> str:
    return counted(number, "offset")


def _ranges(ranges: Sequence[Sequence[int]]) -> str:
    if not ranges:
        return ""
    words = [offsets_words(first, last) for first, last in ranges]
    return f" ({listed(words, _RANGES_SHOWN, 'range')})"
