"""Every file-system call of the executor, as the methods of one small object.

The executor calls a `Disk` for everything, so that a test can replace it: with one that dies at the n-th
operation, or reports that no space is left. Paths are resolved by module anchors; a
method that changes a name or a file makes one system call for it, and raises OSError as the system does. A query about
a missing file returns None. Only regular files are opened. Operations of several calls: `file_operations`.
"""

import errno
import fcntl
import os
import stat
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from typing import TYPE_CHECKING

from kseg.change.apply.anchors import anchored, open_file, parent_of
from kseg.segment import unreadable
from kseg.segment.holes import data_extents

if TYPE_CHECKING:
    from typing_extensions import Buffer

_FICLONE = 0x40049409  # linux/fs.h: the whole file shares the blocks of another
_CANNOT = frozenset(
    (errno.EXDEV, errno.ENOSYS, errno.EINVAL, errno.EOPNOTSUPP, errno.EPERM, errno.ENOTTY, errno.EBADF)
)
_NO_NAMELESS = (errno.EOPNOTSUPP, errno.EISDIR, errno.EINVAL, errno.ENOENT)
NO_LINKS = (errno.EPERM, errno.EMLINK, errno.EXDEV, errno.EOPNOTSUPP, errno.ENOSYS)


class Disk:
    """The real file system. follow_links: whether a directory that is to be changed may be a link (--follow-links)."""

    follow_links = False

    # --- queries

    def status(self, path: str) -> os.stat_result | None:
        """lstat: a link is not followed; None if the name does not exist."""
        try:
            with parent_of(path) as (folder, name):
                return os.stat(name, dir_fd=folder, follow_symlinks=False)
        except (FileNotFoundError, NotADirectoryError):
            return None

    def file_status(self, path: str) -> os.stat_result | None:
        """The status of a regular file; None for anything else."""
        status = self.status(path)
        return status if status is not None and stat.S_ISREG(status.st_mode) else None

    def names(self, path: str) -> list[str]:
        """The names in a directory, sorted; empty when it does not exist."""
        try:
            with _directory(path) as descriptor:
                return sorted(os.listdir(descriptor))
        except FileNotFoundError:
            return []
        except OSError as error:
            error.filename = path  # not the descriptor
            raise

    def open_to_read(self, path: str) -> int:
        return open_file(path, os.O_RDONLY)

    def read(self, descriptor: int, count: int, position: int) -> bytes:
        """At most `count` bytes from `position`; fewer only at the end. Raises OSError if one of them cannot be read."""
        if not unreadable.is_known(descriptor, position, count):
            try:
                return os.pread(descriptor, count, position)
            except OSError as error:
                if not unreadable.is_of_a_place(error):
                    raise
        # the system reads blocks: the bad sector may be outside the wanted range
        status = os.fstat(descriptor)
        data = unreadable.read_around(descriptor, status, position, count)
        bad = unreadable.areas(unreadable.identity_of(status), position, position + count)
        if bad:
            raise OSError(bad[0].error or errno.EIO, bad[0].words)
        return data

    def data_extents(self, descriptor: int, position: int, count: int) -> Iterator[tuple[int, int]]:
        """(position, length) of the data in a range of an open file; between them are holes, which read as
        zeros. Raises OSError (EIO) if the file ends before the range does."""
        if os.fstat(descriptor).st_size < position + count:
            raise OSError(errno.EIO, "the file was truncated in the meantime")
        yield from data_extents(descriptor, position, count)

    # --- files

    def create(self, path: str) -> int:
        """A descriptor of a new file, with the permissions that new files get. FileExistsError when the name is taken."""
        flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        with parent_of(path) as (folder, name):
            return os.open(name, flags, 0o666, dir_fd=folder)

    def create_nameless(self, directory: str) -> int | None:
        """A descriptor of a new unnamed file on the file system of `directory`; None if that is not supported."""
        try:
            with parent_of(directory) as (folder, name):
                return os.open(name, os.O_TMPFILE | os.O_RDWR | os.O_CLOEXEC, 0o666, dir_fd=folder)
        except OSError as error:
            if error.errno in _NO_NAMELESS:
                return None
            raise

    def open_to_write(self, path: str) -> int:
        return open_file(path, os.O_RDWR)

    def write(self, descriptor: int, data: "Buffer", position: int) -> int:
        """Returns the number of bytes written, as pwrite does."""
        return unreadable.write(descriptor, data, position)

    def clone(self, source: int, target: int) -> bool:
        """Make the empty file `target` share all blocks of `source` (FICLONE); False if the file system does not support it."""
        try:
            fcntl.ioctl(target, _FICLONE, source)
        except OSError as error:
            if error.errno in _CANNOT:
                return False
            raise
        return True

    def copy_range(self, source: int, position: int, count: int, target: int, target_position: int) -> int:
        """copy_file_range; returns the bytes copied, 0 if the system does not support it or `source` ends."""
        if unreadable.is_known(source, position, count):
            return 0
        try:
            return os.copy_file_range(source, target, count, position, target_position)
        except OSError as error:
            if error.errno in _CANNOT or unreadable.is_of_a_place(error):
                return 0
            raise

    def truncate(self, descriptor: int, size_bytes: int) -> None:
        os.ftruncate(descriptor, size_bytes)

    def sync(self, descriptor: int) -> None:
        """Sync a file to disk."""
        os.fsync(descriptor)

    def start_writeback(self, descriptor: int) -> None:
        """Start writing the file to disk, so that a later `sync` has little to do."""
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)

    def close(self, descriptor: int) -> None:
        os.close(descriptor)

    # --- attributes

    def change_owner(self, path: str, owner: int, group: int) -> None:
        with parent_of(path) as (folder, name):
            os.chown(name, owner, group, dir_fd=folder, follow_symlinks=False)

    def open_for_attributes(self, path: str) -> int:
        """A descriptor of a file or directory."""
        try:
            return open_file(path, os.O_RDONLY)
        except OSError as error:
            if error.errno != errno.EINVAL:
                raise
        with _directory(path) as descriptor:
            return os.dup(descriptor)

    def change_mode(self, path: str, mode: int) -> None:
        with closing(self, self.open_for_attributes(path)) as descriptor:
            os.fchmod(descriptor, mode)

    def change_times(self, path: str, mtime_ns: int) -> None:
        with parent_of(path) as (folder, name):
            os.utime(name, ns=(mtime_ns, mtime_ns), dir_fd=folder, follow_symlinks=False)

    # --- names

    def link(self, path: str, new_path: str) -> None:
        with parent_of(path) as (folder, name), parent_of(new_path) as (new_folder, new_name):
            os.link(name, new_name, src_dir_fd=folder, dst_dir_fd=new_folder, follow_symlinks=False)

    def give_name(self, descriptor: int, path: str) -> bool:
        """Link an open unnamed file as `path`; False if the system does not support it."""
        try:
            folder = os.open("/proc/self/fd", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        except OSError:
            return False
        try:
            with parent_of(path) as (goal, name):
                os.link(str(descriptor), name, src_dir_fd=folder, dst_dir_fd=goal, follow_symlinks=True)
        except OSError as error:
            if error.errno in (*NO_LINKS, errno.ENOENT):
                return False
            # the original error names a descriptor instead of the path
            raise OSError(error.errno, error.strerror, path) from None
        finally:
            os.close(folder)
        return True

    def rename(self, path: str, new_path: str) -> None:
        """Rename atomically, replacing a file of the new name."""
        with (
            parent_of(path, as_entry=True) as (folder, name),
            parent_of(new_path, as_entry=True) as (new_folder, new_name),
        ):
            os.rename(name, new_name, src_dir_fd=folder, dst_dir_fd=new_folder)

    def unlink(self, path: str) -> None:
        with parent_of(path) as (folder, name):
            os.unlink(name, dir_fd=folder)

    def make_directory(self, path: str) -> None:
        with parent_of(path) as (folder, name):
            os.mkdir(name, dir_fd=folder)

    def remove_directory(self, path: str) -> None:
        with parent_of(path, as_entry=True) as (folder, name):
            os.rmdir(name, dir_fd=folder)

    def sync_directory(self, path: str) -> None:
        """Sync the names in a directory to disk."""
        with _directory(path) as descriptor:
            os.fsync(descriptor)


DISK = Disk()


class _FollowingDisk(Disk):
    follow_links = True


_FOLLOWING = _FollowingDisk()


def disk_for(follow_links: bool) -> Disk:
    """The real file system, for a command with or without --follow-links."""
    return _FOLLOWING if follow_links else DISK


@contextmanager
def closing(disk: Disk, descriptor: int) -> Iterator[int]:
    """Close a descriptor that was opened with this disk at the end of the body."""
    try:
        yield descriptor
    finally:
        disk.close(descriptor)


@contextmanager
def _directory(path: str) -> Iterator[int]:
    """A descriptor of a directory, which below an anchored one is not a link."""
    with parent_of(path) as (folder, name):
        no_link = 0 if folder is None else os.O_NOFOLLOW
        descriptor = os.open(name, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC | no_link, dir_fd=folder)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


@contextmanager
def kept_open(paths: Sequence[str]) -> Iterator[None]:
    """Keep directories open, outer ones first, so that paths below them are resolved from there (`anchors`). Directories that
    cannot be opened are resolved by path as usual."""
    with ExitStack() as open_directories:
        for path in paths:
            with suppress(OSError):
                descriptor = open_directories.enter_context(_directory(path))
                open_directories.enter_context(anchored(path, descriptor))
        yield
