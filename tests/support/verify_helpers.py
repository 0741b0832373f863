"""Helpers of the `verify` tests: verify a path without changing it, and summarize the findings."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from kseg.jobs.events import Row
from kseg.recovery.verify.options import VerifyOptions
from kseg.recovery.verify.verify import verify
from kseg.segment.findings import Finding
from kseg.segment.partition.targets import Expansion, resolve_targets
from kseg.segment.partition.topic_settings import SettingsByPath
from tests.support.trees import unchanged

NOW_MS = 1_800_000_000_000


@dataclass(frozen=True)
class Verdict:
    """findings: of all targets, in order. sums: the totals of their `verified` rows."""

    root: Path
    findings: tuple[Finding, ...]
    sums: dict[str, int]

    def ids(self, *severities: str) -> set[str]:
        return {found.id for found in self.findings if not severities or found.severity in severities}

    def output(self, *severities: str) -> set[tuple[str, str]]:
        """(id, path below the root) of each finding of these severities (default: all)."""
        return {
            (found.id, self._below(found.path))
            for found in self.findings
            if not severities or found.severity in severities
        }

    def of(self, kind: str) -> list[Finding]:
        return [found for found in self.findings if found.id == kind]

    def _below(self, path: str) -> str:
        found = Path(path)
        return found.name if found == self.root else str(found.relative_to(self.root))


def judge(
    path: Path, level: str = "default", now_ms: int = NOW_MS, topics: SettingsByPath | None = None
) -> Verdict:
    """The findings and totals of verify for a path. Fails if anything there was changed or a byte is unaccounted for."""
    options = VerifyOptions(level=level, now_ms=now_ms, topics=topics)
    findings: list[Finding] = []
    sums: dict[str, int] = {}
    with unchanged(path):
        for target in resolve_targets([str(path)], expand=Expansion.VERIFY):
            rows = []
            for event in verify(target, options):
                if isinstance(event, Finding):
                    findings.append(event)
                elif isinstance(event, Row):
                    rows.append(event.values)
            assert len(rows) == 1
            assert rows[0]["type"] == "verified"
            for name, value in rows[0].items():
                if isinstance(value, int):
                    sums[name] = sums.get(name, 0) + value
    assert sums["bytes_valid"] + sums["bytes_damaged"] + sums["bytes_padding"] == sums["bytes_total"]
    assert min(sums.values()) >= 0
    for severity in ("error", "warning", "info"):
        assert sums[f"{severity}s"] == sum(found.severity == severity for found in findings)
    return Verdict(path if path.is_dir() else path.parent, tuple(findings), sums)
