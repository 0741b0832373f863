"""Unreadable bytes of files: a failing disk, a page that cannot be mapped in, a file that is truncated in the meantime.

A read error is not the end of a file. The readable bytes before and after it are used, zeros replace the rest, and the area
is recorded to the sector: `areas` returns the unreadable ranges of a file, `findings` reports them.

Reading wears out a failing disk, so it is read as little as possible:

1. Large reads first. One that fails is divided, by 16 each time, down to the sectors of one page; those are read bypassing the page
   cache if the file system allows it, since an unreadable block usually has one bad sector of eight.
2. A read that ends early has reached the bad spot, and only its page is divided.
3. A bad sector is not read again, by this process or by one that it forks later: the rest of its page is
   read bypassing the cache as well, since the cache reads whole pages.
4. An error that concerns the whole file (a lost server) ends the reading of this file.

The system reads mapped files, in large pieces too; `kernel.in_c.faults` handles unreadable pages there.
"""

import _thread
import errno
import fcntl
import mmap
import os
from array import array
from collections.abc import Iterator
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

from kseg.segment.counted import counted
from kseg.segment.diagnosis import UnreadableBytes
from kseg.segment.findings import Finding
from kseg.segment.kernel import bad_pages

if TYPE_CHECKING:
    from typing_extensions import Buffer

SECTOR_BYTES = 512
PAGE_BYTES = 4096
LARGE_BYTES = 1 << 20
_SHARES = 16
_MADV_POPULATE_READ = 22

# errors of a position in a file; all others concern the whole file
_OF_A_PLACE = frozenset(
    getattr(errno, name)
    for name in ("EIO", "ENODATA", "EREMOTEIO", "EILSEQ", "ETIMEDOUT", "EBADMSG", "EUCLEAN", "EHWPOISON")
    if hasattr(errno, name)
) | {133}  # EHWPOISON, which Python does not define
_BECAME_SHORTER = 0

# before any fork, so that processes share the bad areas that they find
bad_pages.start()

# device, inode, ctime of the inode in ns: inodes are reused, and a restored file keeps its old mtime
Identity = tuple[int, int, int]


class BadArea(NamedTuple):
    """error: errno, 0 if the file was truncated in the meantime. read_errors: number of failed reads here."""

    position: int
    length: int
    error: int
    read_errors: int

    @property
    def end(self) -> int:
        return self.position + self.length

    @property
    def words(self) -> str:
        """The system's message for the error."""
        return os.strerror(self.error) if self.error else "the file became shorter while it was being read"


class _State(_thread._local):
    """The files opened since `begin`, per thread: several threads may process targets. opened: path and size."""

    def __init__(self) -> None:
        self.opened: dict[Identity, tuple[str, int]] = {}


_state = _State()


def identity_of(status: os.stat_result) -> Identity:
    return status.st_dev, status.st_ino, status.st_ctime_ns


def opened(status: os.stat_result, path: str) -> None:
    """Record that this file is read, under this name."""
    _state.opened[identity_of(status)] = path, status.st_size


def begin() -> None:
    """Begin with another target: forget the files opened so far."""
    _state.opened.clear()


def findings() -> Iterator[Finding]:
    """A finding for each bad area of the files opened since `begin`, in the order of the names; an area that a running broker has
    truncated is not damage."""
    if not bad_pages.count():
        return
    for identity, (path, size_bytes) in sorted(_state.opened.items(), key=lambda item: item[1]):
        for area in areas(identity):
            yield _finding(path, size_bytes, area)


def is_known(descriptor: int, position: int, count: int) -> bool:
    """Whether a read of these bytes of an open file would include known bad ones."""
    if not bad_pages.count():
        return False
    start = position // PAGE_BYTES * PAGE_BYTES
    return bool(
        areas(identity_of(os.fstat(descriptor)), start, position + count + -(position + count) % PAGE_BYTES)
    )


def taken() -> list[Finding]:
    """Like `findings`, for callers that report them elsewhere; they are not reported again."""
    found = list(findings())
    _state.opened.clear()
    return found


def bytes_of(path: str) -> int:
    """The number of unreadable bytes of a file that was opened under this path since `begin`."""
    if not bad_pages.count():
        return 0
    found = (identity for identity, (name, _) in _state.opened.items() if name == path)
    return sum(area.length for identity in found for area in areas(identity))


def explains(finding: Finding) -> bool:
    """Whether a finding is about the content of a side file that was opened since `begin` and has unreadable bytes: it comes from the zeros
    in their place."""
    is_of_content = finding.id.endswith("-corrupt") or finding.id.startswith("txn-index-")
    return is_of_content and bool(bytes_of(finding.path))


