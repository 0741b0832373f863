"""A tar archive as a tree of files, without unpacking it.

The headers are read once:

    .tar                        from header to header; from then on a file is a range of the archive
    .tar.gz .tgz .tar.zst .tzst the whole stream is decompressed, and what fits is kept in a scratch file on the way: files until
                                half of the free space in the folder for temporary files is used,
                                small ones a little longer; for other files the stream is
                                decompressed again

An archive is evidence too. If its headers end early, the files found until then are still available, a truncated file ends where
its bytes end, and `damage` says so. Names that lead out of the archive are omitted; links and devices are not files.
If a name occurs twice, the later entry is used, as when tar unpacks it.
"""

import os
import posixpath
import tarfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import field
from typing import Self, cast

from kseg.segment.storage.archive_bytes import ArchiveBytes, ArchiveFile, ForwardStream, is_compressed
from kseg.segment.storage.origin import Item, ItemKind, failure
from kseg.segment.values import dataclass

MAX_MEMBERS = 4_000_000
MAX_LEVELS = 100
_SMALL_BYTES = 256 << 10
_COPY_BYTES = 4 << 20
_REGULAR = (tarfile.REGTYPE, tarfile.AREGTYPE, tarfile.CONTTYPE)


@dataclass(frozen=True, slots=True)
class _Place:
    """The location of a file's bytes. position: in the decompressed archive. pieces: (position in the file, length) of the stored parts of
    a sparse file, None if all is stored. kept_at: position in the scratch file; -1 if it is not there."""

    position: int
    stored_bytes: int
    pieces: tuple[tuple[int, int], ...] | None = None
    kept_at: int = -1


@dataclass(slots=True)
class _Tree:
    """The content according to the headers: names by directory, and the locations of the files' bytes."""

    directories: dict[str, dict[str, Item]] = field(default_factory=lambda: {"": {}})
    places: dict[str, _Place] = field(default_factory=dict)

    def add(self, inside: str, item: Item) -> None:
        head, _, name = inside.rpartition("/")
        self._make(head)
        if item.kind is ItemKind.DIRECTORY:
            self._make(inside)
        elif inside not in self.directories:
            self.directories[head][name] = item

    def _make(self, inside: str) -> None:
        if inside in self.directories:
            return
        head, _, name = inside.rpartition("/")
        self._make(head)  # at most MAX_LEVELS deep
        self.places.pop(inside, None)
        self.directories[head][name] = Item(ItemKind.DIRECTORY)
        self.directories[inside] = {}

    def cut(self, inside: str, size_bytes: int) -> int:
        """Shorten a file to the bytes that the archive contains; returns its declared size."""
        head, _, name = inside.rpartition("/")
        item = self.directories[head][name]
        self.directories[head][name] = Item(item.kind, size_bytes, item.mtime_ns, item.version)
        return item.size_bytes


