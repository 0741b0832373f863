"""What a run of `compact` does around the partitions (`around`): it keeps cleaner-offset-checkpoint in line.

Until that is written the offset there is too low, and a cleaner does again what is done already.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from kseg.compaction.around import CheckpointRun, Entries, Values
from kseg.compaction.cleaner.options import CompactOptions
from kseg.compaction.cleaner.rows import COMMAND, log_dir_row
from kseg.segment.apply.prepared import copy_path
from kseg.segment.partition.names import PartitionName, PartitionState, Role
from kseg.segment.targets import Target, directory_of


class Run(CheckpointRun[CompactOptions]):
    """One run of `compact` over many targets."""

    command = COMMAND
    role = Role.CLEANER_OFFSETS
    why = "first dirty offsets as the logs are"

    def log_dirs_of(self, targets: Sequence[Target]) -> list[str]:
        return [] if self.options.output is not None else super().log_dirs_of(targets)

    def copy_of(self, target: Target) -> str | None:
        output = self.options.output
        return None if output is None else copy_path(output, directory_of(target))

    def is_left(self, result: Mapping[str, Any]) -> bool:
        return bool(result["steps"])

    def entry_of(self, result: Mapping[str, Any], name: PartitionName) -> tuple[bool, int | None]:
        is_said = bool(result["passes"]) and name.state is PartitionState.LIVE
        return is_said, result["next_dirty_offset"]

    def row_of(self, log_dir: str, entries: Entries, done: Values) -> Values:
        noted = {f"{topic}-{number}": at for (topic, number), at in entries.items() if at is not None}
        return log_dir_row(log_dir, noted, done)
