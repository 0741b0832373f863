"""Write a directory of new files aside and rename it into place, so that no partial file ever has its final name.

    a new directory          is created next to its place, under a hidden name, and renamed into it: all of it or nothing
    replacing one            the same; the old one is renamed first and removed last. After a kill between the two renames
                             both are there complete, and the next run puts the old one back
    adding to one            the new files are created in a hidden directory inside of it and moved out of there, one by
                             one; renaming that directory records that all have arrived. After a kill before that, some have,
                             each of them complete, and the next run takes these back

Names that begin with `.` or `_` are hidden: readers of such directories (Spark, Arrow, Hive) skip them. `_SUCCESS`, empty, is
written last, as Spark does it. The next run removes what a killed run left.
"""

import errno
import os
import re
import stat
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from enum import StrEnum

from kseg.change.apply.disk import DISK, Disk
from kseg.change.apply.file_operations import make_directories, remove_if_empty, remove_quietly
from kseg.change.apply.lock import claimed, is_claimed
from kseg.segment.errors import Refused
from kseg.segment.values import dataclass

SUCCESS = "_SUCCESS"
_INSIDE = "_kseg-"
_OLD = ".old"
_DONE = ".done"
_RUN_ID = re.compile(r"[0-9a-f]{8}")
_TABLE_LOGS = {"_delta_log": "a Delta table", "metadata": "an Iceberg table"}


class Mode(StrEnum):
    """What to do if the output exists; the values are Spark's."""

    ERROR_IF_EXISTS = "errorifexists"
    APPEND = "append"
    OVERWRITE = "overwrite"
    IGNORE = "ignore"


@dataclass(slots=True)
class OutputFolder:
    """path: where files are created, by their relative names. mode: as requested. adds: whether they join existing files at the
    target. is_published: whether they have been moved there."""

    target: str
    path: str
    mode: Mode
    adds: bool
    disk: Disk
    is_published: bool = False

    def publish(self, names: Sequence[str], is_complete: bool) -> None:
        """Move the files `names` (relative, each of them synced) into place; others that were created are removed.

        is_complete: write the marker. Raises Refused when the file system refuses.
        """
        disk = self.disk
        try:
            if self.adds:
                self._move_out(names, is_complete)
            else:
                kept = set(names)
                for name in _files_below(disk, self.path):
                    if name not in kept:
                        self._drop(name)
                if is_complete:
                    disk.close(disk.create(os.path.join(self.path, SUCCESS)))
                _sync_tree(disk, self.path)
                self._move_into_place()
        except OSError as error:
            path = self.target if error.filename is None else error.filename
            raise Refused(f"cannot write {path}: {error.strerror}; nothing was exported") from error
        self.is_published = True
        with suppress(OSError):  # if it fails, the next run tries again
            _remove_tree(disk, f"{self.path}{_DONE}" if self.adds else self._old_folder)

    @property
    def _old_folder(self) -> str:
        """The name that a replaced directory gets."""
        return f"{self.path}{_OLD}"

    def _drop(self, name: str) -> None:
        self.disk.unlink(os.path.join(self.path, name))
        while name := os.path.dirname(name):
            remove_if_empty(self.disk, os.path.join(self.path, name))

    def _move_into_place(self) -> None:
        disk = self.disk
        replaces = is_taken(self.target, disk)
        if replaces:
            if self.mode is not Mode.OVERWRITE:
                raise Refused(f"{self.target} was created in the meantime; nothing was exported")
            check(self.target, self.mode, disk)
            disk.rename(self.target, self._old_folder)
        is_there = False
        try:
            disk.rename(self.path, self.target)
            is_there = True
            disk.sync_directory(os.path.dirname(self.target))
        except OSError:
            if is_there:
                disk.rename(self.target, self.path)
            if replaces:
                disk.rename(self._old_folder, self.target)
            raise

    def _move_out(self, names: Sequence[str], is_complete: bool) -> None:
        disk, touched = self.disk, {self.target}
        moved: list[str] = []
        try:
            for name in names:
                goal = os.path.join(self.target, name)
                if disk.status(goal) is not None:
                    raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), goal)
                make_directories(os.path.dirname(goal), disk)
                disk.rename(os.path.join(self.path, name), goal)
                moved.append(goal)
                touched.add(os.path.dirname(goal))
            for directory in sorted(touched):
                disk.sync_directory(directory)
            marker = os.path.join(self.target, SUCCESS)
            if is_complete and disk.status(marker) is None:
                disk.close(disk.create(marker))
            elif not is_complete:
                remove_quietly(disk, marker)  # old and new files together are not complete
            disk.rename(self.path, f"{self.path}{_DONE}")
            disk.sync_directory(self.target)
        except OSError:
            for goal in moved:
                remove_quietly(disk, goal)
            raise


def is_taken(target: str, disk: Disk = DISK) -> bool:
    """Whether `target` exists and a new directory cannot simply replace it."""
    status = disk.status(os.path.realpath(target))
    return status is not None and (not stat.S_ISDIR(status.st_mode) or bool(disk.names(target)))


def visible_files(target: str, disk: Disk = DISK) -> Iterator[str]:
    """Relative names of the files in a directory that readers see, which are those not hidden."""
    for name in _files_below(disk, target):
        if not any(step.startswith((".", "_")) for step in name.split(os.sep)):
            yield name


