"""A compaction by shuffle equals the local one with memory for all keys, for random logs, damaged logs and unusual logs.

No cluster is needed: tasks run in this process, and their inputs and results are pickled. KSEG_SHUFFLE_CASES sets the number of cases,
KSEG_SHUFFLE_SEED the first seed. A failure names the seed that repeats it.
"""

from __future__ import annotations

import os
import random
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from kseg.change.run.pipeline import TargetGroup
from kseg.compaction.cleaner.compact import compact_group
from kseg.compaction.cleaner.options import CompactOptions, Damaged
from kseg.jobs.events import Row
from kseg.segment import layout as L
from kseg.segment.crc import crc32c
from kseg.segment.memory import PrivateMemory
from kseg.segment.partition.targets import FileTarget, PartitionTarget
from kseg.spark import cluster_fanout
from kseg.spark.options import ClusterOptions
from kseg.spark.shuffle import compact, fold, keys, rewriting, shuffled_passes, task_steps
from kseg.spark.shuffle.compact import is_too_large
from kseg.spark.shuffle.task_messages import ShufflePlan
from tests.kafka.cleaning import Case, random_case
from tests.support.compact_helpers import SETTINGS, Topic, batches, kept, log
from tests.support.shuffle_helpers import (
    InProcess,
    assert_same,
    has_failed,
    kinds,
    local,
    result_of,
    shuffled,
    travelled,
)

pytest.importorskip("pyspark")

CASES = int(os.environ.get("KSEG_SHUFFLE_CASES", "60"))
FIRST = int(os.environ.get("KSEG_SHUFFLE_SEED", "0"))
SLOT = 24


def options_of(case: Case, rng: random.Random, **chosen: Any) -> CompactOptions:
    """With memory for all keys, and any first dirty offset."""
    bases = sorted(int(path.name[:20]) for path in case.directory.glob("*.log"))
    dirty = rng.randint(bases[0], bases[-1] + 3) if rng.random() < 0.5 else None
    settings = replace(case.settings, map_bytes=SLOT * 1000)
    active = rng.random() < 0.4
    return CompactOptions(settings=settings, first_dirty_offset=dirty, include_active=active, **chosen)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(FIRST, FIRST + CASES))
def test_shuffle_compaction_of_random_logs_equals_the_local_one(seed: int, tmp_path: Path) -> None:
    case = random_case(seed, tmp_path)
    assert_same(case.directory, options_of(case, random.Random(seed)))


