"""Run a command's work over many targets on a cluster, and hand on the events in target order: the twin of
`kseg.segment.fanout`.

1. The shares (`tasks`) go out in flights: a flight is one Spark job, of a few tasks that stand together in the output.
   Flights overlap, so that no core waits for the slowest task of another flight.
2. What has come back waits here for its turn. A flight is sent out only while what waits, together with what those
   under way may bring (as much as the ones before, at first the most that is allowed), is below AHEAD_BYTES; one is
   always under way. So memory is bounded, whatever the output is, and small answers leave every core at work.
3. Spark tries a task again whose executor is lost, and counts one attempt only: so each event comes once. A flight
   that fails for good is taken apart, and its units tried one by one: what fails again is a `Failure` of that target.
4. A unit whose events are too many for one answer is worked on by a task that keeps them on the disk of its executor;
   they are fetched from there a few chunks at a time.
5. Whatever ends the run (all done, Ctrl-C, the consumer leaving) cancels the jobs.
"""

import os
import queue
import uuid
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from kseg.segment.events import Advance, Event, Failure, Work
from kseg.segment.fanout import BUG_STATUS, Named
from kseg.spark import session as sessions
from kseg.spark import tasks
from kseg.spark.cluster import ClusterOptions
from kseg.spark.tasks import Outcome, Share, Unit

if TYPE_CHECKING:
    from pyspark import SparkContext

FLIGHTS = 16  # jobs under way at a time, at most; each costs a thread here
ROUNDS = 2  # tasks under way for each core
AHEAD_BYTES = 512 * 1024 * 1024
CHUNKS_AT_A_TIME = 16

T = TypeVar("T", bound=Named)
O = TypeVar("O")


def run(
    work: Work[T, O],
    targets: Sequence[T],
    options: O,
    cluster: ClusterOptions,
    finished: Callable[[T], None] | None = None,
) -> Iterator[Event]:
    """The events of `work` over all targets, in the order of the targets; progress comes as soon as it is known.

    finished: called after the last event of each target was taken. Raises UsageError or NoCluster.
    """
    context = sessions.get(cluster).sparkContext
    yield from _Run(context, work, options, targets, finished or _ignore).events()


def _ignore(_target: object) -> None:
    return None


class _Flight:
    """Some shares under way as one job. size_bytes: of what came back."""

    def __init__(self, shares: Sequence[Share[Any, Any]]) -> None:
        self.shares = shares
        self.outcomes: list[Outcome] | None = None
        self.error: Exception | None = None

    @property
    def is_back(self) -> bool:
        return self.outcomes is not None or self.error is not None

    @property
    def size_bytes(self) -> int:
        return sum(outcome.size_bytes for outcome in self.outcomes or ())


