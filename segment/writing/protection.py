"""What stands around an append: nobody else at work, a way back, and a log dir that never claims too much.

1. The lock of the log dir is held from before the first look to the end, so a broker neither runs nor starts. A
   half-done change of kseg's, in the partition or in the log dir, is in the way.
2. Before the first byte, journals note what will change (`apply.guard`): in the partition, and in the log dir its
   checkpoints and its clean-shutdown marker. Undoing the log dir's journal undoes the partition's too.
3. The marker is taken away while the partition is written, so that a broker that starts after a kill recovers what
   was not finished. It comes back last, when all is on the disk and the checkpoints say so.
"""

import os
from collections.abc import Iterable, Sequence
from contextlib import ExitStack
from types import TracebackType
from typing import Self

from kseg.segment.apply.growing import create_file, remove_file, replace_file, temporary_name
from kseg.segment.apply.guard import Guard
from kseg.segment.apply.lock import locked
from kseg.segment.apply.settle import refuse_half_done
from kseg.segment.errors import FormatError
from kseg.segment.files import ensure_directory, read_small, sync_directory
from kseg.segment.findings import Finding
from kseg.segment.partition.directory import own_partition_name
from kseg.segment.partition.names import NAME_BY_ROLE, Role
from kseg.segment.targets import PartitionTarget
from kseg.segment.writing.checkpoints import checkpoints_of_append, with_offset

COMMAND = "append"


class Protection:
    """Around one append; a context manager that holds the log dir's lock.

    target: the partition. run_id: the name of the journals. Entering raises Refused when a broker, another kseg
    or a half-done change is there. findings: checkpoints that could not be read, and stay as they are.
    """

    def __init__(self, target: PartitionTarget, run_id: str) -> None:
        self.target = target
        self.findings: list[Finding] = []
        self._id = run_id
        self._stack = ExitStack()
        self._partition: Guard | None = None
        self._log_dir: Guard | None = None
        self._marker: bytes | None = None

    def __enter__(self) -> Self:
        log_dir = self.target.log_dir
        self._stack.enter_context(locked([] if log_dir is None else [log_dir]))
        try:
            for directory in (self.target.path, log_dir):
                if directory is not None and os.path.isdir(directory):
                    refuse_half_done(directory)
        except BaseException:
            self._stack.close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.close()

    @property
    def journal(self) -> str | None:
        """For `kseg undo`; None while nothing was changed."""
        guard = self._log_dir or self._partition
        return None if guard is None else guard.journal

    def begin(self, grows: Iterable[str] = (), replaces: Iterable[str] = ()) -> None:
        """The partition is about to change: these files of it, and new ones (`will_create`). Makes the directory."""
        path, log_dir = self.target.path, self.target.log_dir
        is_new = not os.path.isdir(path)
        if log_dir is not None:
            name = os.path.basename(os.path.abspath(path))
            self._log_dir = self._guard(log_dir, self._files_of_log_dir(log_dir), partitions=[name])
            self._take_marker(log_dir)
        ensure_directory(path)
        self._partition = self._guard(path, replaces, grows=grows, is_new=is_new)

    def _guard(
        self,
        directory: str,
        replaces: Iterable[str],
        *,
        grows: Iterable[str] = (),
        is_new: bool = False,
        partitions: Sequence[str] = (),
    ) -> Guard:
        """A replaced file waits under another name before; one that lies there under that name goes."""
        names = list(replaces)
        waiting = {temporary_name(name) for name in names}
        there = {name for name in waiting if os.path.lexists(os.path.join(directory, name))}
        return self._stack.enter_context(
            Guard(
                directory,
                COMMAND,
                journal_id=self._id,
                grows=grows,
                replaces=[*names, *there],
                creates=sorted(waiting - there),
                is_new=is_new,
                partitions=partitions,
            )
        )

    def will_create(self, name: str) -> None:
        """A file of that name comes into the partition."""
        assert self._partition is not None
        self._partition.will_create(name)

    def finish(self, log_end_offset: int) -> None:
        """The partition is closed and on the disk."""
        if self._partition is None:
            return
        self._partition.done()
        if self._log_dir is not None and self.target.log_dir is not None:
            self._align_checkpoints(self.target.log_dir, log_end_offset)
            if self._marker is not None:
                create_file(self._path_of(self.target.log_dir, Role.CLEAN_SHUTDOWN), self._marker)
            sync_directory(self.target.log_dir)
            self._log_dir.done()

    def take_back(self) -> None:
        """Leave everything as it was found."""
        partition, log_dir = self._partition, self._log_dir
        self._partition = self._log_dir = None
        if log_dir is not None:
            if partition is not None:
                partition.let_go()
            log_dir.take_back()
        elif partition is not None:
            partition.take_back()

    def _files_of_log_dir(self, log_dir: str) -> list[str]:
        roles = (Role.RECOVERY_POINTS, Role.HIGH_WATERMARKS, Role.CLEAN_SHUTDOWN)
        return [NAME_BY_ROLE[role] for role in roles if os.path.isfile(self._path_of(log_dir, role))]

    def _take_marker(self, log_dir: str) -> None:
        path = self._path_of(log_dir, Role.CLEAN_SHUTDOWN)
        if os.path.isfile(path):
            self._marker = read_small(path)
            remove_file(path)
            sync_directory(log_dir)

    def _align_checkpoints(self, log_dir: str, log_end_offset: int) -> None:
        name = own_partition_name(self.target.path)
        if name is None or name.is_metadata_log:
            return
        for role in checkpoints_of_append(is_clean=self._marker is not None):
            path = self._path_of(log_dir, role)
            if not os.path.isfile(path):
                continue
            try:
                replace_file(path, with_offset(read_small(path), name, log_end_offset))
            except FormatError as error:
                self.findings.append(
                    Finding("checkpoint-corrupt", path, f"the checkpoint cannot be read: {error}")
                )

    @staticmethod
    def _path_of(log_dir: str, role: Role) -> str:
        return os.path.join(log_dir, NAME_BY_ROLE[role])