@contextmanager
def new_folder(target: str, mode: Mode, run_id: str, disk: Disk = DISK) -> Iterator[OutputFolder]:
    """A place to create files that are to be published in `target` later; those not published by the end are removed.

    Raises Refused when `target` exists and `mode` does not say what to do then, or when its content was not written by an export.
    """
    target = os.path.realpath(target)
    try:
        _put_back(target, disk)
        check(target, mode, disk)
        has_old = is_taken(target, disk)
        parent = target if mode is Mode.APPEND and has_old else os.path.dirname(target)
        make_directories(parent, disk)
        _clear_leftovers(target, disk)
        name = f"{_INSIDE}{run_id}" if parent == target else f"{_beside(target)}{run_id}"
        path = os.path.join(parent, name)
        disk.make_directory(path)
    except OSError as error:
        path = target if error.filename is None else error.filename
        raise Refused(f"cannot write {path}: {error.strerror}") from error
    folder = OutputFolder(target, path, mode, parent == target, disk)
    try:
        with claimed(path):
            yield folder
    finally:
        if not folder.is_published:
            with suppress(OSError):
                _remove_tree(disk, path)


# --- the existing output


def check(target: str, mode: Mode, disk: Disk = DISK) -> None:
    """Raises Refused when `mode` does not allow writing to what exists at `target`."""
    target = os.path.realpath(target)
    status = disk.status(target)
    if status is None:
        return
    if not stat.S_ISDIR(status.st_mode):
        raise Refused(f"{target} already exists and is not a directory")
    names = disk.names(target)
    if not names:
        return
    if mode not in (Mode.APPEND, Mode.OVERWRITE):
        raise Refused(
            f"{target} already exists and is not empty (--mode append adds, --mode overwrite replaces)"
        )
    for name, what in _TABLE_LOGS.items():
        if name in names:
            raise Refused(f"{target} is {what}: its files are changed through its own log only (--to)")
    foreign_file = _first_foreign_file(disk, target) if mode is Mode.OVERWRITE else None
    if foreign_file is not None:
        raise Refused(f"{target} cannot be overwritten: no export wrote {foreign_file} in it")


def _first_foreign_file(disk: Disk, target: str) -> str | None:
    """A file that is neither hidden nor named like a part of an export."""
    for name in visible_files(target, disk):
        head, base = os.path.split(name)
        steps = [step for step in head.split(os.sep) if step]
        if not base.startswith("part-") or not all("=" in step for step in steps):
            return name
    return None


def _beside(target: str) -> str:
    return f".{os.path.basename(target)}.kseg-"


def _put_back(target: str, disk: Disk) -> None:
    """Restore the old directory after a run that was killed between its two renames."""
    if disk.status(target) is not None:
        return
    parent = os.path.dirname(target)
    for name in disk.names(parent):
        if name.startswith(_beside(target)) and name.endswith(_OLD) and not _is_running(parent, name):
            disk.rename(os.path.join(parent, name), target)
            disk.sync_directory(parent)
            return


def _clear_leftovers(target: str, disk: Disk) -> None:
    for parent, prefix in ((os.path.dirname(target), _beside(target)), (target, _INSIDE)):
        for name in disk.names(parent):
            path = os.path.join(parent, name)
            if name.startswith(prefix) and not _is_running(parent, name):
                with suppress(Refused, OSError), claimed(path):
                    if parent == target:
                        _take_back(target, name.removeprefix(prefix), disk)
                    _remove_tree(disk, path)


def _take_back(target: str, run_id: str, disk: Disk) -> None:
    """Remove what a killed run had already moved out, unless that run had completed (`_DONE` after its id). Otherwise the
    repeated run would add the same rows twice."""
    if _RUN_ID.fullmatch(run_id):
        for name in list(visible_files(target, disk)):
            base = os.path.basename(name)
            if base.startswith("part-") and re.search(f"-{run_id}\\b", base):
                disk.unlink(os.path.join(target, name))


def _is_running(parent: str, name: str) -> bool:
    """Whether the run to which this directory name belongs (its new directory or the one that it replaces) is still alive."""
    return is_claimed(os.path.join(parent, name.removesuffix(_OLD)))


# --- trees


def _files_below(disk: Disk, directory: str, head: str = "") -> Iterator[str]:
    """Relative names of everything below that is not a directory."""
    for name in disk.names(os.path.join(directory, head)):
        relative = os.path.join(head, name)
        if _is_directory(disk, os.path.join(directory, relative)):
            yield from _files_below(disk, directory, relative)
        else:
            yield relative


def _is_directory(disk: Disk, path: str) -> bool:
    status = disk.status(path)
    return status is not None and stat.S_ISDIR(status.st_mode)


def _sync_tree(disk: Disk, directory: str) -> None:
    for name in disk.names(directory):
        path = os.path.join(directory, name)
        if _is_directory(disk, path):
            _sync_tree(disk, path)
    disk.sync_directory(directory)


def _remove_tree(disk: Disk, directory: str) -> None:
    for name in disk.names(directory):
        path = os.path.join(directory, name)
        if _is_directory(disk, path):
            _remove_tree(disk, path)
        else:
            remove_quietly(disk, path)
    with suppress(FileNotFoundError):
        disk.remove_directory(directory)
