"""New files that are too large for memory: written while a change is planned, unnamed until it is applied.

A scratch file has no name (O_TMPFILE), so it is gone when the process ends for any reason. It is on the
file system of the directory, and staging gives it a name there without copying a byte. If a file system does not
support that, a named file is created and unlinked immediately, and staging copies it.

A file that another process writes for the planner needs a name: that process writes it under one and leaves it (`leave`);
the planner finds it (`found`) and unlinks it when it closes it.
"""

import errno
import mmap
import os
from contextlib import suppress
from typing import TYPE_CHECKING, Self

from kseg.change.apply.disk import DISK
from kseg.change.apply.file_operations import copy, remove_quietly, write_all
from kseg.change.plan.content import Made
from kseg.segment.crc import crc32c
from kseg.segment.errors import Refused
from kseg.segment.files import mapped

if TYPE_CHECKING:
    from typing_extensions import Buffer

_OPEN_FILES = "/proc/self/fd/"
_LARGE_FILES = "/var/tmp"
_NO_NAMELESS = (errno.EOPNOTSUPP, errno.EISDIR, errno.EINVAL, errno.ENOENT)


class ScratchFile:
    """One unnamed file, written sequentially, then read or used as a piece of a plan. directory: selects the file system; None for
    that of temporary files. Raises Refused if it cannot be created or written.
    """

    def __init__(self, directory: str | None, *, name: str | None = None) -> None:
        """name: of the new file in `directory`, if it needs one."""
        self._where = directory or "the directory for temporary files"
        self._name = None if name is None else os.path.join(self._where, name)
        self._map: mmap.mmap | None = None
        self._source = -1
        self._source_path = ""
        self.size_bytes = 0
        self.crc = 0
        try:
            self._where = temporary_directory() if directory is None else directory
            self._descriptor = _nameless(self._where) if self._name is None else DISK.create(self._name)
        except OSError as error:
            raise self._refused(error, 0) from error

    @classmethod
    def found(cls, path: str, size_bytes: int, crc: int) -> Self:
        """A file that another process has written and left. Raises Refused when it is missing or changed."""
        self = cls.__new__(cls)
        self._where, self._name = os.path.dirname(path), path
        self._map, self._source, self._source_path = None, -1, ""
        self._descriptor = -1
        self.size_bytes, self.crc = size_bytes, crc
        try:
            self._descriptor = DISK.open_to_write(path)
            if os.fstat(self._descriptor).st_size != size_bytes:
                raise OSError(errno.EIO, "it has another size than what was written")
        except OSError as error:
            self.close()
            raise Refused(f"cannot read {path}: {error.strerror}") from error
        return self

    def leave(self) -> None:
        """Sync and close a named file for the process that will find it. Raises Refused."""
        self._name = None
        try:
            DISK.sync(self._descriptor)
        except OSError as error:
            raise self._refused(error, 0) from error
        self.close()

    def write(self, data: "Buffer") -> None:
        """Add `data` at the end."""
        try:
            write_all(DISK, self._descriptor, data, self.size_bytes)
        except OSError as error:
            raise self._refused(error, memoryview(data).nbytes) from error
        self._count(memoryview(data))

    def filled(self, size_bytes: int) -> None:
        """Record that a forked process has written this many bytes; `crc` is then unknown."""
        self.size_bytes = size_bytes

    def copy(self, path: str, view: memoryview, position: int, length: int) -> None:
        """Add a range of the file `path`, whose bytes are those of `view`."""
        try:
            self._open(path)
            copy(DISK, self._source, position, length, self._descriptor, self.size_bytes)
        except OSError as error:
            raise self._refused(error, length) from error
        self._count(view[position : position + length])

    def _refused(self, error: OSError, more_bytes: int) -> Refused:
        from kseg.change.apply.room import out_of_room_writing  # needed only if the space is short

        room = out_of_room_writing(error, self._where, self.size_bytes + more_bytes)
        return Refused(f"cannot write {self._where}: {error.strerror}{room}")

    def _open(self, path: str) -> None:
        if path != self._source_path:
            self.release()
            # a link to an unnamed file, which `open_to_read` would not follow
            if path.startswith(_OPEN_FILES):
                self._source = os.dup(int(path.removeprefix(_OPEN_FILES)))
            else:
                self._source = DISK.open_to_read(path)
            self._source_path = path

    def release(self) -> None:
        """Close the file that was last copied from."""
        if self._source >= 0:
            DISK.close(self._source)
        self._source, self._source_path = -1, ""

    def _count(self, data: memoryview) -> None:
        self.crc = crc32c(data, self.crc)
        self.size_bytes += data.nbytes

    @property
    def path(self) -> str:
        """A path by which this process can reopen it."""
        return f"{_OPEN_FILES}{self._descriptor}"

    @property
    def view(self) -> memoryview:
        """The bytes written; valid once the file is complete."""
        if not self.size_bytes:
            return memoryview(b"")
        if self._map is None:
            self._map = mapped(self._descriptor)
        return memoryview(self._map)

    @property
    def piece(self) -> Made:
        """The whole content as a piece of a plan."""
        return Made(self._descriptor, self.size_bytes, self.crc)

    def close(self) -> None:
        """Discard the bytes, unless staging gave them a name."""
        self.release()
        self._map = None  # lives as long as views of it
        if self._descriptor >= 0:
            DISK.close(self._descriptor)
            self._descriptor = -1
        if self._name is not None:
            with suppress(OSError):
                remove_quietly(DISK, self._name)
            self._name = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def temporary_directory() -> str:
    """Where large temporary files go: $TMPDIR, else /var/tmp, since /tmp is often in memory."""
    import tempfile  # loads shutil and its archive modules

    is_chosen = tempfile.tempdir is not None or any(
        os.environ.get(name) for name in ("TMPDIR", "TEMP", "TMP")
    )
    if not is_chosen and os.access(_LARGE_FILES, os.W_OK | os.X_OK):
        return _LARGE_FILES
    return tempfile.gettempdir()


def _nameless(directory: str) -> int:
    try:
        return os.open(directory, os.O_TMPFILE | os.O_RDWR | os.O_CLOEXEC, 0o666)
    except OSError as error:
        if error.errno not in _NO_NAMELESS or not os.path.isdir(directory):
            raise
    import tempfile

    descriptor, path = tempfile.mkstemp(prefix=".kseg-", dir=directory)
    os.unlink(path)
    return descriptor
