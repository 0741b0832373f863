"""Run a command's work over many targets on a cluster, and return the events in target order: `kseg.jobs.fanout` on Spark.

1. If one target would delay all others, and its work is `Prevalidatable`, a separate Spark job validates parts of it first.
2. Shares (`scheduling`) are submitted as Spark jobs of a few consecutive tasks, in the order of the output. Jobs overlap, so that no
   core waits for the slowest task of another job.
3. Results wait here for their turn. A job is submitted only while the buffered results, plus what the running jobs may return (as much
   as the previous ones; at first the maximum), stay below AHEAD_BYTES; at least one job is always running. So memory is bounded, and
   small results keep every core busy.
4. Spark retries a task whose executor is lost, and counts one attempt only: each event arrives once. If a job fails for good, its
   units are tried one by one: a unit that fails again becomes a `Failure` of its target.
5. If the events of a unit exceed the limit of one result, a task keeps them on the disk of its executor, and they are fetched a few
   chunks at a time.
6. Whatever ends the run (completion, Ctrl-C, the consumer closing the iterator) cancels the jobs.
"""

import os
import queue
import time
import uuid
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from kseg.jobs.events import Advance, Event, Failure, Work
from kseg.jobs.guarded import BUG_STATUS, Named
from kseg.segment.errors import UnreadableInput
from kseg.segment.storage.attached import attached_paths
from kseg.spark import early_validation, path_probes, scheduling
from kseg.spark import session as sessions
from kseg.spark.options import ClusterOptions
from kseg.spark.package_shipping import ship_where_missing
from kseg.spark.path_probes import require_visible
from kseg.spark.scheduling import Outcome, Share, TaskState, Unit
from kseg.spark.session import NoCluster
from kseg.spark.task_errors import is_a_bug, is_node_failure, reason
from kseg.spark.visibility import file_samples

if TYPE_CHECKING:
    from pyspark import SparkContext

MAX_JOBS = 16  # at most this many jobs at a time; each takes a thread of the driver
TASKS_PER_CORE = 4  # tasks under way for each core
JOB_BYTES_PER_CORE = 512 * 1024 * 1024  # input of a job, per core
AHEAD_BYTES = 512 * 1024 * 1024
SUBMISSION_PATIENCE_S = 2
CHUNKS_AT_A_TIME = 16

T = TypeVar("T", bound=Named)
O = TypeVar("O")
Notify = Callable[[str], None]


def run(
    work: Work[T, O],
    targets: Sequence[T],
    options: O,
    cluster: ClusterOptions,
    finished: Callable[[T], None] | None = None,
    notify: Notify | None = None,
    in_place: bool = False,
) -> Iterator[Event]:
    """The events of `work` over all targets, in the order of the targets; progress is reported as soon as it is known.

    finished: called after the last event of each target was consumed. notify: called with messages about the cluster. in_place: the
    work changes files of the targets. Raises UsageError if Spark is missing, NoCluster if the cluster is unavailable or does not see
    the files.
    """
    context = ready(cluster, notify)
    run = task_run(work, targets, options, in_place=in_place)
    yield from _Run(context, run, targets, finished or _ignore).events()


def task_run(
    work: Work[T, O], targets: Sequence[Named], options: O, *, in_place: bool = False
) -> scheduling.TaskRun[T, O]:
    """The settings that all tasks of a run share."""
    return scheduling.TaskRun(
        id=uuid.uuid4().hex,
        work=work,
        options=options,
        directory=os.getcwd(),
        attached=attached_paths(),
        file_samples=file_samples([target.path for target in targets], are_changing=in_place),
        room_bytes=scheduling.MAX_RESULT_BYTES,
        chunk_bytes=scheduling.CHUNK_BYTES,
    )


def ready(cluster: ClusterOptions, notify: Notify | None = None) -> "SparkContext":
    """The context of a cluster whose nodes are up and have kseg. notify and exceptions: as for `run`."""
    notify = notify or _ignore
    context = sessions.get(cluster).sparkContext
    if not sessions.is_local(context.master or ""):
        sessions.await_executors(context, notify)
    try:
        ship_where_missing(context, notify)
    except Exception as error:  # Py4J's: no node can run Python
        if sessions.was_interrupted():
            raise KeyboardInterrupt from error
        raise NoCluster(f"the nodes of {context.master} cannot run tasks: {reason(error)}") from error
    return context


def _ignore(_what: object) -> None:
    return None


class _ClusterJob:
    """Shares that run as one Spark job. size_bytes: of the results."""

    def __init__(self, shares: Sequence[Share[Any, Any]]) -> None:
        self.shares = shares
        self.outcomes: list[Outcome] | None = None
        self.error: Exception | None = None

    @property
    def is_done(self) -> bool:
        return self.outcomes is not None or self.error is not None

    @property
    def size_bytes(self) -> int:
        return sum(outcome.size_bytes for outcome in self.outcomes or ())


