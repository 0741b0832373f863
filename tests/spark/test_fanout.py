"""The fan-out over a cluster: order, bounds, failures, lost workers, interrupted runs."""

from __future__ import annotations

import os
import re
import signal
import threading
import time
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from kseg.jobs import fanout as local
from kseg.jobs.events import Advance, Event, Failure, Row, Text
from kseg.segment.errors import UnreadableInput
from kseg.segment.partition.targets import FileTarget
from kseg.spark import cluster_fanout, scheduling, session, visibility
from kseg.spark.options import ClusterOptions
from tests.support.recording_work import Asked, attempts, echo, moody, shown, wordy

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark
CLUSTER = ClusterOptions()


def files(directory: Path, *names: str) -> list[FileTarget]:
    directory.mkdir(exist_ok=True)
    for name in names:
        (directory / name).write_text("x")
    return [FileTarget(str(directory / name)) for name in names]


@pytest.fixture
def call_log(tmp_path: Path) -> Path:
    path = tmp_path / "call_log"
    path.mkdir()
    return path


def test_events_come_in_the_order_of_the_targets(
    any_spark: SparkSession, tmp_path: Path, call_log: Path
) -> None:
    targets = files(tmp_path / "in", *(f"{n:03d}" for n in range(100)))
    finished: list[FileTarget] = []
    events = list(cluster_fanout.run(echo, targets, Asked(str(call_log)), CLUSTER, finished.append))
    assert shown(events) == shown(local.run(echo, targets, Asked(str(call_log))))
    assert finished == targets
    progress = Counter(event.path for event in events if isinstance(event, Advance))
    assert progress == Counter(target.path for target in targets)
    # one attempt on the cluster, and one by the local run
    assert all(attempts(call_log, target.path) == 2 for target in targets)


def test_small_targets_share_few_tasks(local_spark: SparkSession, tmp_path: Path, call_log: Path) -> None:
    targets = files(tmp_path / "in", *(f"{n:03d}" for n in range(100)))
    tracker = local_spark.sparkContext.statusTracker()
    list(cluster_fanout.run(echo, targets, Asked(str(call_log)), CLUSTER))
    assert not tracker.getActiveJobsIds()
    processes = {entry.read_text() for entry in call_log.iterdir()}
    assert len(processes) < 2 * scheduling.SHARES_PER_CORE, "Python workers are used again"


