"""Run the reading commands in tests, and sort the events of a target by type."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from kseg.inspection.fetch import read
from kseg.inspection.inventory import list_target
from kseg.inspection.lookup import lookup
from kseg.inspection.query import ListOptions, LookupQuery, ReadQuery
from kseg.jobs.events import Event, Failure, Row, Text
from kseg.jobs.guarded import guarded
from kseg.segment.findings import Finding
from kseg.segment.partition.targets import FileTarget, LogDirTarget, PartitionTarget


@dataclass
class Heard:
    """The events, by type."""

    rows: list[dict[str, Any]] = field(default_factory=list)
    findings: list[Finding] = field(default_factory=list)
    failures: list[Failure] = field(default_factory=list)
    data: bytes = b""

    @property
    def kinds(self) -> list[str]:
        return [finding.id for finding in self.findings]

    def of_type(self, name: str) -> list[dict[str, Any]]:
        return [row for row in self.rows if row["type"] == name]


def heard(events: Iterable[Event]) -> Heard:
    result = Heard()
    for event in events:
        match event:
            case Row():
                result.rows.append(dict(event.values))
            case Text():
                result.data += event.data
            case Finding():
                result.findings.append(event)
            case Failure():
                result.failures.append(event)
    return result


def target_of(path: Path, log_dir: Path | None = None) -> PartitionTarget | FileTarget:
    if path.is_dir():
        return PartitionTarget(str(path), None if log_dir is None else str(log_dir))
    return FileTarget(str(path))


def ask(path: Path, kind: str, *, log_dir: Path | None = None, **fields: Any) -> Heard:
    return heard(guarded(lookup, target_of(path, log_dir), LookupQuery(kind=kind, **fields)))


def answer(path: Path, kind: str, **fields: Any) -> dict[str, Any]:
    """The only row of a lookup that has neither failures nor findings."""
    result = ask(path, kind, **fields)
    assert (result.findings, result.failures) == ([], [])
    (row,) = result.rows
    return row


def fetch(path: Path, offset: int, max_bytes: int, **fields: Any) -> Heard:
    return heard(guarded(read, target_of(path), ReadQuery(offset=offset, max_bytes=max_bytes, **fields)))


def listed(target: PartitionTarget | FileTarget | LogDirTarget, now_ms: int = 4_000_000_000_000) -> Heard:
    return heard(list_target(target, ListOptions(now_ms=now_ms)))


def as_without_spark(text: str) -> str:
    """The output of a run on a cluster, without the suggested next command, which is for the cluster as well."""
    return re.sub(r"^(next: .*?) --spark(?= )", r"\1", text, flags=re.MULTILINE)
