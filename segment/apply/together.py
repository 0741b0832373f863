"""Many changes at a time in one process: while the disk confirms one, the next is planned.

Carrying out a plan is mostly waiting: every journal, staged file and directory is synced. So a group of targets is
planned one after the other, plans are carried out by threads behind that, and the events still come in order of the
targets. A file system that is asked to sync by many at once confirms them together.
"""

from collections import deque
from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Generic, TypeVar

from kseg.segment.events import Event
from kseg.segment.fanout import guarded
from kseg.segment.targets import FileTarget, LogDirTarget, PartitionTarget, Target

if TYPE_CHECKING:
    from concurrent.futures import Future

LogTarget = FileTarget | PartitionTarget

_WRITERS = 16
_MOST_IN_A_GROUP = 64

O = TypeVar("O")
P = TypeVar("P")

Plan = Callable[[LogTarget, O], Generator[Event, None, P | None]]
Write = Callable[[P | None, O], Iterator[Event]]


@dataclass(frozen=True, slots=True)
class TargetGroup:
    """Targets that one process works on, in order."""

    targets: tuple[LogTarget, ...]

    @property
    def path(self) -> str:
        """Of the first."""
        return self.targets[0].path


def groups_of(targets: Sequence[Target], jobs: int) -> list[TargetGroup]:
    """Neighbours together, several groups for each of `jobs` processes as far as there are enough targets."""
    logs = [target for target in targets if not isinstance(target, LogDirTarget)]
    size = max(1, min(_MOST_IN_A_GROUP, len(logs) // (4 * jobs)))
    return [TargetGroup(tuple(logs[at : at + size])) for at in range(0, len(logs), size)]


def work_together(
    group: TargetGroup, options: O, plan: "Plan[O, P]", write: "Write[P, O]", *, is_writing: bool = True
) -> Iterator[Event]:
    """The work on each target of the group; what one raises becomes its Failure and stops no other.

    plan: the first half of the work, which changes nothing; returns what the second half goes by. write: the second
    half, called in a thread when there is something to wait for. is_writing: whether the second half writes.
    """
    if is_writing and len(group.targets) > 1:
        yield from _overlapped(group, options, plan, write)
        return
    for target in group.targets:
        halves = _Halves(plan, write)
        yield from guarded(halves.plan, target, options)
        yield from guarded(halves.write, target, options)


def _overlapped(group: TargetGroup, options: O, plan: "Plan[O, P]", write: "Write[P, O]") -> Iterator[Event]:
    from concurrent.futures import ThreadPoolExecutor

    with ThreadPoolExecutor(_WRITERS) as writers:
        waiting: deque[tuple[list[Event], Future[list[Event]]]] = deque()
        for target in group.targets:
            halves = _Halves(plan, write)
            planned = list(guarded(halves.plan, target, options))
            waiting.append((planned, writers.submit(_written, halves, target, options)))
            while waiting and (len(waiting) > _WRITERS or waiting[0][1].done()):
                yield from _events(waiting.popleft())
        while waiting:
            yield from _events(waiting.popleft())


class _Halves(Generic[O, P]):
    """The two halves of a target's work, each as a work of its own."""

    def __init__(self, plan: "Plan[O, P]", write: "Write[P, O]") -> None:
        self._plan = plan
        self._write = write
        self._prepared: P | None = None

    def plan(self, target: LogTarget, options: O) -> Iterator[Event]:
        self._prepared = yield from self._plan(target, options)

    def write(self, _target: LogTarget, options: O) -> Iterator[Event]:
        yield from self._write(self._prepared, options)


def _written(halves: _Halves[O, P], target: LogTarget, options: O) -> list[Event]:
    return list(guarded(halves.write, target, options))


def _events(work: tuple[list[Event], "Future[list[Event]]"]) -> Iterator[Event]:
    planned, written = work
    yield from planned
    yield from written.result()
