"""Write the file of `--html`: atomically, and never over a file that is not a report of kseg.

A nightly job uses the same file name every time, but a mistyped name must not destroy a file. So a file that begins like a report is
replaced, and any other is refused: before the work, which may take hours, and again after it.
"""

import os
import stat
from contextlib import suppress

from kseg.change.apply.disk import DISK
from kseg.change.apply.file_operations import remove_quietly
from kseg.segment.errors import Refused, UnreadableInput
from kseg.segment.new_files import sync_directory, write_new_file
from kseg.segment.probe import Probe

MARK = b"<!doctype html><!-- a report of kseg -->"


def check_place(path: str) -> None:
    """Raises Refused if a report cannot be written there: another file is in the way, or the directory is missing."""
    folder = os.path.dirname(os.path.abspath(path))
    if not os.path.isdir(folder):
        raise Refused(f"cannot write {path}: {folder} is not a directory")
    try:
        status = os.lstat(path)
    except FileNotFoundError:
        if not os.access(folder, os.W_OK | os.X_OK):
            raise Refused(f"cannot write {path}: no permission to write into {folder}") from None
        return
    except OSError as error:
        raise Refused(f"cannot write {path}: {error.strerror}") from error
    if not stat.S_ISREG(status.st_mode) or not _is_report(path):
        raise Refused(f"{path} exists and is not a report of kseg; name another file")


def write_report(path: str, data: bytes) -> None:
    """Write the report and move it into place. Raises Refused, and leaves an existing file as it is."""
    check_place(path)
    folder, name = os.path.split(os.path.abspath(path))
    folder = os.path.realpath(folder)
    aside = os.path.join(folder, f".{name[:200]}.{os.urandom(4).hex()}.tmp")
    write_new_file(aside, data)
    try:
        DISK.rename(aside, os.path.join(folder, name))
        # the report is in place; if its directory cannot be synced, only a crash right now would lose it
        with suppress(Refused):
            sync_directory(folder)
    except OSError as error:
        remove_quietly(DISK, aside)
        raise Refused(f"cannot write {path}: {error.strerror}") from error


def _is_report(path: str) -> bool:
    try:
        with Probe(path) as file:
            return file.read(0, len(MARK)) == MARK
    except UnreadableInput:
        return False
