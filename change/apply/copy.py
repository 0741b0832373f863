"""Write a changed copy of a directory instead of changing it: `--output`. The input is only read.

1. Check that the directory is unchanged since it was planned.
2. Write all files to a new directory next to the target: unchanged files share their blocks with the original if the file
   system can (FICLONE), are copied otherwise, or become hard links if requested; changed files are assembled from their
   pieces and read back. Owner, permissions and modification times are kept.
3. Check the inputs once more, sync, record the copy in the journal of the run (`copy_journal`), and rename the directory to its
   final name.

The next run removes what a killed run left next to the target.
"""

import errno
import os
from collections.abc import Collection
from contextlib import suppress

from kseg.change.apply.copy_journal import aside, note_copy, set_aside
from kseg.change.apply.disk import DISK, Disk, closing
from kseg.change.apply.file_operations import (
    COPY_BYTES,
    checksum,
    copy,
    give_likeness,
    give_owner,
    make_directories,
    remove_with_files,
    write_all,
)
from kseg.change.apply.journal_location import JournalLocation
from kseg.change.apply.lock import claimed
from kseg.change.apply.staging import OURS, adopted, check_inputs, write_content
from kseg.change.apply.step_progress import StepProgress, Token
from kseg.change.plan.content import Content, Span, length_of
from kseg.change.plan.steps import Plan, Write
from kseg.segment import unreadable
from kseg.segment.errors import Refused
from kseg.segment.partition.names import parse_file_name

_OWN_FILES = ".own-files"


def write_copy(
    plan: Plan,
    target: str,
    *,
    hard_link: bool = False,
    journal: JournalLocation | None = None,
    disk: Disk = DISK,
) -> None:
    """Write to `target` what the planned directory would become; a plan without steps gives a plain copy.

    hard_link: unchanged files become hard links to the input's files, so that writing to either writes to both; across file systems they
    are copied. Raises Refused if `target` exists and is not empty, the inputs changed, or the file system fails; then nothing remains.
    """
    target = os.path.abspath(target)
    try:
        if disk.status(target) is not None and disk.names(target):
            raise Refused(f"{target} already exists and is not empty")
        make_directories(os.path.dirname(target), disk)
        _clear_leftovers(target, disk)
        _Copying(plan, target, hard_link, journal, disk).make()
    except OSError as error:
        raise Refused(f"{_cannot(error, plan, target)}; no copy was written") from error


def is_copy(plan: Plan, target: str, disk: Disk = DISK) -> bool:
    """Whether `target` already has the names and sizes of the planned directory. Raises Refused."""
    progress = StepProgress(plan.inputs, plan.steps)
    ours = {name for name in progress.inputs if parse_file_name(name).role in OURS}
    planned = {name: _size(progress, token) for name, token in progress.end.items() if name not in ours}
    try:
        if disk.status(target) is None:
            return False
        found = {name: disk.status(os.path.join(target, name)) for name in disk.names(target)}
    except OSError as error:
        raise Refused(f"cannot read {target}: {error.strerror}") from error
    return planned == {name: status.st_size for name, status in found.items() if status is not None}


def _size(progress: StepProgress, token: Token) -> int:
    if isinstance(token, str):
        return progress.end_size(token)
    step = progress.steps[token]
    assert isinstance(step, Write)
    return length_of(step.content)


def write_files(
    plan: Plan,
    target: str,
    *,
    hard_link: bool = False,
    over: Collection[str] = (),
    journal: JournalLocation | None = None,
    disk: Disk = DISK,
) -> None:
    """Write the files of a planned directory into `target`, which may contain the copies of its subdirectories already. over: names that
    are replaced there; files from before the run are kept. Raises Refused if another name is taken, otherwise as `write_copy`."""
    target = os.path.abspath(target)
    folder = os.path.join(target, f"{_OWN_FILES}{aside(journal)}")
    try:
        taken = (set(disk.names(target)) & set(StepProgress(plan.inputs, plan.steps).end)) - set(over)
        if taken:
            raise Refused(f"{os.path.join(target, min(taken))} already exists")
        if disk.status(folder) is not None:  # left by a killed run
            remove_with_files(disk, folder)
        write_copy(plan, folder, hard_link=hard_link, disk=disk)
        names = disk.names(folder)
        if journal is not None:
            note_copy(journal, target, folder, names, disk)
            set_aside(journal, target, names, disk)
        for name in names:
            disk.rename(os.path.join(folder, name), os.path.join(target, name))
        disk.remove_directory(folder)
        disk.sync_directory(target)
    except OSError as error:
        raise Refused(f"{_cannot(error, plan, target)}; the copy lacks files of {plan.directory}") from error


def _cannot(error: OSError, plan: Plan, target: str) -> str:
    """The sentence about what failed: the read of a file of the input, or the write of any other one."""
    where = target if error.filename is None else os.fspath(error.filename)
    directory = os.path.join(os.path.abspath(plan.directory), "")
    verb = "read" if os.path.abspath(where).startswith(directory) else "write"
    return f"cannot {verb} {where}: {error.strerror}"


def _prefix(target: str) -> str:
    return f".{os.path.basename(target)}.kseg-"


def _clear_leftovers(target: str, disk: Disk) -> None:
    parent = os.path.dirname(target)
    for name in disk.names(parent):
        if name.startswith(_prefix(target)):
            with suppress(Refused), claimed(os.path.join(parent, name)):
                remove_with_files(disk, os.path.join(parent, name))


