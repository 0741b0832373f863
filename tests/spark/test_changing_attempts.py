"""Tasks that fail in the middle of a change on a cluster: the result is that of an undisturbed local run."""

from __future__ import annotations

import shutil
import time
import zipfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from kseg.change.apply.lock import lock_holder
from kseg.change.run.options import SharedRun
from kseg.change.run.pipeline import TargetGroup
from kseg.jobs import fanout
from kseg.jobs.events import Event
from kseg.spark import cluster_fanout as on_cluster
from kseg.spark import session
from kseg.spark.options import ClusterOptions
from tests.change.test_attempts import timeless
from tests.spark.conftest import CONF, Use
from tests.spark.standalone import Standalone
from tests.support.change_cases import CHANGINGS, Changing
from tests.support.failing_work import End, FailsOnce
from tests.support.killed_runs import contents, state, undo_all
from tests.support.paths import ROOT
from tests.support.retried_changes import GroupWork

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

RUN = "20260101T000000Z-00000001"
SHIPPED = (
    "tests/support/retried_changes.py",
    "tests/support/failing_disks.py",
    "tests/support/failing_work.py",
)


@pytest.fixture(params=CHANGINGS)
def changing(request: pytest.FixtureRequest) -> Changing:
    return CHANGINGS[request.param]


@pytest.fixture(scope="session")
def shipped(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Ship what the executors need from the tests."""
    path = tmp_path_factory.mktemp("shipped") / "mortal.zip"
    with zipfile.ZipFile(path, "w") as archive:
        for name in SHIPPED:
            archive.write(ROOT / name, name)
    return path


class Stage:
    """A data directory, the result of an undisturbed local run on it, and runs on a cluster whose first attempts end early."""

    def __init__(self, changing: Changing, capture: Path, root: Path) -> None:
        self._changing = changing
        self._root = root
        self._original = root / "original" / "data"
        self._data = root / "data"
        changing.lay(capture, self._original)
        self._found = state(self._original)
        self._expected = self._run(fanout.run)
        self._planned = contents(state(self._data))
        self._count = 0

    def _run(
        self, over: Callable[[GroupWork, Sequence[TargetGroup], Any], Iterator[Event]], **options: Any
    ) -> list[Event]:
        shutil.rmtree(self._data, ignore_errors=True)
        shutil.copytree(self._original, self._data)
        return timeless(self._changing.events(self._data, over, apply=True, run_id=RUN, **options))

    def assert_same(self, cluster: ClusterOptions, end: End, at: int) -> list[str]:
        """Check the result; returns the numbers of the attempts at each target, and a 0 for each attempt that ended early."""
        self._count += 1
        notes = self._root / f"notes-{self._count}"
        notes.mkdir()

        def over(work: GroupWork, groups: Sequence[TargetGroup], options: Any) -> Iterator[Event]:
            return on_cluster.run(
                FailsOnce(work, end, at, str(notes)), groups, options, cluster, in_place=True
            )

        assert self._run(over, shared=SharedRun(RUN)) == self._expected
        _await_unlocked(self._data)
        assert contents(state(self._data)) == self._planned
        # purged files are gone for good
        if self._changing is not CHANGINGS["retain"]:
            undo_all(self._data)
            assert state(self._data) == self._found
        return sorted(path.name for path in notes.iterdir())


def _await_unlocked(log_dir: Path) -> None:
    """Wait for an attempt that is still running after another has ended the run."""
    give_up = time.monotonic() + 120
    while lock_holder(str(log_dir)) is not None:
        assert time.monotonic() < give_up, "an attempt goes on"
        time.sleep(0.05)


@pytest.fixture
def stage(changing: Changing, capture_small: Path, tmp_path: Path) -> Stage:
    return Stage(changing, capture_small, tmp_path)


@pytest.mark.parametrize("end", [End.KILLED, End.FAILS])
def test_task_that_dies_during_a_change_is_completed_by_another(
    any_spark: SparkSession, shipped: Path, stage: Stage, end: End
) -> None:
    any_spark.sparkContext.addPyFile(str(shipped))
    for at in (3, 14, 22):
        notes = stage.assert_same(ClusterOptions(), end, at)
        assert any(name.endswith(".0") for name in notes), "nothing has ended"
        assert all(name.removesuffix("0") + "2" in notes for name in notes if name.endswith(".0"))


def test_executor_declared_lost_that_works_on_does_not_change_the_result(
    cluster_spark: SparkSession, shipped: Path, stage: Stage
) -> None:
    cluster_spark.sparkContext.addPyFile(str(shipped))
    notes = stage.assert_same(ClusterOptions(), End.LOST, 14)
    assert any(name.endswith(".0") for name in notes)


@pytest.fixture(scope="module")
def speculating(use_master: Use, standalone: Standalone) -> Iterator[SparkSession]:
    """A session that starts a second attempt at any task that takes longer than a moment."""
    if (before := session.active()) is not None:
        before.stop()
    conf = (
        ("spark.speculation", "true"),
        ("spark.speculation.interval", "50ms"),
        ("spark.speculation.minTaskRuntime", "50ms"),
        ("spark.speculation.task.duration.threshold", "200ms"),
    )
    spark = session.get(ClusterOptions(master=standalone.url, conf=(*CONF, *conf)))
    yield spark
    spark.stop()


def test_two_simultaneous_attempts_do_not_change_the_result(
    speculating: SparkSession, shipped: Path, stage: Stage
) -> None:
    speculating.sparkContext.addPyFile(str(shipped))
    notes = stage.assert_same(ClusterOptions(), End.SLOW, 14)
    slow = [name for name in notes if name.endswith(".0")]
    assert slow
    assert all(name.removesuffix("0") + "2" in notes for name in slow), "no second attempt was there"
