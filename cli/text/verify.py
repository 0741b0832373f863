"""The text of `verify`: the verdict, the findings by severity and kind, and what was checked."""

import os
from collections.abc import Iterator, Mapping
from typing import Any

from kseg.cli.report import GOOD, Line, Report, severities_words
from kseg.cli.run_summary import RunSummary
from kseg.cli.text.amounts import size_words
from kseg.cli.text.broker_start import broker_start_words
from kseg.cli.text.common import Place, partition_words
from kseg.segment.counted import counted, listed
from kseg.segment.diagnosis import InvalidBytes, MissingReplica, ReplicaBehind
from kseg.segment.findings import ERROR, INFO, WARNING, Finding
from kseg.segment.storage import places

_NAMES_SHOWN = 5


class ErrorPlaces:
    """partitions: those examined. damaged: those of them with an error in their files."""

    def __init__(self) -> None:
        self.partitions = 0
        self.damaged = 0
        self._missing = 0
        self._behind = 0
        self._errors = 0  # errors of the partitions that are counted here

    def finding(self, finding: Finding) -> None:
        about = finding.diagnosis
        if finding.severity != ERROR or not isinstance(about, MissingReplica | ReplicaBehind):
            return
        self._errors += 1
        if isinstance(about, MissingReplica) or not places.lexists(finding.path):
            self._missing += 1
        else:
            self._behind += 1

    def add_damaged(self, errors: int) -> None:
        """A partition with this number of errors in its files."""
        self.damaged += 1
        self._errors += errors

    def words(self, errors: int) -> str:
        """` in 1 of 8 partitions and in 2 that are missing`; empty if none is known to be in a partition. errors: of the run."""
        found = [f"{self.damaged:,} of {counted(self.partitions, 'partition')}"] if self.damaged else []
        for number, one, several in (
            (self._missing, "is missing", "are missing"),
            (self._behind, "lacks records", "lack records"),
        ):
            what = f"{number:,}" if found else counted(number, "partition")
            if number:
                found.append(f"{what} that {one if number == 1 else several}")
        others = ", and elsewhere" if found and errors > self._errors else ""
        return f" in {' and in '.join(found)}{others}" if found else ""


class VerifyReport(Report):
    """A `Report` on the findings of verify and its `verified` rows."""

    def __init__(self) -> None:
        super().__init__()
        self._places = ErrorPlaces()
        self._damaged: list[Place] = []  # the first few
        self._records_at_risk = 0
        self._seen: set[tuple[str, int]] = set()
        self._starts: list[Mapping[str, Any]] = []

    def finding(self, finding: Finding) -> None:
        super().finding(finding)
        self._places.finding(finding)
        first, last = finding.first_offset, finding.last_offset
        if finding.severity != ERROR or finding.position is None or first is None or last is None:
            return
        place = finding.path, finding.position
        if finding.path.endswith((".log", ".kafka")) and place not in self._seen:
            self._seen.add(place)
            lost = finding.diagnosis
            known = lost.records if isinstance(lost, InvalidBytes) else None
            self._records_at_risk += max(0, last - first + 1) if known is None else known

    def row(self, values: Mapping[str, Any]) -> None:
        if values.get("type") == "broker-start":
            self._starts.append(values)
        if values.get("type") == "verified" and values.get("kind") == "partition":
            self._places.partitions += 1
            if values["errors"]:
                self._places.add_damaged(values["errors"])
                if len(self._damaged) <= _NAMES_SHOWN:
                    path = str(values["path"])
                    self._damaged.append((os.path.basename(places.abspath(path)), path))

    def opening(self, summary: RunSummary) -> Iterator[Line]:
        yield self._verdict(summary)
        yield from self._found.lines(ERROR, WARNING, INFO)

    def closing(self, summary: RunSummary) -> Iterator[Line]:
        records = counted(self._records_at_risk, "record")
        risk = f"at most {records} in the damage" if self._records_at_risk else ""
        partitions, damaged = self._places.partitions, self._places.damaged
        if damaged and partitions > 1:
            names = listed([*partition_words(self._damaged).values()], _NAMES_SHOWN, number=damaged)
            words = f"{counted(partitions, 'partition')}: {partitions - damaged:,} sound, {damaged:,} damaged: {names}"
            yield Line(f"{words}; {risk}" if risk else words)
        elif risk:
            yield Line(risk)
        for start in self._starts:
            yield from map(Line, broker_start_words(start))
        yield Line(looked_at_words(summary))

    def _verdict(self, summary: RunSummary) -> Line:
        failed, where = summary.targets_failed, self._places.words(summary.errors)
        if summary.errors:
            words = f"DAMAGED: {counted(summary.errors, 'error')}{where}"
            tone = ERROR
        elif failed:
            words, tone = "INCOMPLETE", ERROR
        elif summary.sums.get("files") == 0:  # there are no Kafka files
            words, tone = "NOTHING VERIFIED", WARNING
        else:
            words, tone = "SOUND: no errors", GOOD
        if not where and self._places.partitions > 1:
            words += f" in {counted(self._places.partitions, 'partition')}"
        if summary.warnings:
            words += f", {counted(summary.warnings, 'warning')}"
        if failed:
            words += f"; {failed:,} of {counted(summary.targets, 'target')} could not be examined"
        return Line(words, tone)


def looked_at_words(summary: RunSummary) -> str:
    """The last line of verify: what was read, how many of the bytes are valid, damaged or padding, and what was found."""
    sums = summary.sums
    looked = ", ".join(
        counted(sums[name], noun)
        for name, noun in (("files", "file"), ("batches", "batch"), ("records", "record"))
        if name in sums
    )
    if sums.get("sets_not_opened"):
        looked += f" and {counted(sums['sets_not_opened'], 'compressed set')} (--deep counts their records)"
    if "bytes_total" in sums:
        unreadable = sums.get("bytes_unreadable", 0)
        lost = f" ({counted(unreadable, 'byte')} of them unreadable)" if unreadable else ""
        looked += (
            f"; {size_words(sums['bytes_total'])}: {size_words(sums.get('bytes_valid', 0))} valid, "
            f"{counted(sums.get('bytes_damaged', 0), 'byte')} damaged{lost}, "
            f"{size_words(sums.get('bytes_padding', 0))} padding"
        )
    failed = summary.targets_failed
    verdict = severities_words(summary)
    if failed:
        verdict += f", {failed:,} of {counted(summary.targets, 'target')} failed"
    return f"{looked}; {verdict}" if looked else verdict
