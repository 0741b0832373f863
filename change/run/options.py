"""The options shared by all commands that plan a change and carry it out."""

import os
from contextlib import AbstractContextManager

from kseg.change.apply.keeping import BESIDE, Keeping
from kseg.change.apply.lock import SHARED_LOCK
from kseg.segment.partition.names import NAME_BY_ROLE, Role
from kseg.segment.partition.recognition import is_log_directory
from kseg.segment.partition.targets import PartitionTarget, Target, directory_of
from kseg.segment.partition.topic_identity import WithIdentities
from kseg.segment.values import dataclass

_BROKERS = NAME_BY_ROLE[Role.LOCK]


@dataclass(frozen=True, slots=True)
class SharedRun:
    """id: of the run. output: the directory of --output, None when the change is made in place. there_before: the copies
    that existed when the run began."""

    id: str
    output: str | None = None
    there_before: frozenset[str] = frozenset()

    def lock_file(self, target: Target) -> str:
        """The file whose lock the run holds while the target is processed."""
        if self.output is not None:
            return self.lock_of_copies(self.output)
        if isinstance(target, PartitionTarget) and target.log_dir is not None:
            return os.path.join(target.log_dir, _BROKERS)
        around = os.path.join(directory_of(target), os.pardir)
        return os.path.join(around, _BROKERS if is_log_directory(around) else SHARED_LOCK)

    def lock_of_copies(self, output: str) -> str:
        """Like `lock_file`, for copies below `output`."""
        return os.path.join(output, SHARED_LOCK)

    def lock_partition(self, target: Target) -> AbstractContextManager[None]:
        """Context manager: be the only attempt at a target. Raises Refused on entry."""
        from kseg.change.run.partition_lock import partition_locked

        directory = os.path.abspath(directory_of(target))
        name = os.path.basename(directory) if self.output is None else directory
        return partition_locked(self.lock_file(target), self.id, name)


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangeOptions(WithIdentities):
    """apply: change the directories; run_id: names the journals of this run. output: write changed copies below this directory
    instead (None: neither, plan only); hard_link: unchanged files of a copy are links. keeping: where journals and removed data are
    stored. follow_links: a directory to be changed may be a link. accept_unreadable: bytes that cannot be read count as lost, and
    are no reason to refuse a change in place. shared: the work is done by attempts in other processes; None: by this process and its
    workers.
    """

    apply: bool = False
    run_id: str = ""
    output: str | None = None
    hard_link: bool = False
    keeping: Keeping = BESIDE
    follow_links: bool = False
    accept_unreadable: bool = False
    shared: SharedRun | None = None
