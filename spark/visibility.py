"""Check on a small sample of files that executors see the same files as the driver.

The same path may be a different file on another machine: every broker calls its disk /var/lib/kafka. So a file is identified by its
first bytes, which no broker changes once they are written, and not by times or inodes, which differ between mounts. A file that has
grown is still the same file.

If the run changes files in place, a node that checks later cannot rely on their contents. Then only directories are sampled, and an
attempt at a change requires the run's own lock there (`change/run/partition_lock`).
"""

import hashlib
import os
import socket
from collections.abc import Sequence
from contextlib import closing

from kseg.segment.errors import UnreadableInput
from kseg.segment.input_stream import InputStream
from kseg.segment.storage import places
from kseg.segment.values import dataclass

MAX_SAMPLES = 16
HEAD_BYTES = 4096
TEMPORARY_PREFIXES = (".", "kseg-")  # names that come and go with the commands of kseg


@dataclass(frozen=True, slots=True)
class FileSample:
    """A file or directory. size_bytes: None for a directory. digest: of the first HEAD_BYTES of a file."""

    path: str
    size_bytes: int | None
    digest: bytes = b""


@dataclass(frozen=True, slots=True)
class DirectorySample:
    """A directory as the driver sees it. names: some of its entries; a node on which none of them exists sees another directory."""

    path: str
    names: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class NotVisible:
    """A node that does not see a sampled file. problem: what is wrong with the path on that node."""

    host: str
    path: str
    problem: str

    @property
    def sentence(self) -> str:
        return (
            f"the node {self.host} {self.problem} {self.path}: every node must see the same files under the same path "
            "(a shared file system)"
        )


def file_samples(paths: Sequence[str], *, are_changing: bool = False) -> tuple[FileSample, ...]:
    """A sample file from each directory that contains one of the paths (from some if there are many), or the directories themselves
    if the run changes their files."""
    by_parent = {os.path.dirname(path): path for path in reversed(paths)}
    chosen = list(by_parent.values())[:: max(1, -(-len(by_parent) // MAX_SAMPLES))]
    if are_changing:
        directories = (path if places.isdir(path) else os.path.dirname(path) or os.curdir for path in chosen)
        return tuple(FileSample(path, None) for path in directories)
    return tuple(filter(None, map(file_sample, chosen)))


def first_not_visible(marks: Sequence[FileSample]) -> NotVisible | None:
    """The first sample that this machine does not see, None if it sees all."""
    for mark in marks:
        problem = _difference(mark)
        if problem is not None:
            return NotVisible(socket.gethostname(), places.abspath(mark.path), problem)
    return None


def directory_sample(path: str) -> DirectorySample:
    """A sample of a directory, or of its nearest existing parent."""
    path = places.abspath(path)
    while not places.isdir(path) and os.path.dirname(path) != path:
        path = os.path.dirname(path)
    try:
        names = sorted(name for name in places.listdir(path) if not name.startswith(TEMPORARY_PREFIXES))
    except OSError:
        names = []  # the work on it reports the problem
    return DirectorySample(path, tuple(names[:: max(1, -(-len(names) // MAX_SAMPLES))]))


def check_directory_sample(seen: DirectorySample) -> None:
    """Raises UnreadableInput if this machine does not see the directory that the driver sees."""
    first = os.path.join(seen.path, seen.names[0]) if seen.names else seen.path
    if not places.isdir(seen.path):
        raise UnreadableInput(NotVisible(socket.gethostname(), seen.path, "does not see").sentence)
    if seen.names and not any(places.lexists(os.path.join(seen.path, name)) for name in seen.names):
        raise UnreadableInput(NotVisible(socket.gethostname(), first, "does not see").sentence)


def check_file_sample(mark: FileSample | None) -> None:
    """Raises UnreadableInput if this machine has another file under the same path. A file that is missing may have been deleted
    meanwhile, which the work on it reports."""
    problem = None if mark is None else _difference(mark)
    if mark is not None and problem == "has another":
        raise UnreadableInput(NotVisible(socket.gethostname(), places.abspath(mark.path), problem).sentence)


def file_sample(path: str) -> FileSample | None:
    """A sample of one file, or of the first one of a directory; None if the driver cannot read it either, which the work on it reports."""
    try:
        if places.isdir(path):
            with places.scandir(path) as entries:
                files = sorted(entry.path for entry in entries if entry.is_file() and entry.stat().st_size)
            if not files:
                return FileSample(path, None)
            path = files[0]
        size_bytes = places.stat(path).st_size
        return FileSample(path, size_bytes, _digest(path, size_bytes))
    except (OSError, UnreadableInput):
        return None


def _difference(mark: FileSample) -> str | None:
    try:
        if mark.size_bytes is None:
            return None if places.isdir(mark.path) else "does not see"
        if places.stat(mark.path).st_size < mark.size_bytes:
            return "has another"
        return None if _digest(mark.path, mark.size_bytes) == mark.digest else "has another"
    except FileNotFoundError:
        return "does not see"
    except (OSError, UnreadableInput):
        return "cannot read"


def _digest(path: str, size_bytes: int) -> bytes:
    if not size_bytes:
        return b""  # a file that was empty may have been written to meanwhile
    with closing(InputStream(path)) as stream:
        return hashlib.sha256(next(stream.blocks(min(size_bytes, HEAD_BYTES)), b"")).digest()
