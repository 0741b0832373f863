"""The files of a directory as a planner found them: what an executor compares before it touches anything."""

import os
import stat

from kseg.segment.errors import UnreadableInput
from kseg.segment.plan.steps import FileIdentity


def inputs_of(directory: str) -> tuple[FileIdentity, ...]:
    """All regular files of a directory (not of those below it), by name. To be asked before the files are read, so
    that whatever changes while they are read is noticed. Raises UnreadableInput when it cannot be listed."""
    found = []
    try:
        with os.scandir(directory) as entries:
            for entry in entries:
                status = entry.stat(follow_symlinks=False)
                if stat.S_ISREG(status.st_mode):
                    found.append(identity(entry.name, status))
    except OSError as error:
        raise UnreadableInput(f"cannot read {directory}: {error.strerror}") from error
    return tuple(sorted(found, key=lambda file: file.name))


def identity(name: str, status: os.stat_result) -> FileIdentity:
    """What a file is known by, from its status."""
    return FileIdentity(name, status.st_size, status.st_mtime_ns, status.st_ino)
