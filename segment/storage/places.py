"""The functions of `os` and `os.path` that readers need, under the same names, for paths on disk or in an origin.

If nothing is attached, and for every path on disk, each calls the function of `os`.
"""

import os
import posixpath
import stat as modes
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Protocol

from kseg.segment.errors import cannot_read
from kseg.segment.storage.attached import TIERED, attach, is_anything_attached, is_url, item_at, located
from kseg.segment.storage.origin import ByteOrigin, Item, ItemKind

_BLOCK_BYTES = 4096
_MODES = {
    ItemKind.FILE: modes.S_IFREG | 0o444,
    ItemKind.DIRECTORY: modes.S_IFDIR | 0o555,
    ItemKind.OTHER: modes.S_IFLNK | 0o444,
}


class DirEntry(Protocol):
    """The part of os.DirEntry that kseg uses."""

    @property
    def name(self) -> str: ...

    @property
    def path(self) -> str: ...

    def is_dir(self, *, follow_symlinks: bool = True) -> bool: ...

    def is_file(self, *, follow_symlinks: bool = True) -> bool: ...

    def is_symlink(self) -> bool: ...

    def stat(self, *, follow_symlinks: bool = True) -> os.stat_result: ...


def given(path: str) -> str:
    """Prepare a path given by the user for these functions: attach the origin to which it leads.

    Raises UnreadableInput if an object store cannot be reached or an archive cannot be opened, UsageError for a URL of an unknown scheme.
    """
    try:
        attached = attach(path)
        if is_elsewhere(attached):
            stat(attached)
    except (FileNotFoundError, NotADirectoryError):
        return path  # later calls report that nothing is there
    except OSError as error:
        raise cannot_read(path, error) from error
    return attached


def is_elsewhere(path: str) -> bool:
    """Whether a path leads into an origin."""
    return is_anything_attached() and located(path) is not None


def stat(path: str) -> os.stat_result:
    """os.stat"""
    place = located(path) if is_anything_attached() else None
    return os.stat(path) if place is None else _status(path, item_at(*place))


def lstat(path: str) -> os.stat_result:
    """os.lstat"""
    return stat(path) if is_elsewhere(path) else os.lstat(path)


def listdir(path: str) -> list[str]:
    """os.listdir"""
    place = located(path) if is_anything_attached() else None
    return os.listdir(path) if place is None else list(place[0].listing(place[1]))


def scandir(path: str) -> AbstractContextManager[Iterator[DirEntry]]:
    """os.scandir"""
    place = located(path) if is_anything_attached() else None
    return os.scandir(path) if place is None else _scanned(path, *place)


def isdir(path: str) -> bool:
    """os.path.isdir"""
    if not is_elsewhere(path):
        return os.path.isdir(path)
    return _kind(path) is ItemKind.DIRECTORY


def isfile(path: str) -> bool:
    """os.path.isfile"""
    if not is_elsewhere(path):
        return os.path.isfile(path)
    return _kind(path) is ItemKind.FILE


def exists(path: str) -> bool:
    """os.path.exists"""
    return _kind(path) is not None if is_elsewhere(path) else os.path.exists(path)


def lexists(path: str) -> bool:
    """os.path.lexists"""
    return _kind(path) is not None if is_elsewhere(path) else os.path.lexists(path)


def islink(path: str) -> bool:
    """os.path.islink"""
    return _kind(path) is ItemKind.OTHER if is_elsewhere(path) else os.path.islink(path)


def getsize(path: str) -> int:
    """os.path.getsize"""
    return stat(path).st_size


def abspath(path: str) -> str:
    """os.path.abspath; a URL is only normalised."""
    if path.startswith(TIERED):
        return TIERED + abspath(path[len(TIERED) :])
    return _normal_url(path) if is_url(path) else os.path.abspath(path)


def realpath(path: str) -> str:
    """os.path.realpath; of a URL as `abspath`."""
    if path.startswith(TIERED):
        return TIERED + realpath(path[len(TIERED) :])
    return _normal_url(path) if is_url(path) else os.path.realpath(path)


def _normal_url(path: str) -> str:
    scheme, _, rest = path.partition("://")
    return f"{scheme}://{posixpath.normpath(rest)}"


def _kind(path: str) -> ItemKind | None:
    """The kind of a path; None if nothing exists, or it cannot be determined."""
    try:
        place = located(path)
        return None if place is None else item_at(*place).kind
    except OSError:
        return None


def _status(path: str, item: Item) -> os.stat_result:
    """An os.stat_result for an item. Device and inode are the same in every process, and differ for different content."""
    from hashlib import blake2b  # few runs need it

    identity = blake2b(
        f"{abspath(path)}\0{item.version}".encode(errors="surrogateescape"), digest_size=7
    ).digest()
    seconds = item.mtime_ns // 1_000_000_000
    inode = int.from_bytes(identity, "big")
    fields = (_MODES[item.kind], inode, 0, 1, 0, 0, item.size_bytes, seconds, seconds, seconds)
    more = {"st_mtime": item.mtime_ns / 1e9, "st_mtime_ns": item.mtime_ns, "st_ctime_ns": item.mtime_ns}
    return os.stat_result(
        fields, {**more, "st_blksize": _BLOCK_BYTES, "st_blocks": -(-item.size_bytes // 512)}
    )


class _Entry:
    """A name in a directory of an origin."""

    __slots__ = ("_item", "name", "path")

    def __init__(self, path: str, name: str, item: Item) -> None:
        self.path, self.name, self._item = path, name, item

    def is_dir(self, *, follow_symlinks: bool = True) -> bool:
        return self._item.kind is ItemKind.DIRECTORY

    def is_file(self, *, follow_symlinks: bool = True) -> bool:
        return self._item.kind is ItemKind.FILE

    def is_symlink(self) -> bool:
        return self._item.kind is ItemKind.OTHER

    def stat(self, *, follow_symlinks: bool = True) -> os.stat_result:
        return _status(self.path, self._item)


@contextmanager
def _scanned(path: str, origin: ByteOrigin, inside: str) -> Iterator[Iterator[DirEntry]]:
    items = origin.listing(inside)
    yield iter([_Entry(os.path.join(path, name), name, item) for name, item in items.items()])
