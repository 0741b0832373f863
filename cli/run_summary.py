"""Counts of a run, from which the summary and the exit status are derived.

The exit status is determined only here (docs: the command contract):

    0 nothing wrong · 1 damage found, nothing found by a lookup, or something remains to be done (a plan that was not
    carried out) · 3, 4, 70 all targets failed, by the reason · 5 some targets failed and the others are done · 130 interrupted
"""

from collections.abc import Mapping, Sequence
from typing import Protocol

from kseg.jobs.events import Failure
from kseg.segment.counted import counted
from kseg.segment.diagnosis import InvalidBytes, MetadataGap
from kseg.segment.findings import ERROR, INFO, WARNING, Finding

# How long a change takes: bytes per second (written, read back and synced), and seconds per journal (syncs and renames). The first of each
# pair is for a spinning disk, the second for flash, which is ten times as fast (measured: 3 to 10 ms per change, 20 to 2,200 partitions).
WRITTEN_BYTES_PER_S, WRITTEN_BYTES_PER_S_ON_FLASH = 50 << 20, 500 << 20
SECONDS_A_CHANGE, SECONDS_A_CHANGE_ON_FLASH = 0.05, 0.005

DAMAGED = 1
PARTLY = 5
INTERRUPTED = 130


class Group(Protocol):
    """Targets that are processed together."""

    @property
    def targets(self) -> Sequence[object]: ...


