"""The totals of one target, and a limit on how often one finding is shown."""

from collections.abc import Iterator, Mapping
from dataclasses import field, fields
from types import MappingProxyType
from typing import NamedTuple

from kseg.jobs.events import Row
from kseg.segment import unreadable
from kseg.segment.counted import counted
from kseg.segment.findings import ERROR, INFO, WARNING, Finding
from kseg.segment.partition.directory import LogDirectory, PartitionDirectory
from kseg.segment.partition.log_dir_state import LogDirState
from kseg.segment.partition.log_shape import LogShape
from kseg.segment.values import dataclass

# This many findings of each kind are shown per file; the rest are only counted.
SHOWN_PER_FILE = 100


class CheckedPartition(NamedTuple):
    """Facts about a checked partition, for callers that need more than findings. log_dir_state: the files of the data directory, None if it
    is unknown. first_offset, end_offset: of its log, the end None if there is no segment. unwritten_bytes: preallocated zeros after its
    last batch. batches: number of batches of each segment, by its base offset. greatest_producer_id: of its producers, -1 for none."""

    directory: PartitionDirectory
    log_dir_state: LogDirState | None
    first_offset: int
    end_offset: int | None
    unwritten_bytes: int = 0
    batches: Mapping[int, int] = MappingProxyType({})
    greatest_producer_id: int = -1


@dataclass(slots=True)
class Totals:
    """sets_not_opened: compressed sets of old formats, whose records cannot be counted without decoding them. bytes_damaged, bytes_padding:
    parts of `bytes_total`, the bytes of all files that were read; the rest is valid. bytes_unreadable: the part of the damaged bytes that
    could not be read. checked: the partition, once it was checked; shape: of its log, if requested; listed: the data directory."""

    files: int = 0
    batches: int = 0
    records: int = 0
    sets_not_opened: int = 0
    bytes_total: int = 0
    bytes_damaged: int = 0
    bytes_padding: int = 0
    bytes_unreadable: int = 0
    checked: CheckedPartition | None = None
    shape: LogShape | None = None
    listed: LogDirectory | None = None
    severities: dict[str, int] = field(default_factory=lambda: {ERROR: 0, WARNING: 0, INFO: 0})
    _counts: dict[tuple[str, str], int] = field(default_factory=dict)

    def account(self, path: str, size_bytes: int, damaged: int = 0, padding: int = 0) -> None:
        """Add one file that was read: its damaged bytes, and those allocated but never written."""
        self.files += 1
        self.bytes_total += size_bytes
        lost = min(unreadable.bytes_of(path), size_bytes)
        self.bytes_unreadable += lost
        damaged = max(damaged, lost)
        self.bytes_damaged += min(damaged, size_bytes)
        self.bytes_padding += min(padding, size_bytes - min(damaged, size_bytes))

    def become(self, other: "Totals") -> None:
        """Take over all values of another reading of the same target."""
        for each in fields(self):
            setattr(self, each.name, getattr(other, each.name))

    def admit(self, finding: Finding) -> bool:
        """Count a finding; return whether to show it."""
        key = finding.path, finding.id
        count = self._counts.get(key, 0)
        self._counts[key] = count + 1
        if count < SHOWN_PER_FILE:
            self.severities[finding.severity] += 1
        return count < SHOWN_PER_FILE

    def overflow(self) -> Iterator[Finding]:
        """One finding for each kind and file with findings that were not shown."""
        for (path, kind), count in self._counts.items():
            if count > SHOWN_PER_FILE:
                more = count - SHOWN_PER_FILE
                finding = Finding(
                    kind, path, f"{counted(more, 'more finding')} of this kind", numbers={"more": more}
                )
                self.severities[finding.severity] += 1
                yield finding

    def row(self, path: str, kind: str) -> Row:
        """The row of totals of one target, which the caller adds up. kind: file, partition or log-dir."""
        return Row(
            {
                "type": "verified",
                "path": path,
                "kind": kind,
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
