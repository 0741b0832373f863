"""Writes the journal of a change: the first line together with the journal's directories, then line by line, each synced
before the step that it announces; and removes it.
"""

import errno
import os
from contextlib import suppress
from dataclasses import replace

from kseg.change.apply.disk import Disk, closing
from kseg.change.apply.elsewhere import DONE, OPEN
from kseg.change.apply.file_operations import (
    copy_file,
    give_owner,
    make_directories,
    remove_if_empty,
    remove_quietly,
    write_all,
)
from kseg.change.apply.journal import Journal, JournalState, state_of, whole_lines
from kseg.change.apply.journal_lines import LIMIT_BYTES, VERSION, Line, encoded, is_too_large
from kseg.change.apply.journal_location import JournalLocation
from kseg.segment.partition.names import KSEG_DIRECTORY

_OF_THE_JOURNAL = -1  # instead of the number of a step


def begin(location: JournalLocation, header: Line, disk: Disk) -> Journal:
    """Write and sync a journal's first line and its directories (the caller syncs their names before the
    commit: losing them earlier loses nothing). Raises OSError, and then nothing of it remains.

    The first name that appears in the directory is that of a complete first line, which contains the original modification time of the
    directory: after a kill at any moment, `abandon` can restore it. So while `.kseg` does not exist, the journal
    is beside the files of the partition.
    """
    status = disk.status(location.directory)
    data = _first_line(header, location.journal)
    if location.home is not None:
        _begin_elsewhere(location, location.home, data, status, disk)
        return Journal(location, JournalState.ABANDONED, header)
    first = location
    if location.directories and disk.status(location.directories[0]) is None:
        first = replace(location, in_log_dir=True)
    try:
        if first is not location:
            write_at_once(first.journal, data, status, disk)
        for path in location.directories:
            with suppress(FileExistsError):
                disk.make_directory(path)
                if status is not None:
                    give_owner(disk, path, status)
        if first is not location:
            disk.rename(first.journal, location.journal)
        else:
            write_at_once(location.journal, data, status, disk)
    except BaseException:
        with suppress(OSError):
            _withdraw(location, first, status, disk)
        raise
    return Journal(location, JournalState.ABANDONED, header)


def _begin_elsewhere(
    location: JournalLocation, home: str, data: bytes, like: os.stat_result | None, disk: Disk
) -> None:
    try:
        make_directories(home, disk)
        write_at_once(location.journal, data, None, disk)
        disk.sync_directory(home)
        pointer = location.pointers[0]
        disk.close(disk.create(pointer))
        if like is not None:
            give_owner(disk, pointer, like)
    except BaseException:
        with suppress(OSError):
            _withdraw(location, location, like, disk)
        raise


def _withdraw(
    location: JournalLocation, first: JournalLocation, status: os.stat_result | None, disk: Disk
) -> None:
    if location.home is not None:
        remove_quietly(disk, location.pointers[0])
    for each in (location, first):
        remove_quietly(disk, each.journal)
    _remove_directories(location, disk)
    if status is not None:
        disk.change_times(location.directory, status.st_mtime_ns)


def write_at_once(path: str, data: bytes, like: os.stat_result | None, disk: Disk) -> None:
    """Create a file that is complete as soon as it has its name, if the file system supports that."""
    nameless = disk.create_nameless(os.path.dirname(path) or os.curdir)
    if nameless is None or not _written(nameless, data, path, disk):
        _written(disk.create(path), data, None, disk)
    if like is not None:
        give_owner(disk, path, like)


def _written(descriptor: int, data: bytes, path: str | None, disk: Disk) -> bool:
    """Write, sync and close a new file, which gets the name `path` if it has none yet; False if the system does not support that."""
    with closing(disk, descriptor):
        write_all(disk, descriptor, data, 0)
        disk.sync(descriptor)
        return path is None or disk.give_name(descriptor, path)


