"""Protection for an append: locks, a journal to undo it, and a log dir that never claims more than is on disk.

The run holds the lock of the log dir and takes care of its checkpoints and its clean-shutdown marker, as for any change of several
partitions (`multi_partition_guard`). Before the first byte is written the partition gets a journal (`apply.append_journal`). A
partition outside a log dir has only that journal.
"""

import os
from collections.abc import Iterable
from contextlib import ExitStack
from typing import Self

from kseg.change.append.multi_partition_guard import LogDirProtection
from kseg.change.apply.append_journal import Guard
from kseg.change.apply.disk import disk_for
from kseg.change.apply.journal_scan import id_after
from kseg.change.apply.keeping import BESIDE, Keeping
from kseg.change.apply.lock import locked, log_dirs_behind
from kseg.change.apply.unfinished import complete_unfinished
from kseg.segment.files import is_directory
from kseg.segment.findings import Finding
from kseg.segment.new_files import ensure_directory
from kseg.segment.partition.directory import own_partition_name
from kseg.segment.partition.targets import PartitionTarget

COMMAND = "append"


class Protection:
    """Protects one append; a context manager that holds the lock of the log dir.

    target: the partition. run_id: names the journals. keeping: where they are written. Entering raises Refused if a broker is
    running, another kseg is changing the log dir, or a change was left half done.
    """

    def __init__(
        self,
        target: PartitionTarget,
        run_id: str,
        follow_links: bool = False,
        keeping: Keeping = BESIDE,
    ) -> None:
        self.target = target
        self._id = id_after(run_id, filter(None, (target.path, target.log_dir)))
        self._follow_links = follow_links
        self._keeping = keeping
        self._stack = ExitStack()
        self._partition: Guard | None = None
        self._log_dir = (
            None
            if target.log_dir is None
            else LogDirProtection(target.log_dir, COMMAND, self._id, follow_links, keeping)
        )

    def __enter__(self) -> Self:
        self._stack.enter_context(locked(log_dirs_behind([self.target])))
        if self._log_dir is not None:
            self._stack.enter_context(self._log_dir)
        try:
            # the directory may have been created by a change that was not committed
            if is_directory(self.target.path):
                complete_unfinished(self.target.path, COMMAND, disk_for(self._follow_links))
        except BaseException:
            self._stack.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    @property
    def findings(self) -> list[Finding]:
        """Checkpoints that could not be read and are left unchanged."""
        return [] if self._log_dir is None else self._log_dir.findings

    @property
    def journal(self) -> str | None:
        """For `kseg undo`; None while nothing was changed."""
        whole = None if self._log_dir is None else self._log_dir.journal
        return whole or (None if self._partition is None else self._partition.journal)

    def begin(self, grows: Iterable[str] = (), replaces: Iterable[str] = ()) -> None:
        """Announce a change of these files of the partition; new files follow with `will_create`. Creates the directory."""
        path = self.target.path
        is_new = not is_directory(path)
        if self._log_dir is not None:
            self._log_dir.begin([os.path.basename(os.path.abspath(path))])
        ensure_directory(path)
        if self._log_dir is not None:
            self._partition = self._log_dir.guard(path, grows=grows, replaces=replaces, is_new=is_new)
        else:
            guard = Guard(
                path,
                COMMAND,
                journal_id=self._id,
                grows=grows,
                replaces=replaces,
                is_new=is_new,
                keeping=self._keeping,
                disk=disk_for(self._follow_links),
            )
            self._partition = self._stack.enter_context(guard)

    def will_create(self, name: str) -> None:
        """Announce a new file in the partition."""
        assert self._partition is not None
        self._partition.will_create(name)

    def finish(self, log_end_offset: int) -> None:
        """To be called once the partition is closed and synced."""
        if self._partition is None:
            return
        self._partition.done()
        if self._log_dir is not None:
            name = own_partition_name(self.target.path)
            self._log_dir.finish({} if name is None else {name: log_end_offset})

    def roll_back(self) -> None:
        """Restore everything that was changed."""
        partition, self._partition = self._partition, None
        if self._log_dir is not None:
            self._log_dir.roll_back()
        elif partition is not None:
            partition.roll_back()
