"""File operations that consist of several calls of a `Disk`.

Bytes are copied from file to file by the best available method: shared blocks (FICLONE), a copy inside the kernel
(copy_file_range, which also shares blocks where it can), read and write. Holes stay holes and are not read.
"""

import errno
import os
import stat
from contextlib import suppress
from typing import TYPE_CHECKING

from kseg.change.apply.disk import NO_LINKS, Disk, closing

if TYPE_CHECKING:
    from typing_extensions import Buffer

COPY_BYTES = 8 * 1024 * 1024
_READ_BYTES = 256 * 1024  # stays in the processor's cache until it is checksummed


def write_all(disk: Disk, descriptor: int, data: "Buffer", position: int) -> None:
    """Write all of the bytes from `position` on."""
    rest = memoryview(data).cast("B")
    while len(rest):
        written = disk.write(descriptor, rest, position)
        rest, position = rest[written:], position + written


def copy(disk: Disk, source: int, position: int, count: int, target: int, target_position: int) -> None:
    """Copy a range of one open file into a part of another that is still empty. Raises OSError (EIO) when `source` ends
    within the range."""
    end = target_position + count
    for start, length in disk.data_extents(source, position, count):
        _copy_data(disk, source, start, length, target, target_position + start - position)
    if os.fstat(target).st_size < end:  # it ends in a hole
        disk.truncate(target, end)


def _copy_data(disk: Disk, source: int, position: int, count: int, target: int, target_position: int) -> None:
    while count:
        done = disk.copy_range(source, position, min(count, COPY_BYTES), target, target_position)
        if not done:
            data = disk.read(source, min(count, COPY_BYTES), position)
            if not data:
                raise OSError(errno.EIO, "the file was truncated in the meantime")
            write_all(disk, target, data, target_position)
            done = len(data)
        count, position, target_position = count - done, position + done, target_position + done


def checksum(disk: Disk, descriptor: int, position: int, count: int, crc: int = 0) -> int:
    """CRC-32C of a range of an open file, continuing `crc`. Raises OSError (EIO) when the file ends within the range."""
    from kseg.segment.crc import crc32c_of_zeros

    for start, length in disk.data_extents(descriptor, position, count):
        crc = crc32c_of_zeros(start - position, crc)
        crc = _checksum_of_data(disk, descriptor, start, length, crc)
        position, count = start + length, position + count - start - length
    return crc32c_of_zeros(count, crc)


def _checksum_of_data(disk: Disk, descriptor: int, position: int, count: int, crc: int) -> int:
    from kseg.segment.crc import crc32c

    while count:
        data = disk.read(descriptor, min(count, _READ_BYTES), position)
        if not data:
            raise OSError(errno.EIO, "the file was truncated in the meantime")
        crc = crc32c(data, crc)
        count, position = count - len(data), position + len(data)
    return crc


def give_owner(disk: Disk, path: str, like: os.stat_result) -> bool:
    """Give a file or directory the owner and group of another; False if that is not permitted (only root may)."""
    own = disk.status(path)
    if own is not None and (own.st_uid, own.st_gid) == (like.st_uid, like.st_gid):
        return True
    try:
        disk.change_owner(path, like.st_uid, like.st_gid)
    except PermissionError:
        return False
    return True


def give_likeness(disk: Disk, path: str, like: os.stat_result) -> bool:
    """Give a file the owner, permissions and modification time of another; False if changing the owner is not permitted."""
    is_owned = give_owner(disk, path, like)
    disk.change_mode(path, stat.S_IMODE(like.st_mode))
    disk.change_times(path, like.st_mtime_ns)
    return is_owned


def give_times(disk: Disk, path: str, mtime_ns: int) -> None:
    """Set the modification time of a file, and sync it: syncing the directory does not on every file system."""
    disk.change_times(path, mtime_ns)
    with closing(disk, disk.open_to_read(path)) as descriptor:
        disk.sync(descriptor)


def copy_file(disk: Disk, source_path: str, path: str) -> int:
    """Copy a file to `path` with its attributes, sync it, and compare; returns the CRC-32C. Raises OSError."""
    like = disk.status(source_path)
    size_bytes = 0 if like is None else like.st_size
    with (
        closing(disk, disk.open_to_read(source_path)) as source,
        closing(disk, disk.create(path)) as target,
    ):
        copy(disk, source, 0, size_bytes, target, 0)
        if like is not None:
            give_likeness(disk, path, like)
        crc = checksum(disk, source, 0, size_bytes)
        if checksum(disk, target, 0, size_bytes) != crc:
            raise OSError(errno.EIO, "the written bytes read back differently", path)
        disk.sync(target)
    return crc


def has_checksum(path: str, size_bytes: int, crc: int, disk: Disk) -> bool:
    """Whether the first bytes of a file have this CRC-32C."""
    with closing(disk, disk.open_to_read(path)) as descriptor:
        return os.fstat(descriptor).st_size >= size_bytes and checksum(disk, descriptor, 0, size_bytes) == crc


def is_same_file(one: os.stat_result, other: os.stat_result) -> bool:
    """Whether two statuses are of one file.

    In overlayfs with layers on several file systems, a file of the lower layer that is open when it gets a second name shows the numbers of
    the lower layer under the first one, and of the upper layer under the second. Then the device numbers differ, while link count, size and
    times are equal."""
    if os.path.samestat(one, other):
        return True
    seen, seen_too = ((s.st_nlink, s.st_size, s.st_mtime_ns, s.st_ctime_ns) for s in (one, other))
    return one.st_dev != other.st_dev and one.st_nlink > 1 and seen == seen_too


def link_or_copy(disk: Disk, source_path: str, path: str) -> int:
    """Hard-link a file, or copy it where the file system has no links; returns the inode of `path`."""
    try:
        disk.link(source_path, path)
    except OSError as error:
        if error.errno not in NO_LINKS:
            raise
        copy_file(disk, source_path, path)
    status = disk.status(path)
    if status is None:
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
    return status.st_ino


def make_directories(path: str, disk: Disk) -> None:
    """Create a directory and its missing parents, and sync them. Raises OSError."""
    if disk.status(path) is not None:
        return
    parent = os.path.dirname(path)
    make_directories(parent, disk)
    try:
        disk.make_directory(path)
    except FileExistsError:
        return
    disk.sync_directory(parent)


def remove_if_empty(disk: Disk, path: str) -> None:
    """Remove a directory unless it is missing, not empty, or something else. Raises other OSErrors."""
    try:
        disk.remove_directory(path)
    except OSError as error:
        if error.errno not in (errno.ENOENT, errno.ENOTEMPTY, errno.EEXIST, errno.ENOTDIR):
            raise


def remove_quietly(disk: Disk, path: str) -> None:
    """Unlink a file if it exists."""
    with suppress(FileNotFoundError):
        disk.unlink(path)


def remove_with_files(disk: Disk, directory: str) -> None:
    """Remove a directory of files only; a missing one is not an error."""
    for name in disk.names(directory):
        remove_quietly(disk, os.path.join(directory, name))
    with suppress(FileNotFoundError):
        disk.remove_directory(directory)
