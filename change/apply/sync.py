"""Sync files that others wrote: before a log dir is marked clean, all of it must be on disk."""

import os
import stat

from kseg.segment.errors import Refused
from kseg.segment.new_files import sync_directory, sync_file
from kseg.segment.partition.names import Role, parse_file_name


def sync_files(directory: str) -> int:
    """Return when every regular file of a directory (not of those below it) and all its names are on the disk.

    Gives the number of files. The `.lock` of a data directory is left alone: whoever closes it loses the lock.
    Raises Refused when a file cannot be synced: then nothing may be said about the directory.
    """
    try:
        with os.scandir(directory) as entries:
            paths = [
                entry.path
                for entry in entries
                if stat.S_ISREG(entry.stat(follow_symlinks=False).st_mode)
                and parse_file_name(entry.name).role is not Role.LOCK
            ]
    except OSError as error:
        raise Refused(f"cannot sync {directory}: {error.strerror}") from error
    for path in paths:
        sync_file(path)
    sync_directory(directory)
    return len(paths)
