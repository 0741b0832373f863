"""The first half of a change: write everything that the change needs, without changing existing files.

1. Every file that the plan writes is written completely under a number, with the attributes of the file that it replaces, and
   read back: length and CRC-32C must be those of the pieces.
2. Every file that will be removed, renamed or truncated gets a hard link in the quarantine (no bytes are copied). Tails that
   will be truncated are copied. With a quarantine elsewhere, everything that will be removed is copied there and compared.
3. All of that is synced.

A file that has hard links outside the directory (a backup made with `cp -l`, a copy made by kseg) is never truncated in
place: its beginning is rewritten, so that the other name keeps its bytes.
"""

import errno
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import field
from typing import Self

from kseg.change.apply.disk import Disk, closing
from kseg.change.apply.file_flags import flag_of
from kseg.change.apply.file_operations import (
    checksum,
    copy,
    give_likeness,
    give_owner,
    link_or_copy,
    make_directories,
    write_all,
)
from kseg.change.apply.journal_location import JournalLocation
from kseg.change.apply.journal_writer import sync_names
from kseg.change.apply.step_progress import ObservedFile, StepProgress, written
from kseg.change.plan.content import Content, Made, Span, length_of
from kseg.change.plan.steps import FileIdentity, Rename, Step, Truncate, Write
from kseg.segment import unreadable
from kseg.segment.errors import Refused
from kseg.segment.partition.names import Role, parse_file_name
from kseg.segment.values import dataclass

OURS = (Role.LOCK, Role.KSEG_JOURNAL)
_SYNCED_TOGETHER = 32  # per writer, since the open files of a process are limited


@dataclass(slots=True)
class Staged:
    """The staged files. files, crcs: of the new files by step number. kept: inode in the local quarantine by name as
    found. copied: CRC-32C of the copies in a quarantine elsewhere, by name as found. tails: CRC-32C of the truncated
    tails, by step number. not_owned: names whose owner could not be set."""

    files: dict[int, ObservedFile] = field(default_factory=dict)
    crcs: dict[int, int] = field(default_factory=dict)
    kept: dict[str, int] = field(default_factory=dict)
    copied: dict[str, int] = field(default_factory=dict)
    tails: dict[int, int] = field(default_factory=dict)
    not_owned: list[str] = field(default_factory=list)

    def as_line(self) -> dict[str, object]:
        rows = [
            [number, seen.inode, seen.size_bytes, seen.mtime_ns, self.crcs[number]]
            for number, seen in self.files.items()
        ]
        return {
            "type": "staged",
            "files": rows,
            "kept": list(self.kept.items()),
            "copied": list(self.copied.items()),
            "tails": list(self.tails.items()),
        }

    @classmethod
    def of_line(cls, line: Mapping[str, object]) -> "Staged":
        """Raises ValueError, TypeError, KeyError or IndexError for a line that `as_line` does not write."""
        staged = cls()
        for number, inode, size_bytes, mtime_ns, crc in _rows(line["files"]):
            staged.files[int(number)] = ObservedFile(int(inode), int(size_bytes), int(mtime_ns))
            staged.crcs[int(number)] = int(crc)
        staged.kept = {str(name): int(inode) for name, inode in _rows(line["kept"])}
        staged.copied = {str(name): int(crc) for name, crc in _rows(line["copied"])}
        staged.tails = {int(number): int(crc) for number, crc in _rows(line["tails"])}
        return staged


def _rows(value: object) -> Sequence[Sequence[int]]:
    if not isinstance(value, list):
        raise TypeError("not a list")
    return value


def look(directory: str, disk: Disk) -> dict[str, ObservedFile]:
    """The regular files of a directory without kseg's own and lock files. Raises OSError."""
    found = {}
    for name in disk.names(directory):
        if parse_file_name(name).role in OURS:
            continue
        status = disk.file_status(os.path.join(directory, name))
        if status is not None:
            found[name] = ObservedFile(status.st_ino, status.st_size, status.st_mtime_ns)
    return found


