"""Distribute the targets of a run over its processes.

Normally one process handles one target, which keeps all processes busy as long as there are many targets of similar size. A log that
is larger than the share of one process would still occupy it after the others have finished, so all processes work on it together.
"""

from collections.abc import Sequence
from contextlib import suppress
from enum import Enum, auto
from typing import NamedTuple

from kseg.segment.layout import LOG_SUFFIX
from kseg.segment.partition.targets import FileTarget, PartitionTarget, Target
from kseg.segment.storage import places

# one process finishes a smaller log before the others have started
_LEAST_SHARED_BYTES = 64 * 1024 * 1024
_LEAST_SPLIT_BYTES = 8 * 1024 * 1024  # the smallest log that `jobs.log_parts` divides
# if no more than this remains besides the shared logs, starting processes for it takes longer than the work
_FEW_TARGETS = 32
_FEW_BYTES = 4 * 1024 * 1024


class Sharing(Enum):
    """Which logs all processes of a command share."""

    NONE = auto()
    LARGE = auto()  # those that would keep one process busy after the others have finished
    ALL = auto()  # every log that can be split: for bulky output, sharing a log costs less than passing on another process's output


class TargetRun(NamedTuple):
    """Consecutive targets. is_shared: all processes work on the single target; otherwise one process handles each target."""

    targets: Sequence[Target]
    is_shared: bool = False


def target_runs(targets: Sequence[Target], jobs: int, sharing: Sharing) -> tuple[list[TargetRun], int]:
    """Divide the targets of a command into runs, in order, for `jobs` processes. Returns them, and the number of processes for the
    targets that are not shared."""
    if sharing is Sharing.NONE or jobs <= 1:
        return [TargetRun(targets)], jobs
    if len(targets) == 1:
        return [TargetRun(targets, is_shared=True)], 1
    sizes = [_log_bytes(target) for target in targets]
    shared_from_bytes = max(_LEAST_SHARED_BYTES, sum(sizes) // (2 * jobs))
    if sharing is Sharing.ALL:
        shared_from_bytes = _LEAST_SPLIT_BYTES
    runs, first = list[TargetRun](), 0
    for at in [at for at, size_bytes in enumerate(sizes) if size_bytes >= shared_from_bytes]:
        runs += (TargetRun(targets[first:at]), TargetRun(targets[at : at + 1], is_shared=True))
        first = at + 1
    runs.append(TargetRun(targets[first:]))
    return [each for each in runs if each.targets], _jobs_for_rest(sizes, jobs, shared_from_bytes, sharing)


def _jobs_for_rest(sizes: Sequence[int], jobs: int, shared_from_bytes: int, sharing: Sharing) -> int:
    rest = [size_bytes for size_bytes in sizes if size_bytes < shared_from_bytes]
    is_little = len(rest) <= _FEW_TARGETS and sum(rest) <= _FEW_BYTES
    # only for LARGE: with ALL (dump) a small index still causes the work of reading its log
    return 1 if is_little and len(rest) < len(sizes) and sharing is Sharing.LARGE else jobs


def _log_bytes(target: Target) -> int:
    """The size of the logs of a target; 0 if it is unknown, or if learning it would take a request to an object store."""
    if places.is_elsewhere(target.path):
        return 0
    with suppress(OSError):
        if isinstance(target, PartitionTarget):
            with places.scandir(target.path) as entries:
                return sum(entry.stat().st_size for entry in entries if entry.name.endswith(LOG_SUFFIX))
        if isinstance(target, FileTarget):
            return places.stat(target.path).st_size
    return 0
