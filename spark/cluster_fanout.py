"""Run a command's work over many targets on a cluster, and hand on the events in target order: the twin of
`kseg.jobs.fanout`.

1. Where one target would keep all others waiting, and its work can be foreseen, a job of its own looks at parts of it.
2. The shares (`scheduling`) go out in flights: a flight is one Spark job, of a few tasks that stand together in the output.
   Flights overlap, so that no core waits for the slowest task of another flight.
3. What has come back waits here for its turn. A flight is sent out only while what waits, together with what those
   under way may bring (as much as the ones before, at first the most that is allowed), is below AHEAD_BYTES; one is
   always under way. So memory is bounded, whatever the output is, and small answers leave every core at work.
4. Spark tries a task again whose executor is lost, and counts one attempt only: so each event comes once. A flight
   that fails for good is taken apart, and its units tried one by one: what fails again is a `Failure` of that target.
5. A unit whose events are too many for one answer is worked on by a task that keeps them on the disk of its executor;
   they are fetched from there a few chunks at a time.
6. Whatever ends the run (all done, Ctrl-C, the consumer leaving) cancels the jobs.
"""

import os
import queue
import uuid
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from kseg.jobs.events import Advance, Event, Failure, Work
from kseg.jobs.fanout import BUG_STATUS, Named
from kseg.segment.errors import UnreadableInput
from kseg.spark import path_probes, scheduling
from kseg.spark import session as sessions
from kseg.spark.options import ClusterOptions
from kseg.spark.package_shipping import ship_where_missing
from kseg.spark.path_probes import seen
from kseg.spark.scheduling import Outcome, Share, TaskState, Unit
from kseg.spark.session import NoCluster
from kseg.spark.task_errors import is_a_bug, is_of_the_node, reason
from kseg.spark.visibility import landmarks

if TYPE_CHECKING:
    from pyspark import SparkContext

FLIGHTS = 16  # jobs under way at a time, at most; each costs a thread here
ROUNDS = 4  # tasks under way for each core
FLIGHT_BYTES = 512 * 1024 * 1024  # to work on for each core
AHEAD_BYTES = 512 * 1024 * 1024
CHUNKS_AT_A_TIME = 16

T = TypeVar("T", bound=Named)
O = TypeVar("O")
Say = Callable[[str], None]


def run(
    work: Work[T, O],
    targets: Sequence[T],
    options: O,
    cluster: ClusterOptions,
    finished: Callable[[T], None] | None = None,
    say: Say | None = None,
    in_place: bool = False,
) -> Iterator[Event]:
    """The events of `work` over all targets, in the order of the targets; progress comes as soon as it is known.

    finished: called after the last event of each target was taken. say: told in one sentence what is worth knowing
    about the cluster. in_place: the work changes files of the targets. Raises UsageError where Spark is missing,
    NoCluster where the cluster is, or does not see the files.
    """
    context = ready(cluster, say)
    run = described(work, targets, options, in_place=in_place)
    yield from _Run(context, run, targets, finished or _ignore).events()


def described(
    work: Work[T, O], targets: Sequence[Named], options: O, *, in_place: bool = False
) -> scheduling.TaskRun[T, O]:
    """What the tasks of a run are told."""
    return scheduling.TaskRun(
        id=uuid.uuid4().hex,
        work=work,
        options=options,
        directory=os.getcwd(),
        landmarks=landmarks([target.path for target in targets], are_changing=in_place),
        room_bytes=scheduling.MOST_RESULT_BYTES,
        chunk_bytes=scheduling.CHUNK_BYTES,
    )


def ready(cluster: ClusterOptions, say: Say | None = None) -> "SparkContext":
    """The context of a cluster whose nodes are there and have kseg. say: as of `run`. Raises as that does."""
    say = say or _ignore
    context = sessions.get(cluster).sparkContext
    if not sessions.is_local(context.master or ""):
        sessions.await_executors(context, say)
    try:
        ship_where_missing(context, say)
    except Exception as error:  # Py4J's: no node can run Python
        raise NoCluster(f"the nodes of {context.master} cannot work: {reason(error)}") from error
    return context