class TarArchive:
    """source: the bytes of the archive. path: its name, which determines the compression. damage: a sentence about why it ends
    early, None if it does not. Raises OSError if it cannot be read or is not a tar archive."""

    def __init__(self, source: ArchiveBytes, path: str) -> None:
        self.path = path
        self._source = source
        self.damage: str | None = None
        self._tree = _Tree()
        self._stream = ForwardStream(source, path) if is_compressed(path) else None
        self._scratch = _Scratch() if self._stream is not None else None
        self._walk()

    # --- content

    def listing(self, inside: str) -> Mapping[str, Item]:
        """The entries of a directory, from the headers."""
        found = self._tree.directories.get(inside)
        if found is None:
            is_file = inside in self._tree.places
            raise NotADirectoryError(20, os.strerror(20)) if is_file else FileNotFoundError(2, os.strerror(2))
        return found

    def is_seekable(self, inside: str) -> bool:
        """Whether ranges can be read without decompressing the stream for each."""
        return self._stream is None or self._tree.places[inside].kept_at >= 0

    def read(self, inside: str, item: Item, start: int, stop: int) -> bytes:
        """Read a range of a member."""
        place = self._tree.places[inside]
        if place.pieces is None:
            return self._stored(place, start, stop)
        data = bytearray(stop - start)
        stored = 0
        for first, length in place.pieces:
            low, high = max(start, first), min(stop, first + length)
            if low < high:
                data[low - start : high - start] = self._stored(
                    place, stored + low - first, stored + high - first
                )
            stored += length
        return bytes(data)

    def _stored(self, place: _Place, start: int, stop: int) -> bytes:
        """A range of the stored part of a file. The caller, which knows the size, adds zeros for what the archive lacks."""
        if place.kept_at >= 0 and self._scratch is not None:
            return self._scratch.read(place.kept_at + start, place.kept_at + stop)
        if self._stream is None:
            return self._source.read(place.position + start, place.position + stop)
        self._stream.skip_to(place.position + start)
        data = self._stream.read(stop - start)
        if len(data) < stop - start:
            raise failure(f"the archive ends too early: {self._stream.damage or 'it was cut off'}")
        return data

    # --- the walk over the headers

    def _walk(self) -> None:
        last = ""
        ends: list[Exception] = []
        file = self._stream or ArchiveFile(self._source)
        mode = "r|" if self._stream else "r:"
        try:
            with tarfile.open(fileobj=file, mode=mode, bufsize=_COPY_BYTES, tarinfo=_noting(ends)) as archive:  # type: ignore[call-overload]
                for number, info in enumerate(_members(archive)):
                    if number >= MAX_MEMBERS:
                        raise failure(f"the archive has more than {MAX_MEMBERS} members")
                    last = self._take(archive, info)
                end = archive.offset
        except tarfile.TarError as error:
            reason = str(error)
            if self._stream and not self._stream.position and self._source.size_bytes:
                reason = "nothing of it can be decompressed"
            if self._stream and self._stream.damage:
                reason = self._stream.damage
            if not self._tree.directories[""]:
                raise failure(f"not a tar archive ({reason})") from error
            self._cut_off(last, reason)
            return
        except (ValueError, OverflowError) as error:  # from a header that no tar program writes
            raise failure(f"not a tar archive ({error})") from error
        if self._stream and self._stream.damage:
            self._cut_off(last, self._stream.damage)
        elif ends and not isinstance(ends[-1], tarfile.EOFHeaderError):  # type: ignore[attr-defined]
            self._cut_off(last, f"{ends[-1]} at position {end}")

    def _take(self, archive: tarfile.TarFile, info: tarfile.TarInfo) -> str:
        """Add one member; returns its name if it has bytes."""
        inside = posixpath.normpath(info.name.lstrip("/") or ".")
        if inside in (".", "..") or inside.startswith("../") or inside.count("/") > MAX_LEVELS:
            return ""
        mtime_ns = int(info.mtime * 1_000_000_000) if 0 <= info.mtime < 1 << 33 else 0
        if info.isdir():
            self._tree.add(inside, Item(ItemKind.DIRECTORY, 0, mtime_ns))
        elif info.islnk() and (target := posixpath.normpath(info.linkname.lstrip("/"))) in self._tree.places:
            head, _, name = target.rpartition("/")
            self._tree.places[inside] = self._tree.places[target]
            self._tree.add(inside, self._tree.directories[head][name])
        elif (info.type in _REGULAR or info.issparse()) and _is_sound(info):
            self._tree.add(inside, Item(ItemKind.FILE, info.size, mtime_ns, str(info.offset_data)))
            self._tree.places[inside] = self._placed(archive, info)
            return inside
        else:
            self._tree.add(inside, Item(ItemKind.OTHER, 0, mtime_ns))
        return ""

    def _placed(self, archive: tarfile.TarFile, info: tarfile.TarInfo) -> _Place:
        pieces = _pieces(info)
        stored_bytes = info.size if pieces is None else sum(length for _, length in pieces)
        kept_at = -1
        if self._scratch is not None and self._scratch.has_room_for(stored_bytes):
            kept_at = self._scratch.end
            self._keep(archive, info, stored_bytes)
        return _Place(info.offset_data, stored_bytes, pieces, kept_at)

    def _keep(self, archive: tarfile.TarFile, info: tarfile.TarInfo, stored_bytes: int) -> None:
        """Copy the next member's bytes to the scratch file while passing them."""
        assert self._scratch is not None
        stream = archive.fileobj
        assert stream is not None
        if stream.tell() != info.offset_data:
            stream.seek(info.offset_data)
        while stored_bytes > 0 and (data := stream.read(min(stored_bytes, _COPY_BYTES))):
            self._scratch.append(data)
            stored_bytes -= len(data)
        self._scratch.skip(stored_bytes)

    def _cut_off(self, last: str, reason: str) -> None:
        """Truncate the last member to the existing bytes."""
        self.damage = f"the archive ends too early ({reason})"
        place = self._tree.places.get(last)
        if place is None:
            return
        available = (self._stream.position if self._stream else self._source.size_bytes) - place.position
        if available < place.stored_bytes:
            left = max(0, available) if place.pieces is None else 0
            size_bytes = self._tree.cut(last, left)
            self.damage += f": of {last} only {left} of {size_bytes} bytes are there"