class _Run(Generic[T, O]):
    """The driver's side of one run over the targets."""

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
        self._jobs: deque[_ClusterJob] = deque()  # in the order of the output, the first is next
        self._done_jobs: queue.SimpleQueue[_ClusterJob] = queue.SimpleQueue()
        self._known_bytes = self._known_tasks = 0
        self._closed: set[int] = set()  # numbers of targets about which nothing more is reported

    def events(self) -> Iterator[Event]:
        try:
            units = self._prevalidated(scheduling.weigh(self._targets, self._weights))
            groups = scheduling.plan(self._run.work, units, self._run.options, self._cores)
            self._waiting.extend(Share(scheduling.narrowed(self._run, group), group) for group in groups)
            self._submit()
            while self._jobs:
                while not self._jobs[0].is_done:
                    yield from self._progress(self._done_jobs.get())
                    self._submit()
                yield from self._events_of(self._jobs.popleft())
                self._submit()
        except KeyboardInterrupt:
            self._cancel()
            yield from self._finished_events()
            raise
        finally:
            self._cancel()

    def _weights(self, paths: Sequence[str]) -> Sequence[int]:
        if len(paths) <= path_probes.MAX_DRIVER_PROBES:
            return scheduling.weights(paths)
        with self._tagged():
            return path_probes.probe_on_cluster(self._context, self._run, scheduling.weights, paths)

    def _prevalidated(self, units: list[Unit[T]]) -> list[Unit[T]]:
        """The units; if one of them would delay all others, a separate job validates parts of it first."""
        prevalidation_tasks = early_validation.prevalidation_tasks(self._run, units, self._cores)
        if not prevalidation_tasks:
            return units
        try:
            claims = require_visible(self._collect(prevalidation_tasks, early_validation.prevalidate))
        except Exception as error:  # noqa: BLE001  (Py4J's: a problem that was not seen here is reported when its turn comes)
            self._raise_if_fatal(error)
            return units
        return early_validation.with_validated_spans(units, claims)

    # --- jobs

    def _submit(self) -> None:
        under_way = [job for job in self._jobs if not job.is_done]
        tasks_under_way = sum(len(job.shares) for job in under_way)
        count, most = len(under_way), self._cores * TASKS_PER_CORE
        # the smaller the results, the larger and fewer the jobs: twice their expected results must fit into AHEAD_BYTES
        size = max(1, -(-most // MAX_JOBS), min(most, AHEAD_BYTES // 2 // self._expected_bytes))
        while self._waiting and count < MAX_JOBS and tasks_under_way < most:
            if count and not self._has_room(tasks_under_way + size):
                return
            job = _ClusterJob(self._next_shares(size))
            self._jobs.append(job)
            self._start(job)
            count += 1
            tasks_under_way += len(job.shares)

    def _next_shares(self, most: int) -> list[Share[T, O]]:
        """The next `most` shares, or fewer if they are large, so that results arrive early and survive an interrupt."""
        shares = [self._waiting.popleft()]
        weight = shares[0].weight_bytes
        while self._waiting and len(shares) < most:
            weight += self._waiting[0].weight_bytes
            if weight > self._cores * JOB_BYTES_PER_CORE:
                break
            shares.append(self._waiting.popleft())
        return shares

    def _has_room(self, tasks_under_way: int) -> bool:
        ahead = sum(job.size_bytes for job in self._jobs if job.is_done)
        return ahead + tasks_under_way * self._expected_bytes <= AHEAD_BYTES

    @property
    def _expected_bytes(self) -> int:
        """The expected size of a task's result."""
        if not self._known_tasks:
            return scheduling.MAX_RESULT_BYTES
        return min(scheduling.MAX_RESULT_BYTES, 2 * self._known_bytes // self._known_tasks + 1)

    def _start(self, job: _ClusterJob) -> None:
        from pyspark import InheritableThread

        job_tag = f"{self._tag}-{uuid.uuid4().hex}"

        def run_job() -> None:
            try:
                with self._tagged(job_tag):
                    job.outcomes = self._outcomes(job.shares)
            except Exception as error:  # noqa: BLE001  (Py4J's; it is handled when its turn comes)
                job.error = error
            self._done_jobs.put(job)

        InheritableThread(target=run_job, daemon=True).start()
        self._await_submission(job, job_tag)

    def _await_submission(self, job: _ClusterJob, job_tag: str) -> None:
        """Wait until Spark has queued the job: Spark runs jobs in the order of submission, which must be that of the output."""
        give_up = time.monotonic() + SUBMISSION_PATIENCE_S
        with suppress(Exception):  # Py4J's: the job reports what is wrong with the cluster
            tracker = self._context._jsc.sc().statusTracker()
            while not job.is_done and time.monotonic() < give_up:
                if len(tracker.getJobIdsForTag(job_tag)):
                    return
                time.sleep(0.005)

    def _outcomes(self, shares: Sequence[Share[T, O]]) -> list[Outcome]:
        return require_visible(self._collect(shares, scheduling.run_share))

    def _collect(self, shares: Sequence[object], main: Callable[[Iterable[Any]], Iterable[Any]]) -> list[Any]:
        with self._tagged():
            return self._context.parallelize(shares, len(shares)).mapPartitions(main).collect()

    @contextmanager
    def _tagged(self, tag: str | None = None) -> Iterator[None]:
        """A context in which started jobs have this tag; by default the run's, by which exactly its jobs are cancelled."""
        tag = tag or self._tag
        self._context.addJobTag(tag)
        try:
            yield
        finally:
            self._context.removeJobTag(tag)

    def _progress(self, job: _ClusterJob) -> Iterator[Event]:
        """Report the progress of a finished job."""
        self._known_tasks += len(job.shares)
        self._known_bytes += job.size_bytes
        for outcome in job.outcomes or ():
            if outcome.done_bytes:
                yield Advance(self._targets[outcome.number].path, outcome.done_bytes)

    # --- events

    def _events_of(self, job: _ClusterJob) -> Iterator[Event]:
        if job.outcomes is None:
            self._raise_if_fatal(job.error)
            for share in job.shares:
                for unit in share.units:
                    yield from self._retry_alone(unit)
            return
        outcomes = iter(job.outcomes)
        for share in job.shares:
            for unit, outcome in zip(share.units, outcomes, strict=False):
                yield from self._outcome_events(unit, outcome)

    def _outcome_events(self, unit: Unit[T], outcome: Outcome) -> Iterator[Event]:
        if unit.number in self._closed:
            return
        match outcome.state:
            case TaskState.DONE:
                for chunk in outcome.chunks:
                    yield from scheduling.unpack(chunk)
                if unit.is_last:
                    self._close(unit)
            case TaskState.NO_ROOM:
                yield from self._retry_alone(unit)
            case TaskState.TOO_MUCH | TaskState.CANNOT_SPLIT:
                yield from self._streamed(replace(unit, stop=None))

    def _close(self, unit: Unit[T]) -> None:
        self._closed.add(unit.number)
        self._finished(unit.target)

    def _retry_alone(self, unit: Unit[T]) -> Iterator[Event]:
        """Retry a unit alone, after its job failed or its share could not hold its result."""
        if unit.number in self._closed:
            return
        try:
            outcome = self._outcome_of(unit)
        except Exception as error:  # noqa: BLE001  (Py4J's)
            yield self._failure(unit, error)
            return
        yield from self._outcome_events(unit, outcome)

    def _outcome_of(self, unit: Unit[T]) -> Outcome:
        """Try a unit twice: the failed job may never have reached it, and a local master does not retry."""
        shares = [Share(scheduling.narrowed(self._run, (unit,)), (unit,))]
        try:
            (outcome,) = self._outcomes(shares)
        except NoCluster:
            raise
        except Exception:  # noqa: BLE001  (Py4J's)
            (outcome,) = self._outcomes(shares)
        return outcome

    def _streamed(self, unit: Unit[T]) -> Iterator[Event]:
        """The remaining events of a target that are too large for one result, streamed from the executor's disk."""
        from pyspark import StorageLevel

        made = self._context.parallelize(
            [Share(scheduling.narrowed(self._run, (unit,)), (unit,))], 1
        ).mapPartitions(scheduling.stream_share)
        made.persist(StorageLevel.DISK_ONLY)
        start = 0
        try:
            while True:
                try:
                    with self._tagged():
                        chunks = made.mapPartitions(scheduling.ChunkRange(start, CHUNKS_AT_A_TIME)).collect()
                except Exception as error:  # noqa: BLE001  (Py4J's)
                    yield self._failure(unit, error)
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

    def _finished_events(self) -> Iterator[Event]:
        """After an interrupt: the events of completed jobs, in order."""
        for job in self._jobs:
            if job.outcomes is not None and all(each.state is TaskState.DONE for each in job.outcomes):
                yield from self._events_of(job)

    # --- failures

    def _failure(self, unit: Unit[T], error: Exception) -> Failure:
        """Close a target that failed for good; returns its Failure."""
        self._raise_if_fatal(error)
        self._close(unit)
        path = unit.target.path
        status = BUG_STATUS if is_a_bug(error) else UnreadableInput.exit_status
        return Failure(path, f"the task working on {path} failed on the cluster: {reason(error)}", status)

    def _raise_if_fatal(self, error: Exception | None) -> None:
        """Raise what ends the whole run."""
        if isinstance(error, NoCluster):
            raise error
        if error is not None and is_node_failure(error):
            raise NoCluster(
                f"the nodes of {self._context.master} cannot run tasks: {reason(error)}"
            ) from error
        if sessions.is_over(self._context):
            why = reason(error) if error is not None else "it has been stopped"
            raise NoCluster(f"the cluster {self._context.master} is lost: {why}") from error

    @property
    def _tag(self) -> str:
        return f"kseg-{self._run.id}"

    def _cancel(self) -> None:
        with suppress(Exception):  # the cluster may be gone
            self._context.cancelJobsWithTag(self._tag)