def _ignore(_what: object) -> None:
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
    """One run over the targets, seen from the driver."""

    def __init__(
        self,
        context: "SparkContext",
        run: scheduling.TaskRun[T, O],
        targets: Sequence[T],
        finished: Callable[[T], None],
    ) -> None:
        self._context = context
        self._run = run
        self._targets = targets
        self._finished = finished
        self._cores = max(1, context.defaultParallelism)
        self._waiting: deque[Share[T, O]] = deque()
        self._flights: deque[_Flight] = deque()  # in the order of the output, the first is next
        self._back: queue.SimpleQueue[_Flight] = queue.SimpleQueue()
        self._known_bytes = self._known_tasks = 0
        self._closed: set[int] = set()  # numbers of which nothing more is told

    def events(self) -> Iterator[Event]:
        try:
            units = self._foreseen(scheduling.weigh(self._targets, self._weights))
            groups = scheduling.plan(self._run.work, units, self._run.options, self._cores)
            self._waiting.extend(Share(scheduling.narrowed(self._run, group), group) for group in groups)
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

    def _weights(self, paths: Sequence[str]) -> Sequence[int]:
        if len(paths) <= path_probes.FEW:
            return scheduling.weights(paths)
        with self._tagged():
            return path_probes.by_tasks(self._context, self._run, scheduling.weights, paths)

    def _foreseen(self, units: list[Unit[T]]) -> list[Unit[T]]:
        """The units, with what a job of its own has found where one of them would keep all others waiting."""
        foresights = scheduling.foresights(self._run, units, self._cores)
        if not foresights:
            return units
        try:
            claims = seen(self._job(foresights, scheduling.look_ahead))
        except Exception as error:  # noqa: BLE001  (Py4J's: what nobody has seen is looked at in its turn)
            self._see_to(error)
            return units
        return scheduling.knowing(units, claims)

    # --- flights

    def _send_out(self) -> None:
        under_way = [flight for flight in self._flights if not flight.is_back]
        tasks_under_way = sum(len(flight.shares) for flight in under_way)
        count, most = len(under_way), self._cores * ROUNDS
        # few jobs for what is small, as long as what the largest may bring fits in twice
        size = max(1, -(-most // FLIGHTS), min(most, AHEAD_BYTES // 2 // self._expected_bytes))
        while self._waiting and count < FLIGHTS and tasks_under_way < most:
            if count and not self._has_room(tasks_under_way + size):
                return
            flight = _Flight(self._next_shares(size))
            self._flights.append(flight)
            self._start(flight)
            count += 1
            tasks_under_way += len(flight.shares)

    def _next_shares(self, most: int) -> list[Share[T, O]]:
        """The next `most` shares, fewer when they are heavy: an answer is to be seen soon, and kept on an interrupt."""
        shares = [self._waiting.popleft()]
        weight = shares[0].weight_bytes
        while self._waiting and len(shares) < most:
            weight += self._waiting[0].weight_bytes
            if weight > self._cores * FLIGHT_BYTES:
                break
            shares.append(self._waiting.popleft())
        return shares

    def _has_room(self, tasks_under_way: int) -> bool:
        ahead = sum(flight.size_bytes for flight in self._flights if flight.is_back)
        return ahead + tasks_under_way * self._expected_bytes <= AHEAD_BYTES

    @property
    def _expected_bytes(self) -> int:
        """What a task may bring."""
        if not self._known_tasks:
            return scheduling.MOST_RESULT_BYTES
        return min(scheduling.MOST_RESULT_BYTES, 2 * self._known_bytes // self._known_tasks + 1)

    def _start(self, flight: _Flight) -> None:
        from pyspark import InheritableThread

        def fly() -> None:
            try:
                flight.outcomes = self._outcomes(flight.shares)
            except Exception as error:  # noqa: BLE001  (Py4J's; it is seen to when its turn comes)
                flight.error = error
            self._back.put(flight)

        InheritableThread(target=fly, daemon=True).start()

    def _outcomes(self, shares: Sequence[Share[T, O]]) -> list[Outcome]:
        return seen(self._job(shares, scheduling.perform))

    def _job(self, shares: Sequence[object], life: Callable[[Iterable[Any]], Iterable[Any]]) -> list[Any]:
        with self._tagged():
            return self._context.parallelize(shares, len(shares)).mapPartitions(life).collect()

    @contextmanager
    def _tagged(self) -> Iterator[None]:
        """Jobs started inside are this run's: cancelled with it, and no others of the process."""
        self._context.addJobTag(self._tag)
        try:
            yield
        finally:
            self._context.removeJobTag(self._tag)

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
            self._see_to(flight.error)
            for share in flight.shares:
                for unit in share.units:
                    yield from self._alone(unit)
            return
        outcomes = iter(flight.outcomes)
        for share in flight.shares:
            for unit, outcome in zip(share.units, outcomes, strict=False):
                yield from self._told(unit, outcome)

    def _told(self, unit: Unit[T], outcome: Outcome) -> Iterator[Event]:
        if unit.number in self._closed:
            return
        match outcome.state:
            case TaskState.DONE:
                for chunk in outcome.chunks:
                    yield from scheduling.unpack(chunk)
                if unit.is_last:
                    self._close(unit)
            case TaskState.NO_ROOM:
                yield from self._alone(unit)
            case TaskState.TOO_MUCH | TaskState.GIVEN_UP:
                yield from self._at_length(replace(unit, stop=None))

    def _close(self, unit: Unit[T]) -> None:
        self._closed.add(unit.number)
        self._finished(unit.target)

    def _alone(self, unit: Unit[T]) -> Iterator[Event]:
        """A unit of a flight that failed, or that had no room in its share, tried by itself."""
        if unit.number in self._closed:
            return
        try:
            outcome = self._outcome_of(unit)
        except Exception as error:  # noqa: BLE001  (Py4J's)
            yield self._lost(unit, error)
            return
        yield from self._told(unit, outcome)

    def _outcome_of(self, unit: Unit[T]) -> Outcome:
        """Tried twice: nobody knows whether the flight that failed ever came to it, and a local master tries once."""
        shares = [Share(scheduling.narrowed(self._run, (unit,)), (unit,))]
        try:
            (outcome,) = self._outcomes(shares)
        except NoCluster:
            raise
        except Exception:  # noqa: BLE001  (Py4J's)
            (outcome,) = self._outcomes(shares)
        return outcome

    def _at_length(self, unit: Unit[T]) -> Iterator[Event]:
        """All that is left of a target and too much for one answer, from the disk of the executor that makes it."""
        from pyspark import StorageLevel

        made = self._context.parallelize(
            [Share(scheduling.narrowed(self._run, (unit,)), (unit,))], 1
        ).mapPartitions(scheduling.perform_at_length)
        made.persist(StorageLevel.DISK_ONLY)
        start = 0
        try:
            while True:
                try:
                    with self._tagged():
                        chunks = made.mapPartitions(scheduling.Excerpt(start, CHUNKS_AT_A_TIME)).collect()
                except Exception as error:  # noqa: BLE001  (Py4J's)
                    yield self._lost(unit, error)
                    return
                for chunk, done_bytes in chunks:
                    yield Advance(unit.target.path, done_bytes)
                    yield from scheduling.unpack(chunk)
                start += len(chunks)
                if len(chunks) < CHUNKS_AT_A_TIME:
                    self._close(unit)
                    return
        finally:
            with suppress(Exception):  # the cluster may be gone
                made.unpersist()

    def _leftovers(self) -> Iterator[Event]:
        """After an interrupt: the flights that are back as a whole, in order."""
        for flight in self._flights:
            if flight.outcomes is not None and all(each.state is TaskState.DONE for each in flight.outcomes):
                yield from self._unload(flight)

    # --- trouble

    def _lost(self, unit: Unit[T], error: Exception) -> Failure:
        """Says that a target failed for good, and closes it."""
        self._see_to(error)
        self._close(unit)
        path = unit.target.path
        status = BUG_STATUS if is_a_bug(error) else UnreadableInput.exit_status
        return Failure(path, f"the task working on {path} failed on the cluster: {reason(error)}", status)

    def _see_to(self, error: Exception | None) -> None:
        """Raise what ends the whole run."""
        if isinstance(error, NoCluster):
            raise error
        if error is not None and is_of_the_node(error):
            raise NoCluster(f"the nodes of {self._context.master} cannot work: {reason(error)}") from error
        if sessions.is_over(self._context):
            why = reason(error) if error is not None else "it has been stopped"
            raise NoCluster(f"the cluster {self._context.master} is lost: {why}") from error

    @property
    def _tag(self) -> str:
        return f"kseg-{self._run.id}"

    def _cancel(self) -> None:
        with suppress(Exception):  # the cluster may be gone
            self._context.cancelJobsWithTag(self._tag)