class RunSummary:
    """targets: the number of targets, including paths that failed before they became one. errors_settle: whether an error among the
    findings determines the exit status; for a command that repairs damage, `remains` determines it."""

    def __init__(self, targets: int, errors_settle: bool = True) -> None:
        self.targets = targets
        self.errors_settle = errors_settle
        self.remaining = 0
        self._finished = 0
        self._results = 0
        self.severities = {ERROR: 0, WARNING: 0, INFO: 0}
        self.unreadable: list[Finding] = []
        self.metadata_gaps: list[Finding] = []
        self.stuck_changes: list[Finding] = []  # `recover` refuses what has them
        self.flipped_batches = 0  # that are valid with one bit inverted
        self.failures: dict[Failure, None] = {}  # in order
        self.sums: dict[str, int] = {}
        self.interrupted = ""  # why the run ended early, in words
        self.has_changed_partition = False
        self.has_changed_log_dir = False  # if so, its journal undoes the whole run
        self._answers: list[bool] = []
        self.planned_changes = self.planned_bytes = 0
        self.lacks_room = False

    @property
    def finished(self) -> int:
        """The number of finished targets, including those with a result in a group that is not finished."""
        return self._finished + self._results

    def finish_target(self, _target: object) -> None:
        self._finish(1)

    def finish_group(self, group: "Group") -> None:
        self._finish(len(group.targets))

    def _finish(self, targets: int) -> None:
        self._finished += targets
        self._results = 0

    def count(self, finding: Finding) -> None:
        self.severities[finding.severity] += 1
        if finding.id == "unreadable":
            self.unreadable.append(finding)
        if isinstance(finding.diagnosis, MetadataGap) and not finding.diagnosis.is_loadable:
            self.metadata_gaps.append(finding)
        if finding.id in ("journal-missing", "journal-overtaken"):
            self.stuck_changes.append(finding)
        if isinstance(finding.diagnosis, InvalidBytes):
            self.flipped_batches += len(finding.diagnosis.flipped)

    def fail(self, failure: Failure) -> bool:
        """Note a failure; returns whether it is new: what `look` could not read may fail again when it is processed."""
        is_new = failure not in self.failures
        self.failures[failure] = None
        return is_new

    def answer(self, found: bool) -> None:
        """Note whether a target answered a lookup."""
        self._answers.append(found)

    def remains(self) -> None:
        """Note that a target still needs a change."""
        self.remaining += 1

    def note_result(self, result: Mapping[str, object]) -> None:
        """Count the result of a partition, note changes, and add the space that a plan needs: none for a change that was carried out."""
        self._results += "partition" in result
        if result.get("journal"):
            self.has_changed_log_dir |= "log_dir" in result
            self.has_changed_partition |= "log_dir" not in result
        rooms = result.get("room")
        if result.get("applied") or not isinstance(rooms, Sequence) or not rooms:
            return
        self.lacks_room |= not all(each["fits"] for each in rooms)
        self.planned_changes += 1
        self.planned_bytes += sum(each["needed"] for each in rooms)

    @property
    def estimated_s(self) -> float | None:
        """The estimated duration of all planned changes on a spinning disk; None if nothing was planned."""
        if not self.planned_changes:
            return None
        return self.planned_bytes / WRITTEN_BYTES_PER_S + self.planned_changes * SECONDS_A_CHANGE

    @property
    def estimated_s_on_flash(self) -> float | None:
        if not self.planned_changes:
            return None
        written_s = self.planned_bytes / WRITTEN_BYTES_PER_S_ON_FLASH
        return written_s + self.planned_changes * SECONDS_A_CHANGE_ON_FLASH

    def add(self, summary: Mapping[str, object]) -> None:
        """Add the totals of one target, except its numbers of findings, which `count` counts."""
        for name, value in summary.items():
            if (
                isinstance(value, int)
                and not isinstance(value, bool)
                and name not in ("errors", "warnings", "infos")
            ):
                self.sums[name] = self.sums.get(name, 0) + value

    @property
    def errors(self) -> int:
        return self.severities[ERROR]

    @property
    def warnings(self) -> int:
        return self.severities[WARNING]

    @property
    def is_spotless(self) -> bool:
        return not (self.errors or self.warnings or self.failures)

    def as_row(self, command: str) -> dict[str, object]:
        """The `summary` line of --json."""
        estimated_s, on_flash = self.estimated_s, self.estimated_s_on_flash
        return {
            "type": "summary",
            "command": command,
            **self.sums,
            **({} if estimated_s is None else {"estimated_s": round(estimated_s, 1)}),
            **({} if on_flash is None else {"estimated_s_on_flash": round(on_flash, 1)}),
            "errors": self.errors,
            "warnings": self.warnings,
            "infos": self.severities[INFO],
            "targets": self.targets,
            "targets_done": self.finished,
            "targets_failed": self.targets_failed,
            "interrupted": bool(self.interrupted),
        }

    @property
    def failed_paths(self) -> set[str]:
        return {path for failure in self.failures for path in failure.paths or (failure.path,)}

    @property
    def targets_failed(self) -> int:
        """The number of failed targets. A data directory can fail in addition to all targets in it, hence the upper limit."""
        return min(len(self.failed_paths), self.targets)

    def progress_words(self) -> str:
        """What was done before an interrupt."""
        return (
            f"{counted(self.finished, 'target')} of {self.targets} done, "
            f"{counted(self.errors, 'error')}, {counted(self.warnings, 'warning')} so far"
        )

    def rescue_words(self) -> str:
        """How much of the files with bad areas was read, in the terms of ddrescue."""
        found = self.unreadable
        sizes = {finding.path: _number(finding, "file_bytes") for finding in found}
        lost_bytes = sum(finding.length or 0 for finding in found)
        errors = sum(_number(finding, "read_errors") for finding in found)
        return (
            f"rescued: {sum(sizes.values()) - lost_bytes:,} bytes of {counted(len(sizes), 'file')}; unreadable: "
            f"{counted(lost_bytes, 'byte')}, {counted(len(found), 'bad area')}, {counted(errors, 'read error')}"
        )

    def exit_status(self) -> int:
        if self.interrupted:
            return INTERRUPTED
        if self.failures:
            if len(self.failed_paths) < self.targets:
                return PARTLY
            statuses = {failure.exit_status for failure in self.failures}
            return max(statuses)
        is_unanswered = bool(self._answers) and not any(self._answers)
        if self.remaining or is_unanswered or (self.errors_settle and self.errors):
            return DAMAGED
        return 0


def _number(finding: Finding, name: str) -> int:
    value = finding.numbers.get(name)
    return value if isinstance(value, int) else 0
