"""Sync files that other processes wrote: before a log dir is marked clean, all of it must be on disk."""

import os
import stat

from kseg.segment.errors import Refused, disk_words
from kseg.segment.new_files import sync_directory, sync_file
from kseg.segment.partition.names import Role, parse_file_name


def sync_files(directory: str) -> int:
    """Sync every regular file of a directory (not of its subdirectories) and its entries.

    Returns the number of files. The `.lock` of a data directory is skipped: closing it would release the lock. Raises Refused if
    a file cannot be synced: then the directory must not be marked clean.
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
        raise Refused(f"cannot sync {directory}: {error.strerror}{disk_words(error)}") from error
    for path in paths:
        sync_file(path)
    sync_directory(directory)
    return len(paths)