def _first_line(header: Line, path: str) -> bytes:
    """The line without its reasons if they are too many. Raises OSError (EFBIG)."""
    header = {"type": "journal", "version": VERSION, **header}
    line = encoded(header, b"", is_signed=True)
    if is_too_large(line, 0.5):
        line = encoded({**header, "reasons": []}, b"", is_signed=True)
    if is_too_large(line, 0.5):
        raise OSError(errno.EFBIG, "the journal of so large a change could not be read again", path)
    return line


def sync_names(location: JournalLocation, disk: Disk) -> None:
    """Sync all names around a journal to disk. Raises OSError."""
    for path in (*reversed(location.directories), location.directory):
        disk.sync_directory(path)


def append(journal: Journal, line: Line, disk: Disk) -> Journal:
    """Append a line and sync it; returns the journal with it. Raises OSError, after truncating the line if possible."""
    if line["type"] != "done":
        _point(journal.location, OPEN, disk)
    try:
        before = whole_lines(disk, journal.path)
    except ValueError as error:
        raise OSError(errno.EFBIG, str(error), journal.path) from error
    end, added = len(before), encoded(line, before, is_signed=True)
    if end + len(added) > LIMIT_BYTES:
        raise OSError(errno.EFBIG, "the journal of so large a change could not be read again", journal.path)
    _unshare(journal, disk)
    with closing(disk, disk.open_to_write(journal.path)) as descriptor:
        disk.truncate(descriptor, end)
        try:
            write_all(disk, descriptor, added, end)
            disk.sync(descriptor)
        except OSError:
            disk.truncate(descriptor, end)
            raise
    if line["type"] == "done":
        with suppress(OSError):  # the journal shows it, as long as it is reachable
            _point(journal.location, DONE, disk)
    lines = (*journal.lines, line)
    return replace(journal, lines=lines, state=state_of(lines))


def _unshare(journal: Journal, disk: Disk) -> None:
    """Give a signed journal that has a second name elsewhere (a backup made with `cp -l`) a file of its own, so that the line does not
    appear there too. Raises OSError, also for an unsigned one: somebody may have put it there with a link to it."""
    location = journal.location
    status = disk.status(location.journal)
    if status is None or status.st_nlink == 1:
        return
    # with a home elsewhere, the place for new files may be on another file system
    if location.home is not None or not journal.is_signed:
        raise OSError(errno.EMLINK, "it has a second name elsewhere (a hard link)", location.journal)
    own = location.new(_OF_THE_JOURNAL)
    remove_quietly(disk, own)
    copy_file(disk, location.journal, own)
    disk.rename(own, location.journal)
    disk.sync_directory(os.path.dirname(location.journal))


def _point(location: JournalLocation, how: str, disk: Disk) -> None:
    """Make the pointer to a journal elsewhere show whether its change is done. Raises OSError."""
    if location.home is not None:
        before, now = location.pointers if how == DONE else location.pointers[::-1]
        if disk.status(before) is not None:
            disk.rename(before, now)
            disk.sync_directory(location.directory)


def discard(location: JournalLocation, disk: Disk, mtime_ns: int | None = None) -> None:
    """Remove a journal with its files, the journal last. Raises OSError.

    mtime_ns: the modification time that the directory gets at once, also after an error: without the journal there is no record of it. By
    default it keeps the one that it has."""
    if mtime_ns is None:
        with suppress(OSError):
            status = disk.status(location.directory)
            mtime_ns = None if status is None else status.st_mtime_ns
    pointer = location.pointer(disk)
    try:
        for path in location.files(disk):
            if path != location.journal:
                remove_quietly(disk, path)
        if pointer is not None:
            disk.unlink(pointer)  # a pointer without a journal would look like an unreachable one
            disk.sync_directory(location.directory)
        remove_quietly(disk, location.journal)
        _remove_directories(location, disk)
    finally:
        if mtime_ns is not None:
            with suppress(OSError):
                disk.change_times(location.directory, mtime_ns)
    disk.sync_directory(location.directory)


def _remove_directories(location: JournalLocation, disk: Disk) -> None:
    for path in reversed((*location.directories, *location.directories_elsewhere)):
        remove_if_empty(disk, path)
    # the journal was written next to the files before its directory existed
    if not location.directories:
        remove_if_empty(disk, os.path.join(location.directory, KSEG_DIRECTORY))
