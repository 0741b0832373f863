"""Which files a read opens, and how they are distributed."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark")
pytest.importorskip("pyarrow")

from kseg.inspection.arrow.log_ranges import LogPiece
from kseg.segment.errors import UnreadableInput, UsageError
from kseg.segment.partition.partition_log import PartitionLog
from kseg.segment.partition.targets import PartitionTarget
from kseg.spark.source import splits
from kseg.spark.source.splits import DataLoss
from tests.support.scan_helpers import batch
from tests.support.source_tasks import pieces, tasks

# --- which partitions


@pytest.fixture
def many(tmp_path: Path) -> Path:
    for topic in ("a", "b"):
        for partition in range(3):
            directory = tmp_path / f"{topic}-{partition}"
            directory.mkdir()
            (directory / f"{0:020d}.log").write_bytes(batch(0, 1))
    (tmp_path / f"a-7.{32 * '0'}-delete").mkdir()
    (tmp_path / f"a-7.{32 * '0'}-delete" / f"{0:020d}.log").write_bytes(batch(0, 1))
    return tmp_path


def names(found: list[LogPiece]) -> list[str]:
    return [f"{piece.topic}-{piece.partition}" for piece in found]


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({}, ["a-0", "a-1", "a-2", "b-0", "b-1", "b-2"]),
        ({"subscribe": "b"}, ["b-0", "b-1", "b-2"]),
        ({"subscribePattern": "[ac]"}, ["a-0", "a-1", "a-2"]),
        ({"subscribePattern": "^b$"}, ["b-0", "b-1", "b-2"]),
        ({"assign": '{"b":[2],"a":[1]}'}, ["a-1", "b-2"]),
    ],
)
def test_subscription_selects_the_partitions_read(
    many: Path, given: dict[str, str], expected: list[str]
) -> None:
    assert names(pieces(many, **given)) == expected


@pytest.mark.parametrize(
    ("given", "what"), [({"subscribe": "a,c,d"}, "c, d"), ({"assign": '{"a":[0,9]}'}, "a-9")]
)
def test_missing_topic_or_partition_is_refused(many: Path, given: dict[str, str], what: str) -> None:
    with pytest.raises(UnreadableInput, match=f"there is no {what} in"):
        pieces(many, **given)


def test_wildcard_paths_skip_suffixed_directories(many: Path) -> None:
    assert names(pieces(many / "b-*")) == ["b-0", "b-1", "b-2"]
    assert names(pieces(many / f"a-7.{32 * '0'}-delete")) == ["a-7"]
    assert names(pieces(many / "a-0" / f"{0:020d}.log")) == ["a-0"]
    with pytest.raises(UnreadableInput, match="no files match"):
        pieces(many / "c-*")
    with pytest.raises(UnreadableInput, match="No such file or directory"):
        pieces(many / "c-0")


def test_partition_given_by_several_paths_is_read_once(many: Path) -> None:
    for more in (many, many / "b-1", many / "b-*"):
        assert names(pieces(many, paths=json.dumps([str(many), str(more)]))) == names(pieces(many))


def test_unselected_partitions_are_not_opened(many: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    looked: list[str] = []

    def note(target: PartitionTarget, **options: Any) -> PartitionLog:
        looked.append(os.path.basename(target.path))
        return PartitionLog(target, **options)

    monkeypatch.setattr(splits, "PartitionLog", note)
    assert names(pieces(many, assign='{"b":[1]}')) == ["b-1"]
    assert looked == ["b-1"]


def test_directory_not_named_like_a_partition_is_read_by_its_name(
    many: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (many / "a-0").rename(many / "rescued")
    assert [(piece.topic, piece.partition) for piece in pieces(many / "rescued")] == [("rescued", -1)]
    monkeypatch.chdir(many / "rescued")
    assert names(pieces(Path("."))) == ["rescued--1"]


@pytest.mark.parametrize("content", [None, b""])
def test_empty_partition_gives_no_tasks(tmp_path: Path, content: bytes | None) -> None:
    (tmp_path / "t-0").mkdir()
    if content is not None:
        (tmp_path / "t-0" / f"{0:020d}.log").write_bytes(content)
    assert pieces(tmp_path) == pieces(tmp_path, startingOffsets='{"t":{"0":0}}') == []
    assert pieces(tmp_path, **{"isolation.level": "read_committed"}) == []
    with pytest.raises(DataLoss, match="startingOffsets of t-0 is 1, but the log ranges from 0 to 0"):
        pieces(tmp_path, startingOffsets='{"t":{"0":1}}')
    with pytest.raises(UsageError, match="no record of t-0 has a timestamp at or after 5"):
        pieces(tmp_path, startingTimestamp="5")


def test_directory_without_kafka_files_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UnreadableInput, match="contains no Kafka partition, segment or checkpoint"):
        pieces(tmp_path)


# --- tasks


def test_small_partitions_share_one_task(many: Path) -> None:
    assert [len(task) for task in tasks(many)] == [6]
    assert len(tasks(many, minPartitions="6")) == 6


def large(tmp_path: Path) -> Path:
    directory = tmp_path / "large-0"
    directory.mkdir()
    data = b"".join(batch(2 * number, 2, b"v" * 9000) for number in range(200))
    (directory / f"{0:020d}.log").write_bytes(data)
    return directory


@pytest.mark.parametrize(
    ("given", "count"),
    [
        ({}, 1),
        ({"minPartitions": "8"}, 8),
        ({"maxPartitionBytes": str(1 << 20)}, 3),
        ({"maxRecordsPerPartition": "50"}, 8),
    ],
)
def test_large_segment_is_divided(tmp_path: Path, given: dict[str, str], count: int) -> None:
    found = pieces(large(tmp_path), **given)
    assert abs(len(found) - count) <= 1
    assert found[0].start == 0 and found[-1].stop is None
    if "maxRecordsPerPartition" not in given:
        assert [piece.stop for piece in found[:-1]] == [piece.start for piece in found[1:]]


@pytest.mark.parametrize("entry_every", [None, 1, 3])
@pytest.mark.parametrize("least", [2, 3, 4, 5, 7, 16])
def test_pieces_have_equal_sizes_and_the_requested_number(
    tmp_path: Path, least: int, entry_every: int | None
) -> None:
    directory = large(tmp_path)
    log = directory / f"{0:020d}.log"
    batch_bytes = log.stat().st_size // 200
    if entry_every is not None:
        entries = [
            (2 * n + 1).to_bytes(4, "big") + (n * batch_bytes).to_bytes(4, "big")
            for n in range(entry_every, 200, entry_every)
        ]
        log.with_suffix(".index").write_bytes(b"".join(entries))
    for given in (
        {"minPartitions": str(least)},
        {"maxPartitionBytes": str(-(-log.stat().st_size // least)), "minPartitions": "1"},
    ):
        found = tasks(directory, **given)
        assert len(found) == least and all(len(task) == 1 for task in found)
        sizes = [task[0].size_bytes for task in found]
        assert sum(sizes) == log.stat().st_size
        even = sum(sizes) // least
        assert all(abs(size - even) <= (entry_every or 1) * batch_bytes for size in sizes), sizes


def test_no_piece_is_much_larger_than_the_task_limit(tmp_path: Path) -> None:
    """A segment of 1.9 times the limit used to be one part, because the last part of a segment could be up to twice as large as the
    others."""
    directory = large(tmp_path)
    size_bytes = (directory / f"{0:020d}.log").stat().st_size
    for share in (0.99, 0.75, 0.53, 0.35, 0.26):
        most = int(size_bytes * share)
        found = pieces(directory, maxPartitionBytes=str(most))
        assert max(piece.size_bytes for piece in found) <= most + size_bytes // 200, share


def test_uneven_batches_still_give_enough_parts(tmp_path: Path) -> None:
    directory = tmp_path / "uneven-0"
    directory.mkdir()
    data = batch(0, 2, b"v" * 400_000) + b"".join(batch(2 * n, 2, b"v" * 9000) for n in range(1, 50))
    (directory / f"{0:020d}.log").write_bytes(data)
    assert len(tasks(directory, minPartitions="4")) >= 4


def test_records_per_task_are_limited_as_requested(tmp_path: Path) -> None:
    path = large(tmp_path)
    for given, count in (
        ({"maxRecordsPerPartition": "50"}, 8),
        ({"maxRecordsPerPartition": "50", "minPartitions": "16"}, 16),
        ({"maxRecordsPerPartition": "50", "minPartitions": "1000"}, 400),
        ({"maxRecordsPerPartition": str(2**63 - 1), "minPartitions": "16"}, 16),
    ):
        found = tasks(path, **given)
        assert all(len(task) == 1 for task in found)
        edges = [task[0].bounds.from_offset for task in found] + [400]
        sizes = [high - low for low, high in pairwise(edges)]
        assert edges[0] == 0 and max(sizes) <= min(50, -(-400 // count) + 1), given
        assert count <= len(found) <= count + 1, given


def test_number_of_tasks_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(splits, "MAX_TASKS", 100)
    path = large(tmp_path)
    assert len(tasks(path, maxRecordsPerPartition="4")) == 100
    with pytest.raises(
        UsageError, match="maxRecordsPerPartition 3 would split the offsets into more than 100 tasks"
    ):
        tasks(path, maxRecordsPerPartition="3")
    with pytest.raises(
        UsageError,
        match="maxRecordsPerPartition 5 and minPartitions 101 would split the offsets into more than 100",
    ):
        tasks(path, maxRecordsPerPartition="5", minPartitions="101")


def test_tasks_can_be_pickled(tmp_path: Path) -> None:
    import pickle

    planned: Callable[..., Any] = tasks
    found = planned(large(tmp_path), minPartitions="4")
    assert pickle.loads(pickle.dumps(found)) == found
