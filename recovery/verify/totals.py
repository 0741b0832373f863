"""What was looked at and what it came to: the sums of one target, and a bound on how often one thing is said."""

from collections.abc import Iterator
from dataclasses import field

from kseg.jobs.events import Row
from kseg.segment import unreadable
from kseg.segment.findings import ERROR, INFO, WARNING, Finding
from kseg.segment.values import dataclass

# Of one kind about one file, so many findings are shown one by one; the rest are counted.
SHOWN_PER_FILE = 100


@dataclass(slots=True)
class Ledger:
    """sets_not_opened: compressed sets of old formats, whose records only decoding them would count. bytes_damaged,
    bytes_padding: of `bytes_total`, the bytes of all files that were read; the rest is valid. bytes_unreadable: of the
    damaged ones, those that could not be read."""

    files: int = 0
    batches: int = 0
    records: int = 0
    sets_not_opened: int = 0
    bytes_total: int = 0
    bytes_damaged: int = 0
    bytes_padding: int = 0
    bytes_unreadable: int = 0
    severities: dict[str, int] = field(default_factory=lambda: {ERROR: 0, WARNING: 0, INFO: 0})
    _said: dict[tuple[str, str], int] = field(default_factory=dict)

    def account(self, path: str, size_bytes: int, damaged: int = 0, padding: int = 0) -> None:
        """One file that was read: what of it is damaged, what was allocated and never written."""
        self.files += 1
        self.bytes_total += size_bytes
        lost = min(unreadable.bytes_of(path), size_bytes)
        self.bytes_unreadable += lost
        damaged = max(damaged, lost)
        self.bytes_damaged += min(damaged, size_bytes)
        self.bytes_padding += min(padding, size_bytes - min(damaged, size_bytes))

    def admit(self, finding: Finding) -> bool:
        """Count a finding; whether it is to be shown."""
        key = finding.path, finding.id
        said = self._said.get(key, 0)
        self._said[key] = said + 1
        if said < SHOWN_PER_FILE:
            self.severities[finding.severity] += 1
        return said < SHOWN_PER_FILE

    def overflow(self) -> Iterator[Finding]:
        """One finding for each kind and file of which some were not shown."""
        for (path, kind), said in self._said.items():
            if said > SHOWN_PER_FILE:
                more = said - SHOWN_PER_FILE
                finding = Finding(kind, path, f"{more} more findings of this kind", numbers={"more": more})
                self.severities[finding.severity] += 1
                yield finding

    def row(self, path: str) -> Row:
        """The line that says what one target came to; the caller of all targets adds them up."""
        return Row(
            {
                "type": "verified",
                "path": path,
                "files": self.files,
                "batches": self.batches,
                "records": self.records,
                "sets_not_opened": self.sets_not_opened,
                "bytes_total": self.bytes_total,
                "bytes_valid": self.bytes_total - self.bytes_damaged - self.bytes_padding,
                "bytes_damaged": self.bytes_damaged,
                "bytes_padding": self.bytes_padding,
                "bytes_unreadable": self.bytes_unreadable,
                "errors": self.severities[ERROR],
                "warnings": self.severities[WARNING],
                "infos": self.severities[INFO],
            }
        )
