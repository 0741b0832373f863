"""How the targets of a run are distributed over its processes.

Each target is processed by one process, which keeps all of them busy while many targets of similar size remain. A log that is larger
than the share of a process would keep one process busy after the others have finished, so all processes share it.
"""

import os
from collections.abc import Sequence
from contextlib import suppress
from typing import NamedTuple

from kseg.segment.layout import LOG_SUFFIX
from kseg.segment.partition.targets import FileTarget, PartitionTarget, Target
from kseg.segment.storage import places

# a smaller log is done before the other processes have started
_LEAST_SHARED_BYTES = 64 * 1024 * 1024


class TargetRun(NamedTuple):
    """Consecutive targets. is_shared: a single target that all processes share."""

    targets: Sequence[Target]
    is_shared: bool


def target_runs(targets: Sequence[Target], jobs: int) -> list[TargetRun]:
    """Divide the targets of a command, in order, for `jobs` processes."""
    if len(targets) == 1 or jobs <= 1:
        return [TargetRun(targets, is_shared=len(targets) == 1)]
    sizes = [_log_bytes(target) for target in targets]
    shared_from_bytes = max(_LEAST_SHARED_BYTES, sum(sizes) // (2 * jobs))
    runs, first = [], 0
    for at, size_bytes in enumerate(sizes):
        if size_bytes >= shared_from_bytes:
            runs += [TargetRun(targets[first:at], False), TargetRun(targets[at : at + 1], True)]
            first = at + 1
    runs.append(TargetRun(targets[first:], False))
    return [each for each in runs if each.targets]


def _log_bytes(target: Target) -> int:
    """The size of the logs of a target; 0 if it is unknown, or would take a request to an object store."""
    if places.is_elsewhere(target.path):
        return 0
    with suppress(OSError):
        if isinstance(target, PartitionTarget):
            with os.scandir(target.path) as entries:
                return sum(entry.stat().st_size for entry in entries if entry.name.endswith(LOG_SUFFIX))
        if isinstance(target, FileTarget):
            return os.stat(target.path).st_size
    return 0