def check_inputs(directory: str, inputs: Sequence[FileIdentity], disk: Disk) -> tuple[FileIdentity, ...]:
    """The inputs without kseg's own files and locks. Raises Refused if the directory has changed."""
    counting = tuple(file for file in inputs if parse_file_name(file.name).role not in OURS)
    expected = {file.name: ObservedFile(file.inode, file.size_bytes, file.mtime_ns) for file in counting}
    try:
        actual = look(directory, disk)
    except OSError as error:
        raise Refused(f"cannot read {directory}: {error.strerror}") from error
    if actual != expected:
        names = sorted(name for name in {*actual, *expected} if actual.get(name) != expected.get(name))
        more = f" and {len(names) - 1} more" if len(names) > 1 else ""
        raise Refused(f"{directory} changed since planning ({names[0]}{more}); nothing was done")
    return counting


def unshared(directory: str, steps: Sequence[Step], disk: Disk) -> tuple[Step, ...]:
    """The steps, with a `Write` instead of every `Truncate` of a file that has a hard link outside this directory, or whose end
    cannot be read."""
    found: dict[str, str] = {}  # the name now -> the name as found
    safe: list[Step] = []
    for step in steps:
        if isinstance(step, Rename):
            found[step.new_name] = found.pop(step.name, step.name)
        elif isinstance(step, Truncate):
            source = found.get(step.name, step.name)
            status = disk.status(os.path.join(directory, source))
            if status is not None and (status.st_nlink > 1 or _cannot_be_kept(status, step.size_bytes)):
                content = (Span(source, 0, step.size_bytes),) if step.size_bytes else ()
                step = Write(step.name, content, step.why, source)
        safe.append(step)
    return tuple(safe)


def _cannot_be_kept(status: os.stat_result, position: int) -> bool:
    """Whether bytes after that position are unreadable, and so cannot be copied to the quarantine; a hard link keeps the whole file."""
    return bool(unreadable.areas(unreadable.identity_of(status), position))


def refuse_flags(directory: str, names: Iterable[str], disk: Disk) -> None:
    """Raises Refused if the directory, or one of the files in it that change, is immutable or append-only: otherwise the change would stop
    half way, even for root."""
    for path in (directory, *(os.path.join(directory, name) for name in names)):
        flag = flag_of(path, disk.open_for_attributes)
        if flag is not None:
            lift = f"`{flag.lift_command(path)}` lifts that"
            raise Refused(f"{path} is {flag} ({lift}, `lsattr` shows more); nothing was changed")


