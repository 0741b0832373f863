"""How the targets of a run are distributed over its processes.

Each target is processed by one process, which keeps all of them busy while many targets of similar size remain. A log that is larger
than the share of a process would keep one process busy after the others have finished, so all processes share it.
"""

import os
from collections.abc import Sequence
from contextlib import suppress
from enum import Enum, auto
from typing import NamedTuple

from kseg.segment.layout import LOG_SUFFIX
from kseg.segment.partition.targets import FileTarget, PartitionTarget, Target
from kseg.segment.storage import places

# a smaller log is done before the other processes have started
_LEAST_SHARED_BYTES = 64 * 1024 * 1024
_LEAST_PAYING_BYTES = 8 * 1024 * 1024  # what `jobs.log_parts` divides
# with less besides the shared logs, this process is done sooner than several would be
_FEW_TARGETS = 32
_FEW_BYTES = 4 * 1024 * 1024


class Sharing(Enum):
    """Which logs all processes of a command share."""

    NONE = auto()
    LARGE = auto()  # those that one process would still be busy with when the others have finished
    ALL = auto()  # every log that pays: sharing it costs less than passing on the output of another process


class TargetRun(NamedTuple):
    """Consecutive targets. is_shared: a single target that all processes share; otherwise each target is processed by one of them."""

    targets: Sequence[Target]
    is_shared: bool = False


def target_runs(targets: Sequence[Target], jobs: int, sharing: Sharing) -> tuple[list[TargetRun], int]:
    """Divide the targets of a command, in order, for `jobs` processes. Returns the runs, and how many processes work on the targets that
    are not shared."""
    if sharing is Sharing.NONE or jobs <= 1:
        return [TargetRun(targets)], jobs
    if len(targets) == 1:
        return [TargetRun(targets, is_shared=True)], 1
    sizes = [_log_bytes(target) for target in targets]
    shared_from_bytes = max(_LEAST_SHARED_BYTES, sum(sizes) // (2 * jobs))
    if sharing is Sharing.ALL:
        shared_from_bytes = _LEAST_PAYING_BYTES
    runs, first = list[TargetRun](), 0
    for at in [at for at, size_bytes in enumerate(sizes) if size_bytes >= shared_from_bytes]:
        runs += (TargetRun(targets[first:at]), TargetRun(targets[at : at + 1], is_shared=True))
        first = at + 1
    runs.append(TargetRun(targets[first:]))
    return [each for each in runs if each.targets], _jobs_for_rest(sizes, jobs, shared_from_bytes, sharing)


def _jobs_for_rest(sizes: Sequence[int], jobs: int, shared_from_bytes: int, sharing: Sharing) -> int:
    rest = [size_bytes for size_bytes in sizes if size_bytes < shared_from_bytes]
    is_little = len(rest) <= _FEW_TARGETS and sum(rest) <= _FEW_BYTES
    # a dump of an index reads the log, so its own size says little
    return 1 if is_little and len(rest) < len(sizes) and sharing is Sharing.LARGE else jobs


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
