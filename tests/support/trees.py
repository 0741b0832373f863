"""Directory trees as values: their content, to the byte and to the nanosecond, so that "kseg wrote nothing" can be asserted.

A forensic tool must not change the evidence. A test takes the state of a tree before a command and compares it with the state after it:
names, kinds, sizes, modification times, modes, link targets and contents.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

# larger files are read in pieces, by a buffer of 256 KiB, which costs more than most files
SMALL_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class Entry:
    """One name of a tree. `content` is the SHA-256 of a file, the target of a link, else empty."""

    kind: str
    mode: int
    size_bytes: int
    mtime_ns: int
    content: str


def tree_state(path: Path) -> dict[str, Entry]:
    """Everything below `path` (and `path` itself, as "."), by relative name; links are not followed."""
    root = str(path)
    found = {".": _entry(root)}
    if found["."].kind == "directory":
        _walk(root, "", found)
    return found


def _walk(directory: str, prefix: str, found: dict[str, Entry]) -> None:
    """Add what is below a directory, each name with `prefix`. Not by `Path.rglob`, which takes as long as everything else here."""
    try:
        names = sorted(os.listdir(directory))
    except PermissionError:
        return
    for name in names:
        path = f"{directory}/{name}"
        found[prefix + name] = entry = _entry(path)
        if entry.kind == "directory":
            _walk(path, f"{prefix}{name}/", found)


def content_of(directory: Path) -> dict[str, bytes]:
    """The files of a directory with their content, by name."""
    return {path.name: path.read_bytes() for path in sorted(directory.iterdir())}


def files_in(directory: Path) -> dict[str, bytes]:
    """The files of a directory by name, without those in directories below it."""
    return {path.name: path.read_bytes() for path in directory.iterdir() if path.is_file()}


def _entry(path: str) -> Entry:
    status = os.lstat(path)
    if stat.S_ISLNK(status.st_mode):
        kind, content, size_bytes = "link", os.readlink(path), 0
    elif stat.S_ISDIR(status.st_mode):
        kind, content, size_bytes = "directory", "", 0
    else:
        kind, content, size_bytes = "file", _digest(path, status.st_size), status.st_size
    return Entry(kind, stat.S_IMODE(status.st_mode), size_bytes, status.st_mtime_ns, content)


def _digest(path: str, size_bytes: int) -> str:
    with open(path, "rb", buffering=0) as file:
        if size_bytes <= SMALL_BYTES:
            return hashlib.sha256(file.readall()).hexdigest()
        return hashlib.file_digest(file, "sha256").hexdigest()


def differences(before: dict[str, Entry], after: dict[str, Entry]) -> list[str]:
    """One line for each name that was added, removed or changed, with the change."""
    lines = []
    for name in sorted(before.keys() | after.keys()):
        old, new = before.get(name), after.get(name)
        if old is None:
            lines.append(f"appeared: {name}")
        elif new is None:
            lines.append(f"vanished: {name}")
        elif old != new:
            changed = [f for f in Entry.__slots__ if getattr(old, f) != getattr(new, f)]
            lines.append(f"changed: {name} ({', '.join(changed)})")
    return lines


@contextmanager
def unchanged(*paths: Path) -> Iterator[None]:
    """Fail if the body changes anything at or below `paths`, even if the body raises."""
    before = {path: tree_state(path) for path in paths}
    try:
        yield
    finally:
        lines = [
            f"{path}: {line}"
            for path, state in before.items()
            for line in differences(state, tree_state(path))
        ]
        assert not lines, "the input was changed:\n" + "\n".join(lines)


def copy_file(source: str, target: str) -> str:
    """Copy a regular file in a third of the time of `shutil.copy2`: content, mode and times, but no extended attributes."""
    # do not wait for the writer of a pipe
    reads = os.open(source, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    try:
        status = os.fstat(reads)
        if not stat.S_ISREG(status.st_mode):
            # shutil raises the error for a file that is not regular
            return str(shutil.copy2(source, target))
        writes = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        try:
            left_bytes = status.st_size
            while left_bytes > 0 and (sent := os.sendfile(writes, reads, None, left_bytes)):
                left_bytes -= sent
            os.fchmod(writes, stat.S_IMODE(status.st_mode))
            os.utime(writes, ns=(status.st_atime_ns, status.st_mtime_ns))
        finally:
            os.close(writes)
    finally:
        os.close(reads)
    return target


def copy_tree(source: Path, target: Path) -> Path:
    """A writable copy with the same modification times; returns `target`."""
    shutil.copytree(source, target, symlinks=True)
    for path in (target, *target.rglob("*")):
        if not path.is_symlink():
            # stat first: the copy of a read-only directory lacks the owner's write bit too
            path.chmod(path.stat().st_mode | stat.S_IWUSR)
    return target
