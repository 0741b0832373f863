"""Files that somebody else wrote, brought to the disk: before a directory is called clean, all of it must be there."""

import os
import stat

from kseg.segment.errors import Refused
from kseg.segment.partition.names import Role, parse_file_name


def sync_files(directory: str) -> int:
    """Return when every regular file of a directory (not of those below it) and all its names are on the disk.

    Gives the number of files. The `.lock` of a data directory is left alone: whoever closes it loses the lock.
    Raises Refused when a file cannot be synced: then nothing may be said about the directory.
    """
    synced = 0
    try:
        with os.scandir(directory) as entries:
            for entry in entries:
                if not stat.S_ISREG(entry.stat(follow_symlinks=False).st_mode):
                    continue
                if parse_file_name(entry.name).role is not Role.LOCK:
                    _sync(entry.path, os.O_NOFOLLOW)
                    synced += 1
        _sync(directory, os.O_DIRECTORY)
    except OSError as error:
        raise Refused(f"cannot sync {error.filename or directory}: {error.strerror}") from error
    return synced


def _sync(path: str, flag: int) -> None:
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | flag)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