def test_relative_paths_are_resolved_on_the_driver(
    any_spark: SparkSession, tmp_path: Path, call_log: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files(tmp_path / "in", "a", "b")
    monkeypatch.chdir(tmp_path / "in")
    targets = [FileTarget("a"), FileTarget("b")]
    assert shown(cluster_fanout.run(echo, targets, Asked(str(call_log)), CLUSTER)) == shown(
        local.run(echo, targets, Asked(str(call_log)))
    )
    assert attempts(call_log, "a") == 2


def test_exception_in_a_target_is_a_failure_like_locally(
    any_spark: SparkSession, tmp_path: Path, call_log: Path
) -> None:
    targets = files(tmp_path / "in", "well", "refused", "unreadable", "bug", "odd", "end")
    asked = Asked(str(call_log))
    (fine, *others) = shown(cluster_fanout.run(moody, targets, asked, CLUSTER))
    alone = shown(local.run(moody, targets, asked, jobs=2))
    assert [fine, *others] == alone or _without_traces([fine, *others]) == _without_traces(alone)
    assert [each.exit_status for each in others if isinstance(each, Failure)] == [4, 3, 70, 70]


def _without_traces(events: list[Event]) -> list[Event]:
    return [
        Failure(event.path, re.sub(r" at 0x[0-9a-f]+", "", event.sentence), event.exit_status)
        if isinstance(event, Failure)
        else event
        for event in events
    ]


def test_dead_task_is_retried_and_its_events_come_once(
    any_spark: SparkSession, tmp_path: Path, call_log: Path
) -> None:
    targets = files(tmp_path / "in", "first", "fragile", "last")
    events = shown(cluster_fanout.run(moody, targets, Asked(str(call_log)), CLUSTER))
    assert attempts(call_log, "fragile") >= 2
    lines = "".join(f"{name} begins\n{name} ends\n" for name in ("first", "fragile", "last"))
    assert events == [Text(lines.encode())]


def test_target_that_kills_every_worker_fails_alone_and_is_named(
    any_spark: SparkSession, tmp_path: Path, call_log: Path
) -> None:
    targets = files(tmp_path / "in", "first", "deadly", "last")
    finished: list[FileTarget] = []
    first, failure, last = shown(
        cluster_fanout.run(moody, targets, Asked(str(call_log)), CLUSTER, finished.append)
    )
    assert isinstance(failure, Failure) and failure.path == targets[1].path and failure.exit_status == 3
    assert failure.sentence.startswith(f"the task working on {targets[1].path} failed on the cluster: ")
    assert "Python worker" in failure.sentence and "\n" not in failure.sentence
    assert (first, last) == (Text(b"first begins\nfirst ends\n"), Text(b"last begins\nlast ends\n"))
    assert finished == targets


def test_lost_executor_does_not_change_the_events(
    cluster_spark: SparkSession, tmp_path: Path, call_log: Path
) -> None:
    targets = files(tmp_path / "in", *(f"{n:02d}" for n in range(24)))
    asked = Asked(str(call_log), wait_s=0.1, loses_executor_at="10")
    events = shown(cluster_fanout.run(echo, targets, asked, CLUSTER))
    assert attempts(call_log, "10") > 1, "it was begun again"
    assert events == shown(local.run(echo, targets, Asked(str(call_log))))


# --- bounds


def test_large_result_is_fetched_in_pieces(
    any_spark: SparkSession, tmp_path: Path, call_log: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scheduling, "MAX_RESULT_BYTES", 200_000)
    monkeypatch.setattr(scheduling, "CHUNK_BYTES", 20_000)
    targets = files(tmp_path / "in", "one", "two")
    finished: list[FileTarget] = []
    events = list(cluster_fanout.run(wordy, targets, Asked(str(call_log)), CLUSTER, finished.append))
    lines = b"".join(event.data for event in events if isinstance(event, Text)).splitlines()
    assert [line.rsplit(b" ", 1)[0].decode() for line in lines] == [
        f"{name} {line}" for name in ("one", "two") for line in range(1000)
    ]
    assert len([event for event in events if isinstance(event, Row)]) == 2
    assert finished == targets
    # two attempts, the second one successful: a result on the executor's disk is not computed again for each of its parts
    assert {attempts(call_log, name) for name in ("one", "two")} == {2}


def test_queued_results_are_bounded_and_cores_stay_busy(
    local_spark: SparkSession, tmp_path: Path, call_log: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The result of a target has about 600 KB, so at most 10 of them may be queued or in transit."""
    monkeypatch.setattr(scheduling, "SHARES_PER_CORE", 1000)
    monkeypatch.setattr(scheduling, "MAX_RESULT_BYTES", 1_000_000)
    monkeypatch.setattr(cluster_fanout, "AHEAD_BYTES", 6_000_000)
    targets = files(tmp_path / "in", *(f"{n:02d}" for n in range(30)))
    taken = 0
    most_ahead = 0
    for event in cluster_fanout.run(wordy, targets, Asked(str(call_log)), CLUSTER):
        if isinstance(event, Row):
            taken += 1
            # as slow as a reader can be
            _wait_for_jobs()
            most_ahead = max(most_ahead, len(list(call_log.iterdir())) - taken)
    assert taken == 30
    assert 4 <= most_ahead <= 11


def _wait_for_jobs() -> None:
    """Wait until everything that was submitted is done."""
    from pyspark import InheritableThread

    for thread in threading.enumerate():
        if isinstance(thread, InheritableThread):
            thread.join()


# --- the end of a run


@pytest.fixture
def one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """A job for each task, as if the tasks were large."""
    monkeypatch.setattr(cluster_fanout, "JOB_BYTES_PER_CORE", 0)


def test_abandoned_fanout_leaves_no_job_running(
    local_spark: SparkSession, tmp_path: Path, call_log: Path, one_by_one: None
) -> None:
    targets = files(tmp_path / "in", *(f"{n:03d}" for n in range(120)))
    events = cluster_fanout.run(echo, targets, Asked(str(call_log), wait_s=0.2), CLUSTER)
    next(events)
    events.close()  # type: ignore[attr-defined]
    _wait_for_idleness(local_spark)
    assert len(list(call_log.iterdir())) < 120


def test_ctrl_c_keeps_finished_targets_and_ends_the_jobs(
    local_spark: SparkSession, tmp_path: Path, call_log: Path, one_by_one: None
) -> None:
    targets = files(tmp_path / "in", *(f"{n:03d}" for n in range(120)))
    events = cluster_fanout.run(echo, targets, Asked(str(call_log), wait_s=0.2), CLUSTER)
    seen: list[Event] = []

    def interrupt() -> None:
        while not shown(list(seen)) or len(list(call_log.iterdir())) < 12:
            time.sleep(0.01)
        os.kill(os.getpid(), signal.SIGINT)

    threading.Thread(target=interrupt, daemon=True).start()
    with pytest.raises(KeyboardInterrupt):
        for event in events:
            seen.append(event)  # noqa: PERF402  (what came before the interrupt is asked for)
    _wait_for_idleness(local_spark)
    assert 0 < len(shown(seen)) < 240
    paths = [str(event.values["path"]) for event in seen if isinstance(event, Row)]
    assert paths == sorted(paths) and len(paths) == len(set(paths))


def _wait_for_idleness(spark: SparkSession) -> None:
    give_up = time.monotonic() + 300
    while spark.sparkContext.statusTracker().getActiveJobsIds():
        assert time.monotonic() < give_up, "jobs go on"
        time.sleep(0.05)


def test_nodes_that_do_not_see_the_files_are_named(
    local_spark: SparkSession, tmp_path: Path, call_log: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    targets = files(tmp_path / "in", "a")

    def elsewhere(paths: list[str], **reported: bool) -> tuple[visibility.FileSample, ...]:
        marks = visibility.file_samples(paths, **reported)
        (tmp_path / "in" / "a").write_text("another file of this name")
        return marks

    monkeypatch.setattr(cluster_fanout, "file_samples", elsewhere)
    with pytest.raises(UnreadableInput, match=rf"the node \S+ has another {targets[0].path}: every node"):
        list(cluster_fanout.run(echo, targets, Asked(str(call_log)), CLUSTER))
    assert session.NoCluster.exit_status == 3
    assert not list(call_log.iterdir())


def test_file_that_grows_from_empty_counts_as_the_same(tmp_path: Path) -> None:
    (target,) = files(tmp_path, "a")
    Path(target.path).write_bytes(b"")
    marks = visibility.file_samples([target.path])
    assert visibility.first_not_visible(marks) is None
    Path(target.path).write_bytes(b"the first batch")
    assert visibility.first_not_visible(marks) is None
    grown = visibility.file_samples([target.path])
    Path(target.path).write_bytes(b"another batch, and longer")
    assert (
        not_visible := visibility.first_not_visible(grown)
    ) is not None and not_visible.problem == "has another"