class _Copying:
    def __init__(
        self, plan: Plan, target: str, hard_link: bool, journal: JournalLocation | None, disk: Disk
    ) -> None:
        self._journal = journal
        self._plan = plan
        self._target = target
        self._hard_link = hard_link
        self._disk = disk
        self._folder = os.path.join(
            os.path.dirname(target), f".{os.path.basename(target)}{aside(journal)}{os.urandom(4).hex()}"
        )

    def make(self) -> None:
        disk, plan = self._disk, self._plan
        inputs = check_inputs(plan.directory, plan.inputs, disk)
        progress = StepProgress(inputs, plan.steps)
        status = os.stat(plan.directory)
        disk.make_directory(self._folder)
        try:
            with claimed(self._folder):
                for name, token in sorted(progress.end.items()):
                    self._file(name, token, progress)
                check_inputs(plan.directory, plan.inputs, disk)
                disk.sync_directory(self._folder)
                give_likeness(disk, self._folder, status)
                if self._journal is not None:
                    note_copy(self._journal, self._target, self._folder, None, disk)
                disk.rename(self._folder, self._target)
        except BaseException:
            with suppress(OSError):
                remove_with_files(disk, self._folder)
            raise
        disk.sync_directory(os.path.dirname(self._target))

    def _file(self, name: str, token: Token, progress: StepProgress) -> None:
        path = os.path.join(self._folder, name)
        if isinstance(token, int):
            step = progress.steps[token]
            assert isinstance(step, Write)
            self._write(path, step.content, step.like)
            return
        found, size_bytes = progress.inputs[token], progress.end_size(token)
        if size_bytes < found.size_bytes:
            self._write(path, (Span(token, 0, size_bytes),) if size_bytes else (), token)
        elif not (self._hard_link and self._linked(token, path, size_bytes)):
            self._copy(token, path, size_bytes)

    def _linked(self, source: str, path: str, size_bytes: int) -> bool:
        origin = os.path.join(self._plan.directory, source)
        status = self._disk.status(origin)
        if status is not None and unreadable.areas(unreadable.identity_of(status)):
            return False  # a second name would refer to the same bad sectors
        try:
            self._disk.link(origin, path)
        except OSError as error:
            if error.errno in (errno.EXDEV, errno.EPERM, errno.EMLINK, errno.EOPNOTSUPP, errno.ENOSYS):
                return False
            raise
        return True

    def _copy(self, source: str, path: str, size_bytes: int) -> None:
        disk = self._disk
        with (
            closing(disk, disk.open_to_read(os.path.join(self._plan.directory, source))) as origin,
            closing(disk, disk.create(path)) as target,
        ):
            # a clone would share the bad sectors
            is_whole = not unreadable.is_known(origin, 0, size_bytes)
            if not (is_whole and disk.clone(origin, target)):
                crc = self._copied(origin, target, size_bytes)
                disk.start_writeback(target)
                self._check(path, target, size_bytes, crc)
            self._finish(path, target, source)

    def _copied(self, origin: int, target: int, size_bytes: int) -> int:
        """Copy a file, or its readable part; returns the CRC-32C of the expected content."""
        try:
            copy(self._disk, origin, 0, size_bytes, target, 0)
            return checksum(self._disk, origin, 0, size_bytes)
        except OSError as error:
            if not unreadable.is_of_a_place(error):
                raise
            return self._rescued(origin, target, size_bytes)

    def _rescued(self, origin: int, target: int, size_bytes: int) -> int:
        """Copy the readable part of a file, with zeros for the rest; returns the CRC-32C of what was written."""
        from kseg.segment.crc import crc32c

        self._disk.truncate(target, 0)
        status, crc = os.fstat(origin), 0
        for at in range(0, size_bytes, COPY_BYTES):
            wanted = min(COPY_BYTES, size_bytes - at)
            data = unreadable.read_around(origin, status, at, wanted)
            if len(data) < wanted:
                raise OSError(errno.EIO, "the file was truncated in the meantime")
            write_all(self._disk, target, data, at)
            crc = crc32c(data, crc)
        return crc

    def _write(self, path: str, content: Content, like: str | None) -> None:
        disk = self._disk
        made = adopted(disk, content, path)
        with closing(disk, disk.create(path) if made is None else disk.open_to_write(path)) as target:
            crc = made.crc if made else write_content(disk, self._plan.directory, content, target)
            self._check(path, target, length_of(content), crc)
            self._finish(path, target, like)

    def _check(self, path: str, descriptor: int, size_bytes: int, crc: int) -> None:
        status = self._disk.status(path)
        is_right_size = status is not None and status.st_size == size_bytes
        if not is_right_size or checksum(self._disk, descriptor, 0, size_bytes) != crc:
            raise OSError(errno.EIO, "the written bytes read back differently", path)

    def _finish(self, path: str, descriptor: int, like: str | None) -> None:
        """Copy the attributes of the file that it replaces, or those that a new file in the input would have."""
        disk, directory = self._disk, self._plan.directory
        status = disk.status(directory if like is None else os.path.join(directory, like))
        if status is not None:
            (give_owner if like is None else give_likeness)(disk, path, status)
        disk.sync(descriptor)
