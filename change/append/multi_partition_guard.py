"""Protection for a change of several partitions: locks, one journal to undo it, and no false clean shutdown.

1. The lock of the log dir is held from the first read to the end, so that no broker runs or starts. An unfinished change of
   kseg is refused.
2. Before the first byte is written, a journal in the log dir records its checkpoints, its clean-shutdown marker and the partitions
   that will change; each of those gets a journal of its own. Undoing the journal of the log dir undoes theirs too.
3. The marker is removed in the meantime, so that a broker that starts after a crash recovers what is incomplete. It is
   restored last, when everything is on disk and the checkpoints agree.
"""

import os
from collections.abc import Collection, Iterable, Mapping
from contextlib import ExitStack
from typing import Self

from kseg.change.apply.append_files import create_file, remove_file, replace_file
from kseg.change.apply.append_journal import Guard
from kseg.change.apply.disk import disk_for
from kseg.change.apply.keeping import BESIDE, Keeping
from kseg.change.apply.lock import locked
from kseg.change.apply.unfinished import refuse_half_done
from kseg.segment.errors import FormatError
from kseg.segment.files import read_small
from kseg.segment.findings import Finding
from kseg.segment.new_files import sync_directory
from kseg.segment.partition.names import NAME_BY_ROLE, PartitionName, Role
from kseg.segment.sidecar.checkpoint import decode_offset_checkpoint, encode_offset_checkpoint, with_offsets

_OF_FORMER_LOGS = (Role.LOG_START_OFFSETS, Role.CLEANER_OFFSETS)
# A broker writes the log end to these at a clean shutdown. The recovery point means that everything below it is on disk, so it is raised
# only if the log dir was shut down cleanly: otherwise that is unknown for the rest of the log.
_RAISED = (Role.HIGH_WATERMARKS,)
_RAISED_IF_CLEAN = (Role.RECOVERY_POINTS, Role.HIGH_WATERMARKS)


class LogDirProtection:
    """Protects one change of a log dir; a context manager that holds its lock.

    command, run_id: identify the journals. Entering raises Refused if a broker is running, another kseg is changing the log dir,
    or a change was left incomplete. findings: checkpoints that could not be read and are left unchanged.
    """

    def __init__(
        self,
        log_dir: str,
        command: str,
        run_id: str,
        follow_links: bool = False,
        keeping: Keeping = BESIDE,
    ) -> None:
        self.log_dir = log_dir
        self.findings: list[Finding] = []
        self._command, self._id = command, run_id
        self._follow_links = follow_links
        self._keeping = keeping
        self._stack = ExitStack()
        self._guard: Guard | None = None
        self._partitions: list[Guard] = []
        self._marker: bytes | None = None

    def __enter__(self) -> Self:
        self._stack.enter_context(locked([self.log_dir]))
        try:
            refuse_half_done(self.log_dir)
        except BaseException:
            self._stack.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    @property
    def journal(self) -> str | None:
        """For `kseg undo`; None while nothing was changed."""
        return None if self._guard is None else self._guard.journal

    def begin(self, partitions: Collection[str], *, files: Iterable[str] = (), forgets: bool = False) -> None:
        """Announce a change of these partitions, given by the names of their directories. files: other files of the log dir that
        will be replaced or created. forgets: whether partitions start over (see `finish`)."""
        roles = [Role.RECOVERY_POINTS, Role.HIGH_WATERMARKS, Role.CLEAN_SHUTDOWN]
        if forgets:
            roles.extend(_OF_FORMER_LOGS)
        there = [NAME_BY_ROLE[role] for role in roles if os.path.isfile(self._path(role))]
        others = {name: os.path.isfile(os.path.join(self.log_dir, name)) for name in files}
        self._guard = self._stack.enter_context(
            Guard(
                self.log_dir,
                self._command,
                journal_id=self._id,
                replaces=[*there, *(name for name, is_there in others.items() if is_there)],
                creates=[name for name, is_there in others.items() if not is_there],
                in_log_dir=True,
                keeping=self._keeping,
                partitions=partitions,
                new_partitions=[
                    name for name in partitions if not os.path.lexists(os.path.join(self.log_dir, name))
                ],
            )
        )
        path = self._path(Role.CLEAN_SHUTDOWN)
        if os.path.isfile(path):
            self._marker = read_small(path)
            remove_file(path)
            sync_directory(self.log_dir)

    def guard(
        self, directory: str, *, grows: Iterable[str] = (), replaces: Iterable[str] = (), is_new: bool = False
    ) -> Guard:
        """The journal of one of the partitions."""
        guard = self._stack.enter_context(
            Guard(
                directory,
                self._command,
                journal_id=self._id,
                grows=grows,
                replaces=replaces,
                is_new=is_new,
                keeping=self._keeping,
                disk=disk_for(self._follow_links),
            )
        )
        self._partitions.append(guard)
        return guard

    def finish(self, ends: Mapping[PartitionName, int], begun_anew: Collection[PartitionName] = ()) -> None:
        """To be called once all partitions are closed and synced. ends: their log end offsets. begun_anew: partitions whose old log start
        and cleaner offsets no longer apply."""
        if self._guard is None:
            return
        for role in _RAISED if self._marker is None else _RAISED_IF_CLEAN:
            self._align(role, {name: end for name, end in ends.items() if not name.is_metadata_log})
        if begun_anew:
            for role in _OF_FORMER_LOGS:
                self._align(role, dict.fromkeys(begun_anew))
        if self._marker is not None:
            create_file(self._path(Role.CLEAN_SHUTDOWN), self._marker)
        sync_directory(self.log_dir)
        self._guard.done()

    def roll_back(self) -> None:
        """Restore everything that was changed."""
        guard, self._guard = self._guard, None
        for partition in self._partitions:
            partition.release()
        if guard is not None:
            guard.roll_back()

    def _align(self, role: Role, offsets: Mapping[PartitionName, int | None]) -> None:
        """Set offsets in an existing checkpoint file; None removes a partition's entry."""
        path = self._path(role)
        if not offsets or not os.path.isfile(path):
            return
        changes = {(name.topic, name.partition): offset for name, offset in offsets.items()}
        found = read_small(path)
        try:
            data = encode_offset_checkpoint(with_offsets(decode_offset_checkpoint(found), changes))
        except FormatError as error:
            self.findings.append(
                Finding("checkpoint-corrupt", path, f"the checkpoint cannot be read: {error}")
            )
            return
        if data != found:
            replace_file(path, data)

    def _path(self, role: Role) -> str:
        return os.path.join(self.log_dir, NAME_BY_ROLE[role])
