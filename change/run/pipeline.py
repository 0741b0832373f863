"""Plan and apply many changes at a time in one process: while the disk syncs one, the next is planned.

Applying a plan is mostly waiting: every journal, staged file and directory is synced. So the targets of a group are planned one after
another while threads apply the plans, and events keep the order of the targets. A file system commits the syncs of several threads
together.
"""

from collections import deque
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Generic, TypeVar

from kseg.change.run.options import ChangeOptions
from kseg.change.run.prepared import Prepared
from kseg.change.run.rereading import repeated
from kseg.change.run.results import ChangeResult
from kseg.jobs.events import Event
from kseg.jobs.guarded import guarded
from kseg.segment.partition.targets import LogDirTarget, LogTarget, Target, directory_of
from kseg.segment.values import dataclass

if TYPE_CHECKING:
    from concurrent.futures import Future

    from kseg.change.run.options import SharedRun


_WRITERS = 16
_MOST_IN_A_GROUP = 64

O = TypeVar("O", bound=ChangeOptions)
R = TypeVar("R", bound=ChangeResult)

_Waiting = tuple[list[Event], "Future[list[Event]]"]  # the events of planning, and those of writing
Plan = Callable[[LogTarget, O], Generator[Event, None, Prepared[R] | None]]
Write = Callable[[Prepared[R] | None, O], Iterator[Event]]


@dataclass(frozen=True, slots=True)
class TargetGroup:
    """Targets that one process works on, in order."""

    targets: tuple[LogTarget, ...]

    @property
    def path(self) -> str:
        """The path of the first target."""
        return self.targets[0].path


def groups_of(targets: Sequence[Target], jobs: int) -> list[TargetGroup]:
    """Adjacent targets in groups: several groups for each of `jobs` processes if there are enough targets."""
    logs = [target for target in targets if not isinstance(target, LogDirTarget)]
    size = max(1, min(_MOST_IN_A_GROUP, len(logs) // (4 * jobs)))
    return [TargetGroup(tuple(logs[at : at + size])) for at in range(0, len(logs), size)]


def work_together(
    group: TargetGroup, options: O, plan: "Plan[O, R]", write: "Write[R, O]", kind: type[R]
) -> Iterator[Event]:
    """Work on each target of the group; an exception becomes the Failure of its target and does not stop the others.

    plan: the first half of the work, which changes nothing; returns what the second half needs. write: the second
    half, called in a thread when it has to wait for the disk. kind: of the results.
    """
    if len(group.targets) > 1 and (options.apply or options.output is not None):
        yield from _overlapped(group, options, plan, write, kind)
        return
    for target in group.targets:
        halves = _halves(plan, write, kind, options)
        try:
            once = partial(_both, halves, target, options)
            is_plan = not options.apply and options.output is None
            yield from repeated(once, target) if is_plan else once()
        finally:
            halves.release()


def _overlapped(
    group: TargetGroup, options: O, plan: "Plan[O, R]", write: "Write[R, O]", kind: type[R]
) -> Iterator[Event]:
    from kseg.jobs.threads import WorkerThreads

    with WorkerThreads(_WRITERS) as writers:
        waiting: deque[_Waiting] = deque()
        try:
            for target in group.targets:
                halves = _halves(plan, write, kind, options)
                planned = list(guarded(halves.plan, target, options))
                waiting.append((planned, writers.submit(_written, halves, target, options)))
                while waiting and (len(waiting) > _WRITERS or waiting[0][1].done()):
                    yield from _next_events(waiting)
            while waiting:
                yield from _next_events(waiting)
        except KeyboardInterrupt:  # no further change begins; those begun are reported
            begun = deque(each for each in waiting if not each[1].cancel())
            while begun:
                yield from _next_events(begun)
            raise


def _both(halves: "_Halves[O, R]", target: LogTarget, options: O) -> Iterator[Event]:
    yield from guarded(halves.plan, target, options)
    yield from guarded(halves.write, target, options)


class _Halves(Generic[O, R]):
    """The two halves of a target's work, each as `Work`."""

    def __init__(self, plan: "Plan[O, R]", write: "Write[R, O]") -> None:
        self._plan = plan
        self._write = write
        self._prepared: Prepared[R] | None = None

    def plan(self, target: LogTarget, options: O) -> Iterator[Event]:
        self._prepared = None
        self._prepared = yield from self._plan(target, options)

    def write(self, _target: LogTarget, options: O) -> Iterator[Event]:
        yield from self._write(self._prepared, options)

    def release(self) -> None:
        """Stop: start nothing new."""


class _Attempt(_Halves[O, R]):
    """The two halves in a run with several attempts (`attempts`): holds the lock of the target around both, and takes over what an earlier
    attempt has done."""

    def __init__(self, plan: "Plan[O, R]", write: "Write[R, O]", kind: type[R], shared: "SharedRun") -> None:
        super().__init__(plan, write)
        self._kind = kind
        self._shared = shared
        self._partition_lock = ExitStack()

    def plan(self, target: LogTarget, options: O) -> Iterator[Event]:
        from kseg.change.apply.disk import disk_for
        from kseg.change.run.attempts import earlier_attempt, journal_note, recorded

        self._partition_lock.enter_context(self._shared.lock_partition(target))
        directory = directory_of(target)
        earlier = (
            earlier_attempt(
                directory, options.run_id, target.path, self._kind, disk_for(options.follow_links)
            )
            if options.apply
            else None
        )
        if earlier is not None:
            yield from earlier.events
            self._prepared = earlier.prepared
            return
        recorded_events: list[Event] = []
        self._prepared = yield from recorded(self._plan(target, options), recorded_events)
        if self._prepared is not None and options.apply:
            self._prepared = replace(
                self._prepared, note=journal_note(target.path, recorded_events, self._prepared.result)
            )

    def release(self) -> None:
        self._partition_lock.close()


def _halves(plan: "Plan[O, R]", write: "Write[R, O]", kind: type[R], options: O) -> _Halves[O, R]:
    if options.shared is None or not (options.apply or options.output is not None):
        return _Halves(plan, write)
    return _Attempt(plan, write, kind, options.shared)


def _written(halves: _Halves[O, R], target: LogTarget, options: O) -> list[Event]:
    try:
        return list(guarded(halves.write, target, options))
    finally:
        halves.release()


def _next_events(waiting: "deque[_Waiting]") -> Iterator[Event]:
    """The events of the first target, which stays there until it is done."""
    planned, future = waiting[0]
    written = future.result()
    waiting.popleft()
    yield from planned
    yield from written
