"""Keep log-start-offset-checkpoint up to date during a run of `retain` (`checkpoint_run`).

As with a broker, a log has an entry only when it starts inside its first segment, or has tiered storage (LogManager.
checkpointLogStartOffsets). Until the checkpoint is written, an entry may be too low, which a broker corrects when it loads the log.

Where attempts may be repeated, the journals of purges stay until the end of the run: they record what was deleted.
"""

import os
from collections.abc import Iterator, Sequence
from dataclasses import replace

from kseg.compaction.checkpoint_run import CheckpointRun, Entries, Values
from kseg.compaction.retention import rows
from kseg.compaction.retention.freeing import Choice, choose, refuse_unreached
from kseg.compaction.retention.options import RetainOptions
from kseg.compaction.retention.purge import drop_purge
from kseg.compaction.retention.rows import COMMAND, RetainResult
from kseg.compaction.retention.survey import survey
from kseg.jobs.events import Event, Failure, Row
from kseg.segment.errors import KsegError
from kseg.segment.partition.names import PartitionName, PartitionState, Role
from kseg.segment.partition.targets import PartitionTarget, Target


class RetainRun(CheckpointRun[RetainOptions, RetainResult]):
    command = COMMAND
    role = Role.LOG_START_OFFSETS
    result_type = RetainResult
    why = "log start offsets of the logs"

    def __init__(self, options: RetainOptions) -> None:
        super().__init__(options)
        self.choice: Choice | None = None
        self._purged: list[str] = []

    def begin(self, targets: Sequence[Target]) -> None:
        """With --free: choose over all partitions."""
        if self.options.free_bytes is None:
            return
        partitions = [target for target in targets if isinstance(target, PartitionTarget)]
        surveys = [survey(target, self.options) for target in (*partitions, *self._deleted())]
        self.choice = choose(surveys, self.options.free_bytes)
        if self.options.apply:
            refuse_unreached(self.choice)
        self.options = replace(self.options, cuts=self.choice.cuts)

    def _deleted(self) -> Iterator[PartitionTarget]:
        """Directories of deleted topics, which occupy space but are not targets."""
        for log_dir in self.whole:
            for name in sorted(os.listdir(log_dir)):
                if name.endswith(f"-{PartitionState.DELETE}"):
                    yield PartitionTarget(os.path.join(log_dir, name), log_dir)

    def through(self, events: Iterator[Event]) -> Iterator[Event]:
        yield from super().through(events)
        if self.choice is not None:
            for row in rows.free_rows(self.choice, self.options):
                self.is_due = self.is_due or not self.options.apply
                yield Row(row)
        for directory in self._purged:
            try:
                drop_purge(directory, self.options.run_id)
            except KsegError as error:
                yield Failure(directory, str(error), error.exit_status)

    def note(self, event: Event) -> None:
        super().note(event)
        options = self.options
        if (
            options.apply
            and options.shared is not None
            and isinstance(event, Row)
            and isinstance(event.result, RetainResult)
            and event.result.purged
        ):
            self._purged.append(event.result.directory)

    def is_pending(self, result: RetainResult) -> bool:
        return bool(result.deleted or result.unmarked or result.purged or result.log_start_moved)

    def is_concerned(self, result: RetainResult) -> bool:
        return result.first_base_offset is not None

    def checkpoint_entry(self, result: RetainResult, name: PartitionName) -> tuple[bool, int | None]:
        start, first = result.log_start_offset, result.first_base_offset
        if start is None or first is None or not (result.log_start_moved or result.deleted):
            return False, None
        return True, start if result.tiered or start > first else None

    def row_of(self, log_dir: str, entries: Entries, done: Values) -> Values:
        return {
            "type": "result",
            "command": COMMAND,
            "log_dir": log_dir,
            "directory": log_dir,
            "log_start_offsets": {f"{topic}-{number}": at for (topic, number), at in entries.items()},
            **done,
        }