def _noting(ends: list[Exception]) -> type[tarfile.TarInfo]:
    """A tarfile header class that records why there is no further header: tarfile treats damage as the end."""

    class NotingHeader(tarfile.TarInfo):
        @classmethod
        def fromtarfile(cls, tarfile_: tarfile.TarFile) -> Self:
            try:
                return super().fromtarfile(tarfile_)
            except tarfile.HeaderError as error:
                ends.append(error)
                raise

    return NotingHeader


def _pieces(info: tarfile.TarInfo) -> tuple[tuple[int, int], ...] | None:
    """The stored pieces of a sparse file; None for any other file."""
    sparse = cast("list[tuple[int, int]] | None", info.sparse)
    return None if sparse is None else tuple(sparse)


def _is_sound(info: tarfile.TarInfo) -> bool:
    """Whether sizes make sense; those of a sparse file come from the archive piece by piece."""
    if not 0 <= info.size < 1 << 50:
        return False
    end = 0
    for position, length in _pieces(info) or ():
        if not end <= position <= position + length <= info.size:
            return False
        end = position + length
    return True


def _members(archive: tarfile.TarFile) -> Iterator[tarfile.TarInfo]:
    while (info := archive.next()) is not None:
        archive.members = []  # type: ignore[attr-defined]  # they are not asked for again
        yield info


class _Scratch:
    """An unnamed file for decompressed content."""

    def __init__(self) -> None:
        import tempfile

        folder = tempfile.gettempdir()
        status = os.statvfs(folder)
        self._room_bytes = status.f_bavail * status.f_frsize // 2
        self._descriptor, path = tempfile.mkstemp(prefix="kseg-")
        with suppress(FileNotFoundError):
            os.unlink(path)
        self.end = 0

    def has_room_for(self, size_bytes: int) -> bool:
        extra = self._room_bytes // 4 if size_bytes <= _SMALL_BYTES else 0
        return self.end + size_bytes <= self._room_bytes + extra

    def append(self, data: bytes) -> None:
        view = memoryview(data)
        while view:
            written = os.pwrite(self._descriptor, view, self.end)
            view, self.end = view[written:], self.end + written

    def skip(self, count: int) -> None:
        """Skip the bytes that the archive lacks."""
        self.end += count

    def read(self, start: int, stop: int) -> bytes:
        data = os.pread(self._descriptor, stop - start, start)
        while len(data) < stop - start and (
            more := os.pread(self._descriptor, stop - start - len(data), start + len(data))
        ):
            data += more
        return data + bytes(stop - start - len(data))

    def __del__(self, close: Callable[[int], None] = os.close) -> None:
        if getattr(self, "_descriptor", -1) >= 0:
            close(self._descriptor)  # also at interpreter exit, when modules are gone
