"""Bytes of files that cannot be read: a dying disk, a page that cannot be mapped in, a file that somebody cuts off meanwhile.

A read error is not the end of a file. What can be read before and after it is used; in its place stand zeros, and the area
is noted to the sector: `areas` says which bytes of a file are not what they seem, `findings` makes them known.

Reading wears out a dying disk, so it is asked as little as can be:

1. Large reads first. One that fails is divided, by 16 each time, down to the sectors of one page; those are read past the page
   cache where the file system allows it, since a block that cannot be read mostly has one bad sector of eight.
2. A read that ends early has met the bad spot, and only its page is divided.
3. No sector that was found bad is asked for again, by this process or by one that it forks later: the rest of its page is
   read past the cache as well, since the cache reads whole pages.
4. An error of the file itself (a server that is gone) ends the reading of this file.

Mapped files are read by the system, in large pieces too; for what happens there when a page cannot be read, see `kernel.in_c.faults`.
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

# errors of a place in a file; every other one is the file's own
_OF_A_PLACE = frozenset(
    getattr(errno, name)
    for name in ("EIO", "ENODATA", "EREMOTEIO", "EILSEQ", "ETIMEDOUT", "EBADMSG", "EUCLEAN", "EHWPOISON")
    if hasattr(errno, name)
) | {133}  # EHWPOISON, which Python does not name
_BECAME_SHORTER = 0

# before anything is forked: what one process finds to be bad, the others shall know
bad_pages.start()

# device, inode, time of the last change of the inode in ns: an inode is used again, and a restored file keeps its old mtime
Identity = tuple[int, int, int]


class BadArea(NamedTuple):
    """error: errno, 0 where the file was truncated in the meantime. read_errors: how many reads failed here."""

    position: int
    length: int
    error: int
    read_errors: int

    @property
    def end(self) -> int:
        return self.position + self.length

    @property
    def words(self) -> str:
        """The error as the system names it."""
        return os.strerror(self.error) if self.error else "the file became shorter while it was being read"


class _State(_thread._local):
    """The files that were opened since `begin`, of each thread: targets may be worked on in several. opened: path and size."""

    def __init__(self) -> None:
        self.opened: dict[Identity, tuple[str, int]] = {}


_state = _State()


def identity_of(status: os.stat_result) -> Identity:
    return status.st_dev, status.st_ino, status.st_ctime_ns


def opened(status: os.stat_result, path: str) -> None:
    """Take note that somebody reads this file, under this name."""
    _state.opened[identity_of(status)] = path, status.st_size


def begin() -> None:
    """The work on another target begins: what was opened so far is no concern of its."""
    _state.opened.clear()


def findings() -> Iterator[Finding]:
    """What cannot be read of the files that were opened since `begin`: a finding for each bad area, in the order of the names."""
    if not bad_pages.count():
        return
    for identity, (path, size_bytes) in sorted(_state.opened.items(), key=lambda item: item[1]):
        for area in areas(identity):
            yield _finding(path, size_bytes, area)


def is_known(descriptor: int, position: int, count: int) -> bool:
    """Whether a read of these bytes of an open file would ask for some that are known to be bad."""
    if not bad_pages.count():
        return False
    start = position // PAGE_BYTES * PAGE_BYTES
    return bool(
        areas(identity_of(os.fstat(descriptor)), start, position + count + -(position + count) % PAGE_BYTES)
    )


def taken() -> list[Finding]:
    """The same, for those who tell them in their own place; they are not told again."""
    found = list(findings())
    _state.opened.clear()
    return found


def bytes_of(path: str) -> int:
    """How many bytes could not be read of a file that was opened under this path since `begin`."""
    if not bad_pages.count():
        return 0
    found = (identity for identity, (name, _) in _state.opened.items() if name == path)
    return sum(area.length for identity in found for area in areas(identity))


def findings_of(directory: str) -> list[Finding]:
    """Those of the files that are in a directory itself."""
    own = os.path.abspath(directory)
    return [found for found in findings() if os.path.dirname(os.path.abspath(found.path)) == own]


def findings_in(directory: str) -> list[Finding]:
    """Those of the files that are in a directory, or below it."""
    prefix = os.path.join(os.path.abspath(directory), "")
    return [found for found in findings() if os.path.abspath(found.path).startswith(prefix)]


def _finding(path: str, size_bytes: int, area: BadArea) -> Finding:
    diagnosis = UnreadableBytes(area.words, area.error, area.read_errors, size_bytes)
    many = f"{counted(area.length, 'byte')} at position {area.position}"
    return Finding(
        "unreadable",
        path,
        f"{many} cannot be read: {area.words}",
        position=area.position,
        length=area.length,
        numbers=diagnosis.numbers(),
        diagnosis=diagnosis,
    )


def areas(identity: Identity, start: int = 0, stop: int | None = None) -> tuple[BadArea, ...]:
    """What is known to be unreadable of a file between two positions, in order; areas that touch are one."""
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
    """Whether it is an error of some bytes and not of the whole file."""
    return error.errno in _OF_A_PLACE


# --- writing


def write(descriptor: int, data: "Buffer", position: int | None = None) -> int:
    """os.write, or os.pwrite, of bytes that may be in a map.

    Where a program that touches a page is sent a signal, the system gives an error (EFAULT) when it is handed the page. So the
    pages are touched here, and what can be read of them is written. Raises OSError, with EIO when some cannot be read now:
    the zeros in their place are nobody's data.
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
    """Have a range of a map in memory. Raises OSError: EINVAL where the system does not know how (Linux before 5.14)."""
    view.madvise(_MADV_POPULATE_READ, position, count)


def pread(descriptor: int, count: int, position: int) -> bytes:
    return os.pread(descriptor, count, position)


def pread_past_the_cache(descriptor: int, count: int, position: int) -> bytes:
    """Whole sectors straight from the disk; raises OSError with EINVAL where the file system does not do that."""
    flags = fcntl.fcntl(descriptor, fcntl.F_GETFL)
    buffer = mmap.mmap(-1, count)  # begins at a page, as the disk wants it
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
    """`count` bytes of an open file (fewer at its end), with zeros for what cannot be read, which is noted.

    failed: how a read of all of it has just failed, while nothing was known to be bad. Raises OSError for an error that is not of a place in the file.
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
        """A range that holds no area known to be bad; there may be some in its first and its last page."""
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
                # it ended early: before a bad spot, which is in this page
                page_end = min(end, at // PAGE_BYTES * PAGE_BYTES + PAGE_BYTES)
                waiting += [(page_end, end)] if page_end < end else []
                waiting.append((at, page_end))

    def _sectors(self, start: int, stop: int, failed: OSError | None) -> None:
        """The parts of one page, each read once. failed: how the page could not be read as a whole."""
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
                    error = failed  # nothing smaller can be asked for
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
        """Raises OSError when too many are known: zeros that nobody knows of would be taken for the file's."""
        if not bad_pages.note(*self._identity, position, length, error):
            raise OSError(errno.EIO, "too many ranges cannot be read")


def _shares(start: int, stop: int, end: int) -> list[tuple[int, int]]:
    """A range that could not be read at once, in pages; after it what was not asked for yet."""
    size = max(PAGE_BYTES, -(-(stop - start) // _SHARES // PAGE_BYTES) * PAGE_BYTES)
    bounds = [start, *range(start // size * size + size, stop, size), stop]
    found = list(pairwise(bounds))
    return found if stop == end else [*found, (stop, end)]