class Staging:
    """Creates the new files and the quarantine of one directory; raises OSError, and leaves the cleanup to the caller."""

    def __init__(
        self, location: JournalLocation, progress: StepProgress, elsewhere: str | None, disk: Disk
    ) -> None:
        self._location = location
        self._course = progress
        self._elsewhere = elsewhere
        self._disk = disk
        self._open: list[int] = []
        status = disk.status(location.directory)
        if status is None:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), location.directory)
        self._folder = status

    def make(self) -> Staged:
        disk, staged = self._disk, Staged()
        self._check_names()
        if self._elsewhere is not None:
            make_directories(self._elsewhere, disk)
        try:
            for number, step in written(self._course):
                self._write(number, step, staged)
            for name in self._course.touched:
                self._keep(name, staged)
            for tail in self._course.tails:
                if tail.length:
                    path = tail_path(self._location, self._elsewhere, tail.name, tail.position)
                    staged.tails[tail.number] = self._copied(tail.name, tail.position, tail.length, path)
            self._sync_files()
        finally:
            for descriptor in self._open:
                disk.close(descriptor)
        sync_names(self._location, disk)
        if self._elsewhere is not None:
            disk.sync_directory(self._elsewhere)
        return staged

    def _made(self, descriptor: int) -> int:
        """Record a new file for syncing: many at a time, so that the disk can write them together."""
        if len(self._open) >= _SYNCED_TOGETHER:
            self._sync_files()
        self._open.append(descriptor)
        return descriptor

    def _sync_files(self) -> None:
        for descriptor in self._open:
            self._disk.sync(descriptor)
        while self._open:
            self._disk.close(self._open.pop())

    def _check_names(self) -> None:
        """Raises Refused if a name that the plan needs is taken by something that is neither an original file nor kseg's."""
        for change in self._course.changes:
            for name, _ in change:
                path = self._location.target(name)
                if name not in self._course.inputs and self._disk.status(path) is not None:
                    raise Refused(f"{path} is in the way: it is not a regular file; nothing was done")

    def _write(self, number: int, step: Write, staged: Staged) -> None:
        disk, path = self._disk, self._location.new(number)
        made = adopted(disk, step.content, path)
        if made is None:
            descriptor = self._made(disk.create(path))
            crc = write_content(disk, self._location.directory, step.content, descriptor)
        else:
            descriptor, crc = self._made(disk.open_to_write(path)), made.crc
        size_bytes = length_of(step.content)
        disk.start_writeback(descriptor)
        like = None if step.like is None else disk.status(self._location.target(step.like))
        is_owned = give_owner(disk, path, self._folder) if like is None else give_likeness(disk, path, like)
        if not is_owned:
            staged.not_owned.append(step.name)
        status = disk.status(path)
        if status is None or status.st_size != size_bytes or checksum(disk, descriptor, 0, size_bytes) != crc:
            raise OSError(errno.EIO, "the written bytes read back differently", path)
        staged.files[number] = ObservedFile(status.st_ino, status.st_size, status.st_mtime_ns)
        staged.crcs[number] = crc

    def _keep(self, name: str, staged: Staged) -> None:
        found = self._course.inputs[name]
        if self._elsewhere is not None and name in self._course.lost:
            path = os.path.join(self._elsewhere, name)
            staged.copied[name] = self._copied(name, 0, found.size_bytes, path)
            return
        staged.kept[name] = link_or_copy(self._disk, self._location.target(name), self._location.old(name))

    def _copied(self, name: str, position: int, count: int, path: str) -> int:
        """Copy a range of a file as found to a new file with its attributes; returns its CRC-32C, after comparing it with the source."""
        disk, source_path = self._disk, self._location.target(name)
        like = disk.status(source_path)
        if like is None:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), source_path)
        with closing(disk, disk.open_to_read(source_path)) as source:
            target = self._made(disk.create(path))
            copy(disk, source, position, count, target, 0)
            disk.start_writeback(target)
            crc = checksum(disk, source, position, count)
        give_likeness(disk, path, like)
        if checksum(disk, target, 0, count) != crc:
            raise OSError(errno.EIO, "the written bytes read back differently", path)
        return crc


def tail_path(location: JournalLocation, elsewhere: str | None, name: str, position: int) -> str:
    """The path of the copy of a tail that was truncated at `position`."""
    label = f"{name}.from-{position}"
    return location.old(label) if elsewhere is None else os.path.join(elsewhere, label)


def adopted(disk: Disk, content: Content, path: str) -> Made | None:
    """Give a scratch file its name if it is the whole content and the file system supports that; returns the piece. Raises
    OSError."""
    if len(content) == 1 and isinstance(content[0], Made) and disk.give_name(content[0].descriptor, path):
        return content[0]
    return None


def write_content(disk: Disk, directory: str, content: Content, descriptor: int) -> int:
    """Write the pieces of a file; spans are of files in `directory`. Returns the CRC-32C of the intended content. Raises OSError."""
    from kseg.segment.crc import crc32c

    crc = position = 0
    with _Sources(directory, disk) as sources:
        for piece in content:
            if isinstance(piece, Span):
                source = sources.descriptor(piece.name)
                copy(disk, source, piece.position, piece.length, descriptor, position)
                crc = checksum(disk, source, piece.position, piece.length, crc)
            elif isinstance(piece, Made):
                copy(disk, piece.descriptor, 0, piece.length, descriptor, position)
                crc = checksum(disk, piece.descriptor, 0, piece.length, crc)
            else:
                write_all(disk, descriptor, piece.data, position)
                crc = crc32c(piece.data, crc)
            position += piece.length
    return crc


class _Sources:
    """The files to which the spans of a content refer, one open at a time (spans of one file are usually adjacent)."""

    def __init__(self, directory: str, disk: Disk) -> None:
        self._directory = directory
        self._disk = disk
        self._name = ""
        self._descriptor = -1

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._descriptor >= 0:
            self._disk.close(self._descriptor)

    def descriptor(self, name: str) -> int:
        if name != self._name:
            if self._descriptor >= 0:
                self._disk.close(self._descriptor)
                self._descriptor = -1
            self._descriptor = self._disk.open_to_read(os.path.join(self._directory, name))
            self._name = name
        return self._descriptor
