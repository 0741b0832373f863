"""A temporary directory in which other processes create named files for a plan (`scratch_file.ScratchFile`).

It is in .kseg, which brokers ignore, under a name that no journal has. Its owner holds a lock on it (`lock.claimed`); the directory of a
killed process is not locked, and the next process removes it.
"""

import os
from contextlib import ExitStack, suppress

from kseg.change.apply.disk import DISK, Disk
from kseg.change.apply.file_operations import give_owner, remove_if_empty, remove_with_files
from kseg.change.apply.lock import claimed
from kseg.segment.errors import Refused
from kseg.segment.partition.names import KSEG_DIRECTORY

_PREFIX = ".work-"


class ExchangeDir:
    """A temporary directory on the file system of `directory`, created on first use and removed by `close`.

    id: a unique one (`journal.new_run_id`).
    """

    def __init__(self, directory: str, id: str, disk: Disk = DISK) -> None:
        self._directory = directory
        self._around = os.path.join(directory, KSEG_DIRECTORY)
        self._path = os.path.join(self._around, f"{_PREFIX}{id}")
        self._disk = disk
        self._claim = ExitStack()
        self._is_made = False

    @property
    def path(self) -> str:
        """The path of the existing directory. Raises Refused."""
        if not self._is_made:
            self._make()
        return self._path

    def _make(self) -> None:
        disk = self._disk
        try:
            like = disk.status(self._directory)
            with suppress(FileExistsError):
                disk.make_directory(self._around)
                if like is not None:
                    give_owner(disk, self._around, like)
            self._sweep()
            disk.make_directory(self._path)
            self._is_made = True
        except OSError as error:
            raise Refused(f"cannot write {self._directory}: {error.strerror}") from error
        self._claim.enter_context(claimed(self._path))

    def _sweep(self) -> None:
        """Remove exchange directories that no running process holds."""
        for name in self._disk.names(self._around):
            if name.startswith(_PREFIX):
                path = os.path.join(self._around, name)
                with suppress(Refused), claimed(path):
                    remove_with_files(self._disk, path)

    def close(self) -> None:
        """Remove the directory with its contents."""
        self._claim.close()
        if self._is_made:
            with suppress(OSError):
                remove_with_files(self._disk, self._path)
                remove_if_empty(self._disk, self._around)
            self._is_made = False
