"""Many repairs at a time in one process: while the disk confirms one, the next is planned.

Carrying out a plan is mostly waiting: every journal, staged file and directory is synced. So a group of targets is
planned one after the other, plans are carried out by threads behind that, and the events still come in order of the
targets. A file system that is asked to sync by many at once confirms them together.
"""

from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass

from kseg.recovery.repair.options import RecoverOptions
from kseg.recovery.repair.work import Prepared, carry_out, prepare
from kseg.segment.events import Event
from kseg.segment.fanout import guarded
from kseg.segment.targets import FileTarget, LogDirTarget, PartitionTarget, Target

RepairTarget = FileTarget | PartitionTarget

_WRITERS = 16
_MOST_IN_A_GROUP = 64


@dataclass(frozen=True, slots=True)
class TargetGroup:
    """Targets that one process works on, in order."""

    targets: tuple[RepairTarget, ...]

    @property
    def path(self) -> str:
        """Of the first."""
        return self.targets[0].path


def groups_of(targets: Sequence[Target], jobs: int) -> list[TargetGroup]:
    """Neighbours together, several groups for each of `jobs` processes as far as there are enough targets."""
    logs = [target for target in targets if not isinstance(target, LogDirTarget)]
    size = max(1, min(_MOST_IN_A_GROUP, len(logs) // (4 * jobs)))
    return [TargetGroup(tuple(logs[at : at + size])) for at in range(0, len(logs), size)]


def recover_group(group: TargetGroup, options: RecoverOptions) -> Iterator[Event]:
    """`recover` for each target of the group; what one raises becomes its Failure and stops no other."""
    with ThreadPoolExecutor(_WRITERS) as writers:
        waiting: deque[tuple[list[Event], Future[list[Event]]]] = deque()
        for target in group.targets:
            half = _Half()
            planned = list(guarded(half.plan, target, options))
            waiting.append((planned, writers.submit(_written, half, target, options)))
            while waiting and (len(waiting) > _WRITERS or waiting[0][1].done()):
                yield from _events(waiting.popleft())
        while waiting:
            yield from _events(waiting.popleft())


class _Half:
    """The two halves of a target's work, each as a work of its own."""

    def __init__(self) -> None:
        self._prepared: Prepared | None = None

    def plan(self, target: RepairTarget, options: RecoverOptions) -> Iterator[Event]:
        self._prepared = yield from prepare(target, options)

    def write(self, _target: RepairTarget, options: RecoverOptions) -> Iterator[Event]:
        yield from carry_out(self._prepared, options)


def _written(half: _Half, target: RepairTarget, options: RecoverOptions) -> list[Event]:
    return list(guarded(half.write, target, options))


def _events(work: tuple[list[Event], Future[list[Event]]]) -> Iterator[Event]:
    planned, written = work
    yield from planned
    yield from written.result()
