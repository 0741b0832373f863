"""Compaction by shuffle on a real Spark gives the local result, even if tasks fail and executors are lost."""

from __future__ import annotations

import json
import os
import random
import signal
import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from kseg.cli.main import run
from kseg.compaction.cleaner.options import CompactOptions
from kseg.spark.shuffle import shuffled_passes
from tests.kafka.cleaning import random_case
from tests.support.command_lines import Capfd
from tests.support.compact_helpers import SETTINGS, Topic
from tests.support.shuffle_helpers import assert_same, local, result_of, shuffled
from tests.support.trees import files_in

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark
SLOT = 24


def keyed_topic(parent: Path, keys: int) -> Path:
    """Several segments of random keys, some of them in transactions."""
    rng = random.Random(keys)
    topic = Topic(parent, segment_bytes=8000)
    for number in range(120):
        rows = [(f"key-{rng.randrange(keys)}", rng.choice(("value", "v", None))) for _ in range(20)]
        if number % 5:
            topic.send(*rows)
        else:
            producer = 7 + number % 3
            topic.send(*rows, producer=producer, transactional=True)
            topic.end(producer, abort=number % 2 == 0)
    return topic.roll_and_close()


@pytest.mark.parametrize("seed", [8, 20])
def test_shuffle_compaction_of_random_logs_equals_the_local_one(
    local_spark: SparkSession, seed: int, tmp_path: Path
) -> None:
    case = random_case(seed, tmp_path)
    settings = replace(case.settings, map_bytes=SLOT * 1000)
    assert_same(case.directory, CompactOptions(settings=settings), local_spark.sparkContext)


def test_shuffle_compaction_of_more_keys_than_memory_equals_the_local_one(
    local_spark: SparkSession, tmp_path: Path
) -> None:
    directory = keyed_topic(tmp_path, 1500)
    large = CompactOptions(settings=replace(SETTINGS, segment_bytes=20_000))
    small = replace(large, settings=replace(large.settings, map_bytes=SLOT * 150))
    assert result_of(local(directory, small))["passes"] > 5
    with_room, by_shuffle = local(directory, large), passes_on(local_spark, directory, small)
    assert by_shuffle == result_of(with_room)
    assert by_shuffle["map_keys"] > 6 * small.settings.map_keys


def passes_on(session: SparkSession, directory: Path, options: CompactOptions) -> dict[str, Any]:
    return result_of(shuffled(directory, options, session.sparkContext))


def test_compact_shuffles_only_partitions_whose_keys_do_not_fit(
    local_spark: SparkSession, tmp_path: Path, capfd: Capfd
) -> None:
    """One partition whose keys fit into memory and one whose keys do not: output and files are those of a local run with memory for all
    keys."""
    reported, policy = [], ("--cleanup-policy", "compact")
    for name, words in (
        ("local", ["--map-memory", "1MiB"]),
        ("shuffled", ["--map-memory", "3600", "--spark"]),
    ):
        parent = tmp_path / name
        keyed_topic(parent, 1500)
        small = Topic(parent, name="small-0")
        small.send(("a", 1), ("b", 2), ("a", 3))
        small.roll_and_close()
        paths = [str(parent / "accounts-0"), str(parent / "small-0")]
        status = run(["compact", *policy, "--json", "--now", str(SETTINGS.now_ms), *words, *paths])
        plan = capfd.readouterr().out.replace(str(parent), "")
        assert run(["compact", *policy, "--apply", "--now", str(SETTINGS.now_ms), *words, *paths]) == 0
        capfd.readouterr()
        reported.append((status, plan, [files_in(Path(path)) for path in paths]))
    assert reported[1] == reported[0]
    results = [row for row in map(json.loads, reported[0][1].splitlines()) if row["type"] == "result"]
    assert [row["passes"] for row in results] == [1, 1] and results[0]["map_keys"] > 1000


@dataclass
class OnceOnly:
    """The work of a task. Its first attempt, on whichever node, fails when everything is done but not yet reported."""

    work: Callable[..., Any]
    mark: str
    is_deadly: bool

    def __call__(self, *arguments: Any) -> Any:
        done = list(self.work(*arguments))
        try:
            os.close(os.open(self.mark, os.O_CREAT | os.O_EXCL))
        except FileExistsError:
            return iter(done)
        if self.is_deadly:
            os.kill(executor_of(os.getpid()), signal.SIGKILL)
        raise RuntimeError("this attempt fails")


def executor_of(pid: int) -> int:
    """The process id of the JVM above a Python process."""
    while "java" not in os.readlink(f"/proc/{pid}/exe"):
        with open(f"/proc/{pid}/stat", encoding="ascii") as file:
            pid = int(file.read().rpartition(")")[2].split()[1])
    return pid


def hinder(monkeypatch: pytest.MonkeyPatch, marks: Path, step: str, *, is_deadly: bool = False) -> None:
    """Make the first task of a step fail, once over all runs."""
    real = getattr(shuffled_passes, step)
    mark = str(marks / step)
    monkeypatch.setattr(shuffled_passes, step, lambda *reported: OnceOnly(real(*reported), mark, is_deadly))


@pytest.fixture
def by_value() -> Any:
    """Pickle what is defined here by value, because the nodes do not have the tests."""
    from pyspark import cloudpickle

    module = sys.modules[__name__]
    cloudpickle.register_pickle_by_value(module)  # type: ignore[no-untyped-call]
    yield
    cloudpickle.unregister_pickle_by_value(module)  # type: ignore[no-untyped-call]


@pytest.mark.usefixtures("by_value")
@pytest.mark.parametrize("is_deadly", [False, True], ids=["attempt fails", "executor killed"])
def test_shuffle_compaction_survives_failed_attempts_and_executors(
    cluster_spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_deadly: bool
) -> None:
    """Even if an executor is lost together with its shuffle output, Spark computes it again with the same result."""
    directory = keyed_topic(tmp_path, 300)
    settings = replace(SETTINGS, segment_bytes=20_000, map_bytes=SLOT * 1000)
    steps = ("Rewriting",) if is_deadly else ("Keys", "Verdicts", "Rewriting")
    for step in steps:
        hinder(monkeypatch, tmp_path, step, is_deadly=is_deadly)
    assert_same(directory, CompactOptions(settings=settings), cluster_spark.sparkContext, only_applied=True)
    assert all((tmp_path / step).exists() for step in steps)