def findings_of(directory: str) -> list[Finding]:
    """The findings about files directly in a directory."""
    own = os.path.abspath(directory)
    return [found for found in findings() if os.path.dirname(os.path.abspath(found.path)) == own]


def findings_in(directory: str) -> list[Finding]:
    """The findings about files in a directory, or below it."""
    prefix = os.path.join(os.path.abspath(directory), "")
    return [found for found in findings() if os.path.abspath(found.path).startswith(prefix)]


def _finding(path: str, size_bytes: int, area: BadArea) -> Finding:
    diagnosis = UnreadableBytes(area.words, area.error, area.read_errors, size_bytes)
    many = f"{counted(area.length, 'byte')} at position {area.position}"
    return Finding(
        "unreadable" if area.error else "changed-while-read",
        path,
        f"{many} cannot be read: {area.words}",
        position=area.position,
        length=area.length,
        numbers=diagnosis.numbers(),
        diagnosis=diagnosis,
    )


def areas(identity: Identity, start: int = 0, stop: int | None = None) -> tuple[BadArea, ...]:
    """The known unreadable areas of a file between two positions, in order; adjacent areas are joined."""
    number = bad_pages.count()
    if not number:
        return ()
    found = []
    row = memoryview(array("q", bytes(8 * bad_pages.AREA_WIDTH)))
    for at in range(number):
        bad_pages.area(at, row)
        *whose, position, length, error, read_errors = row
        if tuple(whose) == identity and position + length > start and (stop is None or position < stop):
            found.append(BadArea(position, length, error, read_errors))
    return tuple(_joined(sorted(found)))


def _joined(found: list[BadArea]) -> Iterator[BadArea]:
    held: BadArea | None = None
    for area in found:
        if held is not None and area.position <= held.end and area.error == held.error:
            end = max(held.end, area.end)
            is_new = area.end > held.end
            held = BadArea(
                held.position,
                end - held.position,
                held.error,
                held.read_errors + (area.read_errors if is_new else 0),
            )
        else:
            if held is not None:
                yield held
            held = area
    if held is not None:
        yield held


def _known_bytes() -> int:
    row = memoryview(array("q", bytes(8 * bad_pages.AREA_WIDTH)))
    total = 0
    for at in range(bad_pages.count()):
        bad_pages.area(at, row)
        total += row[4]
    return total


def is_of_a_place(error: OSError) -> bool:
    """Whether the error concerns some bytes rather than the whole file."""
    return error.errno in _OF_A_PLACE


# --- writing


def write(descriptor: int, data: "Buffer", position: int | None = None) -> int:
    """os.write, or os.pwrite, of bytes that may be in a map.

    When the system itself accesses an unreadable page of a map, it returns an error (EFAULT) instead of a signal. So the
    pages are accessed here first, and the readable bytes are written. Raises OSError, with EIO if some are unreadable now:
    the zeros in their place must not be written as data.
    """
    try:
        return _write(descriptor, data, position)
    except OSError as error:
        if error.errno != errno.EFAULT:
            raise
    known_bytes = _known_bytes()
    bad_pages.touch(memoryview(data).cast("B"))
    if _known_bytes() > known_bytes:
        raise OSError(errno.EIO, "some of its bytes cannot be read")
    return _write(descriptor, data, position)


def _write(descriptor: int, data: "Buffer", position: int | None) -> int:
    return os.write(descriptor, data) if position is None else os.pwrite(descriptor, data, position)


# --- reading


def populate(view: mmap.mmap, position: int, count: int) -> None:
    """Load a range of a map into memory. Raises OSError: EINVAL if the system does not support it (Linux before 5.14)."""
    view.madvise(_MADV_POPULATE_READ, position, count)


def pread(descriptor: int, count: int, position: int) -> bytes:
    return os.pread(descriptor, count, position)


def pread_past_the_cache(descriptor: int, count: int, position: int) -> bytes:
    """Read whole sectors directly from the disk; raises OSError with EINVAL if the file system does not support that."""
    flags = fcntl.fcntl(descriptor, fcntl.F_GETFL)
    buffer = mmap.mmap(-1, count)  # begins at a page, as direct I/O requires
    try:
        fcntl.fcntl(descriptor, fcntl.F_SETFL, flags | os.O_DIRECT)
        got = os.preadv(descriptor, [buffer], position)
        return buffer[:got]
    finally:
        fcntl.fcntl(descriptor, fcntl.F_SETFL, flags)
        buffer.close()


