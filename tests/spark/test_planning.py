"""How targets are distributed over tasks, by number and by size. No cluster is needed."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any, cast

import pytest

from kseg.change.append.partition_writer import PartitionWriter
from kseg.inspection.dump.dump import Dump
from kseg.inspection.dump.options import DumpOptions
from kseg.inspection.record_filter import Selection
from kseg.jobs.events import Event
from kseg.segment.model import NewBatch, Record
from kseg.segment.partition.targets import Expansion, FileTarget, PartitionTarget, resolve_targets
from kseg.spark import cluster_fanout, path_probes, scheduling
from kseg.spark.dispatch import lister
from kseg.spark.options import ClusterOptions
from tests.support.fake_spark import Pretended

MIB = 1024 * 1024


def nothing(_target: FileTarget | PartitionTarget, _options: None) -> Iterator[Event]:
    yield from ()


def sparse(directory: Path, *sizes_bytes: int) -> list[FileTarget]:
    """Sparse files of these sizes."""
    targets = []
    for number, size_bytes in enumerate(sizes_bytes):
        path = directory / f"{number:04d}.log"
        with path.open("wb") as file:
            file.truncate(size_bytes)
        targets.append(FileTarget(str(path)))
    return targets


def test_every_target_is_in_one_group_in_order(tmp_path: Path) -> None:
    targets = sparse(tmp_path, *(n * 100_000 for n in range(100)))
    groups = scheduling.plan(nothing, scheduling.weigh(targets), None, 4)
    assert [unit.number for group in groups for unit in group] == list(range(100))
    assert [unit.target for group in groups for unit in group] == targets


def test_number_of_tasks_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    targets = sparse(tmp_path, *[scheduling.MAX_SHARE_BYTES] * 400)
    assert len(scheduling.plan(nothing, scheduling.weigh(targets), None, 4)) == 400
    monkeypatch.setattr(scheduling, "MAX_SHARES", 50)
    assert 25 <= len(scheduling.plan(nothing, scheduling.weigh(targets), None, 4)) <= 50


def test_small_targets_share_tasks_by_size(tmp_path: Path) -> None:
    targets = sparse(tmp_path, *[10_000] * 2000)
    groups = scheduling.plan(nothing, scheduling.weigh(targets), None, 4)
    assert len(groups) == 4 * scheduling.SHARES_PER_CORE
    assert {len(group) for group in groups} == {2000 // len(groups)}


def test_few_targets_get_one_task_each(tmp_path: Path) -> None:
    assert [
        len(group) for group in scheduling.plan(nothing, scheduling.weigh(sparse(tmp_path, 5, 5, 5)), None, 8)
    ] == [
        1,
        1,
        1,
    ]


def test_heavy_target_gets_a_task_of_its_own(tmp_path: Path) -> None:
    targets = sparse(tmp_path, *[10_000] * 50, 900 * MIB, *[10_000] * 50)
    groups = scheduling.plan(nothing, scheduling.weigh(targets), None, 2)
    (heavy,) = (group for group in groups if any(unit.number == 50 for unit in group))
    assert len(heavy) == 1


def test_bytes_of_several_targets_in_a_task_are_bounded(tmp_path: Path) -> None:
    groups = scheduling.plan(nothing, scheduling.weigh(sparse(tmp_path, *[100 * MIB] * 200)), None, 1)
    loads = [sum(unit.weight_bytes for unit in group) for group in groups]
    assert max(loads) <= scheduling.MAX_SHARE_BYTES * 1.2
    assert len(groups) > 60


def test_unreadable_target_gets_a_task(tmp_path: Path) -> None:
    groups = scheduling.plan(nothing, scheduling.weigh([FileTarget(str(tmp_path / "absent.log"))]), None, 2)
    assert [unit.weight_bytes for group in groups for unit in group] == [0]


def test_directory_weight_is_the_size_of_its_files(tmp_path: Path) -> None:
    sparse(tmp_path, 3000, 4000)
    ((unit,),) = scheduling.plan(nothing, scheduling.weigh([PartitionTarget(str(tmp_path))]), None, 2)
    assert unit.weight_bytes == 7000


# --- pieces


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A partition with one indexed segment of several MiB."""
    directory = tmp_path_factory.mktemp("large") / "orders-0"
    with PartitionWriter(directory) as writer:
        for first in range(0, 4000, 10):
            records = tuple(Record(n, 1000 + n, b"k%d" % n, bytes(1000)) for n in range(first, first + 10))
            writer.append(NewBatch(records=records))
    return directory


def batch_starts(log: Path) -> set[int]:
    data, starts, position = log.read_bytes(), set(), 0
    while position < len(data):
        starts.add(position)
        position += 12 + int.from_bytes(data[position + 8 : position + 12], "big")
    return starts


