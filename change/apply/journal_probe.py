"""Check for journals next to the targets of a command with one system call each, without importing anything else.

Almost always there are none, so this is all that the check costs.
"""

import os
from collections.abc import Iterator, Sequence

from kseg.segment.errors import KsegError
from kseg.segment.findings import Finding
from kseg.segment.partition.names import KSEG_DIRECTORY
from kseg.segment.partition.targets import LogDirTarget, PartitionTarget, Target

_PREFIX = "kseg-journal-"


def half_done_around(targets: Sequence[Target]) -> Iterator[Finding]:
    """A finding for each incomplete change of the directories of targets, and of their data directories."""
    for directory in _directories(targets):
        from kseg.change.apply.unfinished import half_done_findings

        try:
            yield from half_done_findings(directory)
        except KsegError as error:
            yield Finding("unreadable-file", directory, str(error))


def _directories(targets: Sequence[Target]) -> Iterator[str]:
    """The directories with files of kseg in them."""
    partitions: dict[str, None] = {}
    log_dirs: dict[str, None] = {}
    for target in targets:
        match target:
            case PartitionTarget():
                partitions[target.path] = None
                if target.log_dir is not None:
                    log_dirs[target.log_dir] = None
            case LogDirTarget():
                log_dirs[target.path] = None
            case _:
                partitions[os.path.dirname(target.path) or os.curdir] = None
    yield from (path for path in log_dirs if has_journal(path))
    yield from (path for path in partitions if is_known_to_kseg(path))


def is_known_to_kseg(partition_path: str) -> bool:
    """Whether a partition directory has a .kseg, or a pointer to a journal elsewhere: without either it has no journal."""
    return has_journal(partition_path, KSEG_DIRECTORY)


def has_journal(directory: str, *others: str) -> bool:
    """Whether a data directory has a journal, of a complete change or not, or an entry with one of these names."""
    try:
        names = os.listdir(directory)
    except OSError:  # reading it reports the reason
        return any(os.path.lexists(os.path.join(directory, name)) for name in others)
    return is_among(names, *others)


def may_have_journal(log_dir: str) -> bool:
    """Like `has_journal`, for callers that read the journals next: also true if that cannot be determined, which reading them then
    reports."""
    try:
        return is_among(os.listdir(log_dir))
    except OSError:
        return True


def is_among(names: Sequence[str], *others: str) -> bool:
    """Like `has_journal`, for a directory that has been listed. names: of everything in it."""
    is_journal = f"{os.sep}{_PREFIX}" in os.sep + os.sep.join(names)  # names contain no separator
    return is_journal or any(name in names for name in others)