def read_around(
    descriptor: int, status: os.stat_result, position: int, count: int, failed: OSError | None = None
) -> bytes:
    """`count` bytes of an open file (fewer at its end); unreadable bytes become zeros, and are recorded.

    failed: the error with which a read of all of it just failed, while no bad areas were known. Raises OSError for an error of the whole
    file.
    """
    identity = identity_of(status)
    count = max(0, min(count, status.st_size - position))
    out = bytearray(count)
    at = position
    for area in (*areas(identity, position, position + count), None):
        stop = position + count if area is None else min(area.position, position + count)
        if at < stop:
            _Reading(descriptor, status, position, out).beside_what_is_known(at, stop, failed)
        at = stop if area is None else max(at, area.end)
    return bytes(out)


class _Reading:
    def __init__(self, descriptor: int, status: os.stat_result, origin: int, out: bytearray) -> None:
        self._descriptor = descriptor
        self._identity = identity_of(status)
        self._block_bytes = min(max(SECTOR_BYTES, status.st_blksize), PAGE_BYTES)
        self._size_bytes = status.st_size
        self._origin = origin
        self._out = out

    def beside_what_is_known(self, start: int, stop: int, failed: OSError | None) -> None:
        """Read a range that contains no known bad area, except perhaps in its first and its last page."""
        head = min(stop, start + -start % PAGE_BYTES) if self._is_known_page(start) else start
        tail = max(head, stop - stop % PAGE_BYTES) if self._is_known_page(stop) else stop
        if start < head:
            self._sectors(start, head, None)
        if head < tail:
            self._between(head, tail, failed)
        if tail < stop:
            self._sectors(tail, stop, None)

    def _is_known_page(self, position: int) -> bool:
        page = position // PAGE_BYTES * PAGE_BYTES
        return bool(areas(self._identity, page, page + PAGE_BYTES))

    def _between(self, start: int, stop: int, failed: OSError | None) -> None:
        waiting = [(start, stop)]
        while waiting:
            at, end = waiting.pop()
            wanted = min(LARGE_BYTES, end - at)
            try:
                if failed is not None:
                    raise failed
                data = pread(self._descriptor, wanted, at)
            except OSError as error:
                failed = None
                if error.errno not in _OF_A_PLACE:
                    raise
                if end - at > PAGE_BYTES:
                    waiting += reversed(_shares(at, at + wanted, end))
                else:
                    self._sectors(at, end, error)
                continue
            if not data:
                if os.fstat(self._descriptor).st_size <= at:
                    del self._out[at - self._origin :]
                    return
                self._note(at, self._size_bytes - at, _BECAME_SHORTER)
                return
            self._put(at, data)
            at += len(data)
            if len(data) == wanted:
                waiting += [(at, end)] if at < end else []
            else:
                # a short read: a bad sector follows, in this page
                page_end = min(end, at // PAGE_BYTES * PAGE_BYTES + PAGE_BYTES)
                waiting += [(page_end, end)] if page_end < end else []
                waiting.append((at, page_end))

    def _sectors(self, start: int, stop: int, failed: OSError | None) -> None:
        """Read the parts of one page, each once. failed: the error with which the read of the whole page failed."""
        read, step = pread_past_the_cache, SECTOR_BYTES
        at = start // SECTOR_BYTES * SECTOR_BYTES
        while at < stop:
            try:
                data = read(self._descriptor, step, at)
            except OSError as error:
                if error.errno in (errno.EINVAL, errno.EOPNOTSUPP) and read is pread_past_the_cache:
                    read, step = pread, self._block_bytes
                    at = start // step * step
                    if failed is None or step < PAGE_BYTES:
                        continue
                    error = failed  # the smallest unit
                if error.errno not in _OF_A_PLACE:
                    raise
                self._note(at, min(step, self._size_bytes - at), error.errno or errno.EIO)
            else:
                self._put(at, data)
            at += step

    def _put(self, position: int, data: bytes) -> None:
        skip = max(0, self._origin - position)
        at = position + skip - self._origin
        room = len(self._out) - at
        piece = data[skip : skip + room]
        self._out[at : at + len(piece)] = piece

    def _note(self, position: int, length: int, error: int) -> None:
        """Raises OSError if too many are known: unrecorded zeros would be taken for content of the file."""
        if not bad_pages.note(*self._identity, position, length, error):
            raise OSError(errno.EIO, "too many ranges cannot be read")


def _shares(start: int, stop: int, end: int) -> list[tuple[int, int]]:
    """A range that could not be read in one piece, divided at page boundaries, followed by the part that has not been read yet."""
    size = max(PAGE_BYTES, -(-(stop - start) // _SHARES // PAGE_BYTES) * PAGE_BYTES)
    bounds = [start, *range(start // size * size + size, stop, size), stop]
    found = list(pairwise(bounds))
    return found if stop == end else [*found, (stop, end)]