def test_large_log_is_divided_at_batches_by_its_index(large: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scheduling, "PIECE_BYTES", 200_000)
    (log,) = large.glob("*.log")
    groups = scheduling.plan(
        Dump(), scheduling.weigh([FileTarget(str(log))]), DumpOptions(print_data_log=True), 2
    )
    units = [unit for group in groups for unit in group]
    size_bytes = log.stat().st_size
    assert len(units) == round(size_bytes / 200_000)
    assert units[0].start == 0 and units[-1].stop == size_bytes
    assert [unit.stop for unit in units[:-1]] == [unit.start for unit in units[1:]]
    assert {unit.start for unit in units} <= batch_starts(log)
    assert [unit.is_last for unit in units] == [False] * (len(units) - 1) + [True]
    # the largest part is little larger than the smallest, so none delays the end
    assert max(unit.weight_bytes for unit in units) < 1.5 * min(unit.weight_bytes for unit in units)
    assert max(len(group) for group in groups) <= 2


def test_divided_heavy_log_leaves_no_straggler(
    large: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scheduling, "PIECE_BYTES", 200_000)
    (log,) = large.glob("*.log")
    targets = [FileTarget(str(log)), *sparse(tmp_path, *[1000] * 20)]
    loads = [
        sum(unit.weight_bytes for unit in group)
        for group in scheduling.plan(Dump(), scheduling.weigh(targets), DumpOptions(deep_iteration=True), 2)
    ]
    # the one log could keep twice as many tasks busy as there are cores
    assert max(loads) < sum(loads) / 4


@pytest.mark.parametrize(
    "options",
    [
        DumpOptions(max_bytes=1_000_000),
        DumpOptions(selection=Selection(limit=5)),
        DumpOptions(selection=Selection(from_offset=5)),
        DumpOptions(selection=Selection(read_committed=True)),
    ],
)
def test_target_with_sequential_work_is_not_divided(
    large: Path, options: DumpOptions, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scheduling, "PIECE_BYTES", 200_000)
    (log,) = large.glob("*.log")
    ((unit,),) = scheduling.plan(Dump(), scheduling.weigh([FileTarget(str(log))]), options, 2)
    assert unit.start is None and unit.is_last


# --- many directories


@pytest.fixture
def context(monkeypatch: pytest.MonkeyPatch) -> Pretended:
    pretended = Pretended()
    monkeypatch.setattr(cluster_fanout, "ready", lambda _cluster, _say: pretended)
    monkeypatch.setattr(path_probes, "MAX_DRIVER_PROBES", 5)
    monkeypatch.setattr(path_probes, "PROBES_PER_TASK", 4)
    return pretended


def crowd(home: Path, count: int) -> list[str]:
    """A data directory with this number of partitions, of two files each, and a file of its own."""
    for number in range(count):
        (home / f"orders-{number}").mkdir(parents=True)
        sparse(home / f"orders-{number}", 1000 + number)
        (home / f"orders-{number}" / "00000000000000000007.index").touch()
    (home / "recovery-point-offset-checkpoint").write_text("0\n0\n")
    return sorted(str(path) for path in home.glob("orders-*"))


@pytest.mark.parametrize(("count", "tasks_of_job"), [(5, []), (6, [2]), (17, [5])])
def test_many_directories_are_listed_by_a_spark_job(
    tmp_path: Path, context: Pretended, count: int, tasks_of_job: list[int]
) -> None:
    crowd(tmp_path / "data", count)
    list_files = lister(ClusterOptions(), lambda _sentence: None)
    given = [str(tmp_path / "data")]
    narrowings: tuple[dict[str, Any], ...] = ({}, {"partition": 3}, {"topics": ("none",)})
    for narrowing in narrowings:
        alone = resolve_targets(given, expand=Expansion.FILES, **narrowing)
        assert resolve_targets(given, expand=Expansion.FILES, list_files=list_files, **narrowing) == alone
    assert context.tasks == tasks_of_job


def test_many_targets_are_weighed_by_a_spark_job(tmp_path: Path, context: Pretended) -> None:
    targets = [PartitionTarget(path) for path in crowd(tmp_path / "data", 10)]
    assert list(cluster_fanout.run(nothing, targets, None, ClusterOptions())) == []
    assert context.tasks[0] == 3
    look = partial(
        path_probes.probe_on_cluster,
        cast("Any", context),
        cluster_fanout.task_run(nothing, targets, None),
        scheduling.weights,
    )
    assert scheduling.weigh(targets, look) == scheduling.weigh(targets)


def test_unlistable_partition_is_kept_as_a_target(tmp_path: Path, context: Pretended) -> None:
    paths = crowd(tmp_path / "data", 7)
    listed = lister(ClusterOptions(), lambda _sentence: None)([*paths, str(tmp_path / "absent-0")])
    assert [len(files) for files in listed] == [2] * 7 + [1]
    assert list(listed)[-1] == [FileTarget(str(tmp_path / "absent-0"))]
