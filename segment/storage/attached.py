"""Resolve paths to origins.

`attach` examines a path given by the user:

    s3://bucket/backup/orders-0        a URL with a scheme: a store of fsspec, attached at s3://bucket
    backup.tar.zst                     a file with the name of a tar archive, which is a directory from then on
    backup.tar.zst/orders-0            the same
    s3://bucket/backup.tar             both
    file:///data                       the local path /data
    tiered:s3://bucket/prefix          uploads of the tiered-storage plugin there, or below a local path, as partition directories
    tiered:s3://bucket/prefix/orders-7 one of these

Everything below an attached path is looked up in its origin (`located`). Paths are strings throughout, so that they can be joined, split
and shown like any other; a URL keeps its two slashes. Attached paths are per process: a worker that is not forked attaches the
`attached_paths` of its parent.
"""

import os
import posixpath
import re
import stat
from collections.abc import Iterable

from kseg.segment.errors import UsageError
from kseg.segment.storage.origin import ROOT, ByteOrigin, Item, ItemKind

_URL = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+)://([^/]*)")
_LOCAL_SCHEMES = ("file", "local")
ARCHIVE_SUFFIXES = (".tar", ".tar.gz", ".tgz", ".tar.zst", ".tzst")

TIERED = "tiered:"

_origins: dict[str, ByteOrigin] = {}
_paths: dict[str, None] = {}


def is_url(path: str) -> bool:
    """Whether a path begins with the scheme of a URL."""
    return _URL.match(path) is not None


def is_tiered(path: str) -> bool:
    """Whether a path shows segments that a tiered-storage plugin has uploaded. No broker loads such a directory, so it does not matter that
    the files of a data directory are missing."""
    return path.startswith(TIERED)


def is_elsewhere(path: str) -> bool:
    """Whether a path given by the user leads into an object store or a tar archive, attached or not."""
    found = _URL.match(path)
    if path.startswith(TIERED):
        return True
    if found is not None:
        return found[1].lower() not in _LOCAL_SCHEMES
    return located(path) is not None or _archive_in(path) is not None


def attach(path: str) -> str:
    """Attach the origin of a given path, so that everything below it is readable; other paths are left unchanged.

    Returns the path to continue with. Raises UsageError for a URL of an unknown scheme, and OSError if an origin cannot be opened.
    """
    if path.startswith(TIERED):
        _attach_tiered(path)
        return path
    found = _URL.match(path)
    if found is None:
        _attach_archive(path)
        return path
    if "::" in path:
        raise UsageError(f"chained URLs are not supported: {path}")
    if found[1].lower() in _LOCAL_SCHEMES:
        plain = path[len(found[0]) - len(found[2]) :]
        _attach_archive(plain)
        return plain
    if found[0] not in _origins:
        from kseg.segment.storage.object_store import ObjectStore

        _origins[found[0]] = ObjectStore(found[0])
        _paths[found[0]] = None
    _attach_archive(path)
    return path


def attached_paths() -> tuple[str, ...]:
    """The paths that another process has to `attach` to see the same files."""
    return tuple(_paths)


def attach_all(paths: Iterable[str]) -> None:
    """Attach the `attached_paths` of another process."""
    for path in paths:
        attach(path)


def damaged_archives() -> list[tuple[str, str]]:
    """Archives that could not be read to their end, each with the reason as a sentence."""
    return [(path, damage) for path in _paths if (damage := _origins[path].damage) is not None]


def detach_all() -> None:
    """Forget all origins and their listings."""
    _origins.clear()
    _paths.clear()


def is_anything_attached() -> bool:
    """Whether any path may lead into an origin."""
    return bool(_origins)


def located(path: str) -> tuple[ByteOrigin, str] | None:
    """The origin of a path and the path inside it; None for a path on disk. Raises FileNotFoundError for a path that leads
    out of its origin."""
    longest = ""
    for prefix in _origins:
        if len(prefix) > len(longest) and (path == prefix or path.startswith(prefix + "/")):
            longest = prefix
    if not longest:
        return None
    inside = posixpath.normpath(path[len(longest) :].lstrip("/") or ".")
    if inside == ".." or inside.startswith("../"):
        raise FileNotFoundError(2, os.strerror(2), path)
    return _origins[longest], "" if inside == "." else inside


def item_at(origin: ByteOrigin, inside: str) -> Item:
    """The item at a path inside an origin. Raises OSError as `ByteOrigin.listing` does."""
    if not inside:
        return ROOT
    head, _, name = inside.rpartition("/")
    try:
        return origin.listing(head)[name]
    except KeyError:
        raise FileNotFoundError(2, os.strerror(2), inside) from None


def _attach_archive(path: str) -> None:
    archive = _archive_in(path)
    if archive is None or archive in _origins:
        return
    from kseg.segment.storage.archive_bytes import LocalBytes, OriginBytes
    from kseg.segment.storage.tar_archive import TarArchive

    place = located(archive)
    if place is None:
        origin = TarArchive(LocalBytes(archive), archive)
        for prefix in (archive, os.path.abspath(archive), os.path.realpath(archive)):
            _origins[prefix] = origin
    else:
        source = OriginBytes(place[0], place[1], item_at(*place))
        _origins[archive] = TarArchive(source, archive)
    _paths[archive] = None


def _attach_tiered(path: str) -> None:
    """Attach a tiered-storage root: the existing part of the path, since partitions and files below it are stored under other names."""
    if located(path) is not None:
        return
    root = path[len(TIERED) :].rstrip("/")
    attach(root)
    for _ in range(3):
        if root and _is_directory(root):
            break
        root = os.path.dirname(root)
    else:
        raise FileNotFoundError(2, os.strerror(2), path)
    from kseg.segment.storage.tiered_storage import LocalFolder, TieredStorage

    below = located(root) or (LocalFolder(root), "")
    _origins[TIERED + root] = TieredStorage(*below)
    _paths[TIERED + root] = None


def _is_directory(path: str) -> bool:
    place = located(path)
    if place is None:
        return os.path.isdir(path)
    try:
        return item_at(*place).kind is ItemKind.DIRECTORY
    except (FileNotFoundError, NotADirectoryError):
        return False


def _archive_in(path: str) -> str | None:
    """The leading part of a path that is named like a tar archive and is not a directory."""
    at = path.find(".t")
    while at >= 0:
        end = path.find("/", at)
        head = path if end < 0 else path[:end]
        if head.endswith(ARCHIVE_SUFFIXES) and _is_file(head):
            return head
        at = -1 if end < 0 else path.find(".t", end)
    return None


def _is_file(path: str) -> bool:
    place = located(path)
    try:
        if place is None:
            return not is_url(path) and stat.S_ISREG(os.stat(path).st_mode)
        return not place[1] or item_at(*place).kind is ItemKind.FILE
    except (FileNotFoundError, NotADirectoryError):
        return False
