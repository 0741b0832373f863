"""Keep cleaner-offset-checkpoint up to date during a run of `compact` (`checkpoint_run`), and give copies their entries of all
checkpoints (`copied_checkpoints`).

Until the checkpoint is written, its offset is too low, and a cleaner repeats work that has already been done.
"""

import os
from collections.abc import Iterator, Sequence

from kseg.change.run.copied_checkpoints import carried_row, carry, entries_of
from kseg.change.run.prepared import copies_of, copy_path
from kseg.compaction.checkpoint_run import CheckpointRun, Entries, Values
from kseg.compaction.cleaner.options import CompactOptions
from kseg.compaction.cleaner.rows import COMMAND, CompactResult, log_dir_row
from kseg.jobs.events import Event, Row
from kseg.segment.partition.directory import own_partition_name
from kseg.segment.partition.names import PartitionName, PartitionState, Role
from kseg.segment.partition.recognition import is_log_directory
from kseg.segment.partition.targets import Target, directory_of


class CompactRun(CheckpointRun[CompactOptions, CompactResult]):
    command = COMMAND
    role = Role.CLEANER_OFFSETS
    result_type = CompactResult
    why = "first dirty offsets of the logs"

    def __init__(self, options: CompactOptions) -> None:
        super().__init__(options)
        # by data directory: the partitions and their first dirty offsets
        self._copied: dict[str, Entries] = {}

    def log_dirs_of(self, targets: Sequence[Target]) -> list[str]:
        return [] if self.options.output is not None else super().log_dirs_of(targets)

    def partial_log_dirs(self) -> Sequence[str]:
        return list(self._copied) if self.options.output is not None else ()

    def close_partial_log_dir(self, log_dir: str) -> Iterator[Event]:
        output, offsets = str(self.options.output), self._copied[log_dir]
        carried = entries_of(log_dir, offsets)
        cleaned = {key: offset for key, offset in offsets.items() if offset is not None}
        carried[self.role] = {**carried.get(self.role, {}), **cleaned}
        carry(carried, offsets, output, copies_of(self.options))
        done = {"applied": True, "journal": None, "output": output, "checkpoints": carried_row(carried)}
        yield Row(self.row_of(log_dir, {key: offsets[key] for key in cleaned}, done))

    def note(self, event: Event) -> None:
        super().note(event)
        if isinstance(event, Row) and isinstance(event.result, CompactResult) and event.result.output:
            self._note_copy(event.result)

    def _note_copy(self, result: CompactResult) -> None:
        """Copy the data directory's checkpoint entries of the partition along with it."""
        directory = result.directory
        name, log_dir = own_partition_name(directory), os.path.dirname(directory) or os.curdir
        if name is None or not is_log_directory(log_dir):
            return
        is_stated, offset = self.checkpoint_entry(result, name)
        self._copied.setdefault(log_dir, {})[name.topic, name.partition] = offset if is_stated else None

    def copy_of(self, target: Target) -> str | None:
        output = self.options.output
        return None if output is None else copy_path(output, directory_of(target))

    def is_pending(self, result: CompactResult) -> bool:
        return bool(result.steps)

    def checkpoint_entry(self, result: CompactResult, name: PartitionName) -> tuple[bool, int | None]:
        is_stated = bool(result.passes) and name.state is PartitionState.LIVE
        return is_stated, result.next_dirty_offset

    def row_of(self, log_dir: str, entries: Entries, done: Values) -> Values:
        offsets_by_topic = {
            f"{topic}-{number}": at for (topic, number), at in entries.items() if at is not None
        }
        return log_dir_row(log_dir, offsets_by_topic, done)
