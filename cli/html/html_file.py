"""The file of `--html`: it is replaced only when it is a report of kseg's, and as a whole or not at all.

Somebody who writes a report every night names the same file each time; somebody who mistypes a name must not lose what lies there.
So a file that begins as reports do is replaced, and any other is refused: before the work, which may take hours, and again after it.
"""

import os
import stat
from contextlib import suppress

from kseg.change.apply.disk import DISK, remove_quietly
from kseg.segment.errors import Refused, UnreadableInput
from kseg.segment.files import Probe
from kseg.segment.new_files import sync_directory, write_new_file

MARK = b"<!doctype html><!-- a report of kseg -->"


def check_place(path: str) -> None:
    """Raises Refused where a report cannot be written: something else is there, or no directory to write into."""
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
    """Put the report into its place. Raises Refused; what was there stays then."""
    check_place(path)
    folder, name = os.path.split(os.path.abspath(path))
    folder = os.path.realpath(folder)
    aside = os.path.join(folder, f".{name[:200]}.{os.urandom(4).hex()}.tmp")
    write_new_file(aside, data)
    try:
        DISK.rename(aside, os.path.join(folder, name))
        with suppress(
            Refused
        ):  # the report is there; what a crash would leave of its name is no reason to fail
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