@pytest.mark.parametrize("damaged", list(Damaged))
@pytest.mark.parametrize("seed", range(FIRST, FIRST + max(1, CASES // 4)))
def test_shuffle_compaction_reports_damage_like_the_local_one(
    seed: int, damaged: Damaged, tmp_path: Path
) -> None:
    rng = random.Random(f"damage {seed}")
    case = random_case(seed, tmp_path)
    options = options_of(case, rng, damaged=damaged)
    closed = sorted(case.directory.glob("*.log"))[:-1]
    for path in rng.sample(closed, min(len(closed), rng.choice((1, 1, 2)))):
        data = bytearray(path.read_bytes())
        if len(data) > L.BATCH_HEADER:
            data[rng.randrange(17, len(data))] ^= 1 << rng.randrange(8)
            path.write_bytes(data)
    assert_same(case.directory, options)


def damage_record(path: Path, number: int) -> None:
    """Make batch `number` of a log declare that its first record is longer than it is, with a valid checksum."""
    data = bytearray(path.read_bytes())
    batch = batches(path.parent)[number]
    assert path == log(path.parent, 0)
    start, end = batch.position, batch.position + batch.size_bytes
    data[start + L.BATCH_HEADER] = 0x7E
    data[start + 17 : start + 21] = crc32c(bytes(data[start + 21 : end])).to_bytes(4, "big")
    path.write_bytes(data)


def test_impossible_record_count_creates_no_tasks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A valid batch declares 2**31 - 1 records, and the next segment begins far away. Tasks are planned for records that can exist."""
    topic = Topic(tmp_path)
    for number in range(6):
        topic.send((f"k{number % 3}", number))
    topic.roll()
    path = log(topic.close(), 0)
    data = bytearray(path.read_bytes())
    end = batches(topic.directory)[0].end_position
    data[57:61] = L.INT32_MAX.to_bytes(4, "big")
    data[17:21] = crc32c(bytes(data[21:end])).to_bytes(4, "big")
    path.write_bytes(data)
    parts: list[int] = []

    def noted(secret: tuple[int, int], count: int, *more: Any) -> ShufflePlan:
        parts.append(count)
        return ShufflePlan(secret, count, *more)

    monkeypatch.setattr(shuffled_passes, "ShufflePlan", noted)
    options = CompactOptions(settings=replace(SETTINGS, map_bytes=1 << 20), damaged=Damaged.SKIP)
    plan, _ = assert_same(topic.directory, options)
    assert "undecodable-batch" in kinds(plan)
    far = L.INT32_MAX - 10
    for name in topic.directory.glob(f"{6:020}.*"):
        name.rename(name.with_name(name.name.replace(f"{6:020}", f"{far:020}")))
    # a batch with fewer offsets has fewer records, whatever it declares
    last = [each for each in batches(topic.directory) if each.base_offset < 6][-1]
    start, end = last.position, last.end_position
    data[start + 23 : start + 27] = (far - 1 - last.base_offset).to_bytes(4, "big")
    data[start + 57 : start + 61] = L.INT32_MAX.to_bytes(4, "big")
    data[start + 17 : start + 21] = crc32c(bytes(data[start + 21 : end])).to_bytes(4, "big")
    path.write_bytes(data)
    monkeypatch.setattr(shuffled_passes, "MAX_SHARES", 70)
    shuffled(topic.directory, options)
    assert set(parts[:-1]) == {2} and parts[-1] == 70


@pytest.mark.parametrize("dirty", [0, 6])
@pytest.mark.parametrize("damaged", list(Damaged))
def test_damage_inside_a_valid_batch_is_reported(dirty: int, damaged: Damaged, tmp_path: Path) -> None:
    topic = Topic(tmp_path)
    for number in range(12):
        topic.send((f"k{number % 3}", number), (None, 1))
        if number % 4 == 3:
            topic.roll()
    damage_record(log(topic.close(), 0), 2)
    options = CompactOptions(settings=replace(SETTINGS, segment_bytes=200), damaged=damaged)
    plan, _ = assert_same(topic.directory, replace(options, first_dirty_offset=dirty))
    assert has_failed(plan) is (damaged is Damaged.REFUSE) and kinds(plan)


def test_shuffle_compaction_takes_one_pass_where_a_small_map_takes_many(tmp_path: Path) -> None:
    """40 times as many keys as the map has room for: the result is that of one large map, while each part of the keys is small."""
    topic = Topic(tmp_path, segment_bytes=6000)
    keys = random.Random(5)
    for _ in range(150):
        topic.send(*[(f"key-{keys.randrange(1500)}", "value") for _ in range(20)])
    directory = topic.roll_and_close()
    small = CompactOptions(settings=replace(SETTINGS, map_bytes=SLOT * 32, segment_bytes=20_000))
    large = replace(small, settings=replace(small.settings, map_bytes=SLOT * 10_000))
    assert result_of(local(directory, small))["passes"] > 30
    at_once = result_of(shuffled(directory, small))
    assert at_once == result_of(local(directory, large))
    assert (at_once["passes"], at_once["live_keys"]) == (1, at_once["map_keys"])
    assert is_too_large(PartitionTarget(str(directory)), small)
    assert not is_too_large(PartitionTarget(str(directory)), large)
    assert not is_too_large(FileTarget(str(log(directory, 0))), small)


def test_memory_of_a_part_is_bounded_by_the_map_size(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    topic = Topic(tmp_path, segment_bytes=6000)
    for number in range(100):
        topic.send(*[(f"key-{number}-{at}", "value") for at in range(20)])
    topic.roll()
    map_bytes = SLOT * 400
    taken = []

    def memory(size_bytes: int, **more: Any) -> Any:
        taken.append(size_bytes)
        return real(size_bytes, **more)

    real = PrivateMemory
    monkeypatch.setattr(fold, "PrivateMemory", memory)
    monkeypatch.setattr(keys, "PrivateMemory", memory)
    options = CompactOptions(settings=replace(SETTINGS, map_bytes=map_bytes))
    result = result_of(shuffled(topic.close(), options))
    assert result["map_keys"] == 2000
    assert taken and max(taken) <= map_bytes


def test_non_increasing_offsets_are_refused_like_locally(tmp_path: Path) -> None:
    """If a last offset is beyond the next segment, an offset no longer identifies a single record."""
    topic = Topic(tmp_path)
    for number in range(6):
        topic.send((f"k{number % 2}", number))
    topic.roll()
    topic.send(("k0", 9), ("k1", 9))
    topic.roll()
    first = log(topic.close(), 0)
    target = first.with_name(f"{5:020}.log")
    for path in topic.directory.glob(f"{6:020}.*"):
        path.rename(path.with_name(path.name.replace(f"{6:020}", f"{5:020}")))
    assert target.exists()
    plan, _ = assert_same(topic.directory, CompactOptions(settings=SETTINGS))
    assert has_failed(plan)
    assert kinds(plan) == {"offset-not-monotonic"}


def test_segment_to_be_split_is_left_to_one_process(tmp_path: Path) -> None:
    far = L.INT32_MAX + 100
    first, second = Topic(tmp_path / "one"), Topic(tmp_path / "two", start=far)
    first.send(("a", 1), ("b", 2))
    second.send(("a", 3), ("c", 4))
    one, two = first.close(), second.close()
    directory = Topic(tmp_path / "both", start=far + 2).close()
    log(directory, 0).write_bytes(log(one, 0).read_bytes() + log(two, far).read_bytes())
    for suffix in (".index", ".timeindex"):
        (directory / f"{0:020}{suffix}").write_bytes(b"")
    plan, _ = assert_same(directory, CompactOptions(settings=SETTINGS))
    assert "offset-overflow" in kinds(plan)


def test_shuffle_compaction_writes_a_copy(tmp_path: Path) -> None:
    topic = Topic(tmp_path / "data")
    for number in range(30):
        topic.send((f"k{number % 4}", number))
    directory = topic.roll_and_close()
    options = CompactOptions(settings=SETTINGS, output=str(tmp_path / "copies" / "by-shuffle"))
    done = result_of(shuffled(directory, options))
    assert done["output"] == str(tmp_path / "copies" / "by-shuffle" / "accounts-0")
    again = result_of(local(directory, replace(options, output=str(tmp_path / "copies" / "here"))))
    assert {**again, "output": done["output"]} == done
    assert kept(Path(done["output"])) == kept(Path(again["output"]))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["copies", "data"]


def test_each_attempt_writes_its_own_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A task is attempted twice, and the first attempt leaves its file, of which nothing is in the result."""
    topic = Topic(tmp_path)
    for number in range(30):
        topic.send((f"k{number % 4}", number))
    directory = topic.roll_and_close()
    seen: list[list[str]] = []
    real = rewriting.rewritten

    def twice(group: Any, passed: Any, plan: Any, superseded: Any, attempt: int) -> Any:
        offsets = list(superseded)
        real(travelled(group), passed, plan, offsets, attempt)
        done = real(group, passed, plan, offsets, attempt + 1)
        seen.append(sorted(os.listdir(passed.exchange_path)))
        return done

    monkeypatch.setattr(task_steps, "rewritten", twice)
    shuffled(directory, CompactOptions(settings=SETTINGS, apply=True, run_id="run"))
    assert seen == [["0-0", "0-1"]]
    assert [path.name for path in (directory / ".kseg").iterdir()] == ["run"]


def test_leftovers_of_a_killed_driver_are_removed_by_the_next_run(tmp_path: Path) -> None:
    topic = Topic(tmp_path)
    topic.send(("a", 1), ("a", 2))
    directory = topic.roll_and_close()
    left = directory / ".kseg" / ".work-of-a-killed-one"
    left.mkdir(parents=True)
    (left / "0-17").write_bytes(b"half of it")
    shuffled(directory, CompactOptions(settings=SETTINGS, apply=True, run_id="run"))
    assert [path.name for path in (directory / ".kseg").iterdir()] == ["run"]


def test_only_large_partitions_are_shuffled_in_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    groups = []
    for name, records in (("a-0", 3), ("b-0", 90), ("c-0", 3), ("d-0", 2)):
        topic = Topic(tmp_path, name=name)
        for number in range(records):
            topic.send((f"key-{number % 40}", number))
        topic.roll()
        groups.append(TargetGroup((PartitionTarget(str(topic.close())),)))
    options = CompactOptions(settings=replace(SETTINGS, map_bytes=SLOT * 50))
    tasks: list[list[TargetGroup]] = []
    done: list[TargetGroup] = []

    def on_cluster(compacting: Any, groups: Any, options: Any, *_: Any, **more: Any) -> Any:
        tasks.append(groups)
        assert more == {"in_place": False}
        for group in groups:
            yield from compacting(group, options)
            done.append(group)

    monkeypatch.setattr(cluster_fanout, "run", on_cluster)
    monkeypatch.setattr(cluster_fanout, "ready", lambda *_: InProcess())
    monkeypatch.setattr(
        compact, "compact_by_shuffle", lambda target, options, context: iter([Row({"by": target})])
    )
    reported = list(
        compact.run(compact_group, groups, options, ClusterOptions(), done.append, in_place=False)
    )
    assert tasks == [groups[:1], groups[2:]] and done == groups
    rows = [event.values for event in reported if isinstance(event, Row)]
    results = [row.get("partition", "by shuffle") for row in rows if row.get("type", "result") == "result"]
    assert results == ["a-0", "by shuffle", "c-0", "d-0"]


def test_rebuilt_indexes_are_fetched_a_few_at_a_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shuffled_passes, "JOB_BYTES", 40)
    case = random_case(18, tmp_path)
    jobs: list[list[int]] = []

    class Watched(InProcess):
        def runJob(self, rows: Any, work: Any, partitions: list[int]) -> list[Any]:
            jobs.append(partitions)
            return super().runJob(rows, work, partitions)

    settings = replace(case.settings, map_bytes=SLOT * 1000, segment_bytes=1000)
    options = CompactOptions(settings=settings, include_active=True)
    assert_same(case.directory, options, Watched())
    plan = jobs[1 : len(jobs) // 2]
    assert len(plan) > 2 and [number for job in plan for number in job] == list(range(plan[-1][-1] + 1))