class _Run(Generic[T, O]):
    """One run over the targets."""

    def __init__(
        self,
        context: "SparkContext",
        work: Work[T, O],
        options: O,
        targets: Sequence[T],
        finished: Callable[[T], None],
    ) -> None:
        self._context = context
        self._targets = targets
        self._finished = finished
        self._tag = f"kseg-{uuid.uuid4().hex}"
        self._cores = max(1, context.defaultParallelism)
        directory = os.getcwd()
        groups = tasks.pack(tasks.weigh(targets), self._cores)
        self._waiting = deque(Share(work, options, directory, units) for units in groups)
        self._flights: deque[_Flight] = deque()  # in the order of the output, the first is next
        self._back: queue.SimpleQueue[_Flight] = queue.SimpleQueue()
        self._known_bytes = self._known_tasks = 0

    def events(self) -> Iterator[Event]:
        try:
            self._send_out()
            while self._flights:
                while not self._flights[0].is_back:
                    yield from self._welcome(self._back.get())
                    self._send_out()
                yield from self._unload(self._flights.popleft())
                self._send_out()
        except KeyboardInterrupt:
            self._cancel()
            yield from self._leftovers()
            raise
        finally:
            self._cancel()

    # --- flights

    def _send_out(self) -> None:
        under_way = [flight for flight in self._flights if not flight.is_back]
        count = len(under_way)
        tasks_under_way = sum(len(flight.shares) for flight in under_way)
        size = max(1, -(-self._cores * ROUNDS // FLIGHTS))
        while self._waiting and count < FLIGHTS and tasks_under_way < self._cores * ROUNDS:
            if count and not self._has_room(tasks_under_way + size):
                return
            flight = _Flight([self._waiting.popleft() for _ in range(min(size, len(self._waiting)))])
            self._flights.append(flight)
            self._start(flight)
            count += 1
            tasks_under_way += len(flight.shares)

    def _has_room(self, tasks_under_way: int) -> bool:
        expected = tasks.MOST_RESULT_BYTES
        if self._known_tasks:
            expected = 2 * self._known_bytes // self._known_tasks
        ahead = sum(flight.size_bytes for flight in self._flights if flight.is_back)
        return ahead + tasks_under_way * expected <= AHEAD_BYTES

    def _start(self, flight: _Flight) -> None:
        from pyspark import InheritableThread

        def fly() -> None:
            try:
                flight.outcomes = self._outcomes(flight.shares)
            except Exception as error:  # noqa: BLE001  (Py4J's; whose turn it is sees to it)
                flight.error = error
            self._back.put(flight)

        InheritableThread(target=fly, daemon=True).start()

    def _outcomes(self, shares: Sequence[Share[T, O]]) -> list[Outcome]:
        self._context.addJobTag(self._tag)
        rdd = self._context.parallelize(shares, len(shares))
        return rdd.mapPartitions(tasks.perform).collect()

    def _welcome(self, flight: _Flight) -> Iterator[Event]:
        """A flight is back: what it has got done is told at once."""
        self._known_tasks += len(flight.shares)
        self._known_bytes += flight.size_bytes
        for outcome in flight.outcomes or ():
            if outcome.done_bytes:
                yield Advance(self._targets[outcome.number].path, outcome.done_bytes)

    # --- events

    def _unload(self, flight: _Flight) -> Iterator[Event]:
        if flight.outcomes is None:
            for share in flight.shares:
                for unit in share.units:
                    yield from self._alone(share, unit)
            return
        outcomes = iter(flight.outcomes)
        for share in flight.shares:
            for unit, outcome in zip(share.units, outcomes, strict=False):
                yield from self._told(share, unit, outcome)

    def _told(self, share: Share[T, O], unit: Unit[T], outcome: Outcome) -> Iterator[Event]:
        if outcome.chunks is None:
            yield from self._at_length(share, unit)
        else:
            for chunk in outcome.chunks:
                yield from tasks.unpack(chunk)
        self._finished(unit.target)

    def _alone(self, share: Share[T, O], unit: Unit[T]) -> Iterator[Event]:
        """A unit of a flight that failed."""
        one = Share(share.work, share.options, share.directory, (unit,))
        try:
            (outcome,) = self._outcomes([one])
        except Exception as error:  # noqa: BLE001  (Py4J's)
            yield Failure(unit.target.path, _lost(unit.target.path, error), BUG_STATUS)
            self._finished(unit.target)
            return
        yield from self._told(one, unit, outcome)

    def _at_length(self, share: Share[T, O], unit: Unit[T]) -> Iterator[Event]:
        """The events of a unit that are too many for one answer."""
        raise NotImplementedError

    def _leftovers(self) -> Iterator[Event]:
        """After an interrupt: the flights that are back, in order."""
        for flight in self._flights:
            if flight.outcomes is not None and all(each.chunks is not None for each in flight.outcomes):
                yield from self._unload(flight)

    def _cancel(self) -> None:
        if self._context._jsc is not None:
            self._context.cancelJobsWithTag(self._tag)


def _lost(path: str, error: Exception) -> str:
    return f"the task working on {path} failed on the cluster: {error}"
