"""Runs of several writers merged into partitions: order, offsets, atomicity, and a kill at every change of the file system."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from kseg.change.append.partition_writer import RollRules
from kseg.change.apply.disk import DISK
from kseg.change.apply.journal_scan import location_of, locations_in
from kseg.change.apply.lock import locked
from kseg.change.apply.undo import undo
from kseg.change.apply.unfinished import half_done
from kseg.segment import layout as L
from kseg.segment.encoding.partitioner import murmur2, partition_for_key
from kseg.segment.errors import Refused, UsageError
from kseg.segment.model import Record
from kseg.segment.sidecar.checkpoint import decode_offset_checkpoint
from kseg.spark.source.write.commit import Delivery, clear_staged, deliver
from tests.support import trees
from tests.support.delivered_runs import (
    HEADERS,
    NOW_MS,
    RUN_ID,
    contents_of,
    delivered,
    opens,
    records_of,
    staged,
    values,
)

# --- the partitioner (vectors of Kafka's UtilsTest.testMurmur2)


@pytest.mark.parametrize(
    ("key", "signed"),
    [
        (b"21", -973932308),
        (b"foobar", -790332482),
        (b"a-little-bit-long-string", -985981536),
        (b"a-little-bit-longer-string", -1486304829),
        (b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8", -58897971),
        (b"abc", 479470107),
    ],
)
def test_murmur2_equals_kafkas(key: bytes, signed: int) -> None:
    assert murmur2(key) == signed & 0xFFFFFFFF
    assert partition_for_key(key, 7) == (signed & 0x7FFFFFFF) % 7


# --- order and offsets


def test_runs_of_several_writers_are_appended_in_order(tmp_path: Path) -> None:
    log_dir = tmp_path / "data"
    runs = [
        run
        for task in range(3)
        for run in staged(
            log_dir,
            [(("orders", n % 2), record) for n, record in enumerate(values(40, f"task{task}"))],
            task=task,
            batch_bytes=200,
        )
    ]
    done = delivered(log_dir, runs, rolls=RollRules(segment_bytes=1000))
    assert done.log_end_offsets == {"orders-0": 60, "orders-1": 60}
    for partition in range(2):
        found = records_of(log_dir / f"orders-{partition}")
        assert [record.offset for record in found] == list(range(60))
        assert [record.value for record in found] == [
            b"task%d-%d" % (task, n) for task in range(3) for n in range(partition, 40, 2)
        ]
        assert found[0].headers == (HEADERS if partition else ())
        assert opens(log_dir / f"orders-{partition}") == 60
    assert len(list((log_dir / "orders-0").glob("*.log"))) > 2


def test_second_delivery_continues_the_active_segment(tmp_path: Path) -> None:
    log_dir = tmp_path / "data"
    for life in range(2):
        runs = staged(log_dir, [(("orders", 0), record) for record in values(5, f"life{life}")])
        deliver(
            runs, Delivery(log_dir=str(log_dir), run_id=f"2026010{life + 1}T000000Z-aaaaaaaa", now_ms=NOW_MS)
        )
    assert [path.name for path in (log_dir / "orders-0").glob("*.log")] == [f"{0:020d}.log"]
    assert contents_of(log_dir / "orders-0") == [
        b"life%d-%d" % (life, n) for life in range(2) for n in range(5)
    ]
    assert opens(log_dir / "orders-0") == 10


def test_delivery_after_the_clock_was_set_back_is_the_newest_run(tmp_path: Path) -> None:
    """Undo used to revert it only after the one before it."""
    log_dir = tmp_path / "data"
    for day in (2, 1):
        runs = staged(log_dir, [(("orders", 0), record) for record in values(5, f"of day {day}")])
        deliver(
            runs, Delivery(log_dir=str(log_dir), run_id=f"2026010{day}T000000Z-aaaaaaa{day}", now_ms=NOW_MS)
        )
    for directory in (log_dir, log_dir / "orders-0"):
        ids = [location.id for location in locations_in(str(directory), DISK)]
        assert ids == ["20260102T000000Z-aaaaaaa2", "20260102T000001Z-aaaaaaa1"]


def test_given_record_offsets_are_kept_with_their_gaps(tmp_path: Path) -> None:
    log_dir = tmp_path / "data"
    offsets = [[1007, 1010, 1011], [2000, 2**31 + 3000], [20]]
    runs = [
        run
        for task, ours in enumerate(offsets)
        for run in staged(
            log_dir,
            [(("compacted", 0), Record(offset, NOW_MS, b"k", b"%d" % offset)) for offset in ours],
            task=task,
            has_offset=True,
        )
    ]
    assert delivered(log_dir, runs).log_end_offsets == {"compacted-0": 2**31 + 3001}
    found = records_of(log_dir / "compacted-0")
    assert [record.offset for record in found] == [20, 1007, 1010, 1011, 2000, 2**31 + 3000]
    assert sorted(path.name for path in (log_dir / "compacted-0").glob("*.log")) == [
        f"{offset:020d}.log" for offset in (20, 2**31 + 3000)
    ]


def test_overlapping_runs_are_refused_before_any_change(tmp_path: Path) -> None:
    log_dir = tmp_path / "data"
    runs = [
        run
        for task, ours in enumerate(([1, 5], [3, 9]))
        for run in staged(
            log_dir,
            [(("t", 0), Record(offset, NOW_MS, None, b"")) for offset in ours],
            task=task,
            has_offset=True,
        )
    ]
    before = trees.tree_state(log_dir)
    with pytest.raises(UsageError, match="repartition"):
        delivered(log_dir, runs)
    assert trees.tree_state(log_dir) == before
    with pytest.raises(UsageError, match="sort the rows"):
        staged(log_dir, [(("t", 0), Record(offset, 0, None, b"")) for offset in (2, 1)], has_offset=True)
    assert trees.tree_state(log_dir).keys() == before.keys(), "a failed writer leaves its file behind"


def test_log_may_end_at_the_largest_offset(tmp_path: Path) -> None:
    """Offsets are 64 bits, and so is the log end offset."""
    log_dir = tmp_path / "data"
    last = [(("t", 0), Record(L.INT64_MAX - 1, NOW_MS, None, b""))]
    delivered(log_dir, staged(log_dir, last, has_offset=True))
    assert opens(log_dir / "t-0") == L.INT64_MAX
    before = (log_dir / "t-0" / f"{L.INT64_MAX - 1:020d}.log").read_bytes()
    beyond = [
        staged(log_dir, [(("t", 0), Record(0, NOW_MS, None, b""))], task=1),
        staged(log_dir, [(("new", 0), Record(L.INT64_MAX, NOW_MS, None, b""))], task=2, has_offset=True),
    ]
    for runs in beyond:
        with pytest.raises(UsageError, match="offsets would exceed"):
            deliver(runs, Delivery(log_dir=str(log_dir), run_id=f"{RUN_ID}-more", now_ms=NOW_MS))
    (log,) = (log_dir / "t-0").glob("*.log")
    assert log.read_bytes() == before and not (log_dir / "new-0").exists()


@pytest.mark.parametrize("codec", range(len(L.CODEC_NAMES)))
def test_runs_are_written_with_every_codec(tmp_path: Path, codec: int) -> None:
    log_dir = tmp_path / "data"
    runs = staged(
        log_dir, [(("t", 0), record) for record in values(300, "v")], codec=codec, batch_records=100
    )
    delivered(log_dir, runs, leader_epoch=7)
    found = records_of(log_dir / "t-0")
    assert [(record.value, record.timestamp_ms) for record in found] == [
        (record.value, record.timestamp_ms) for record in values(300, "v")
    ]
    assert (log_dir / "t-0" / "leader-epoch-checkpoint").read_text() == "0\n1\n7 0\n"


def test_truncated_staged_file_leaves_no_partition_behind(tmp_path: Path) -> None:
    log_dir = tmp_path / "data"
    runs = staged(log_dir, [((f"t{n}", 0), record) for n in range(2) for record in values(50, "v")])
    path = log_dir / runs[0].file
    path.write_bytes(path.read_bytes()[:-5])
    with pytest.raises(Refused, match="is not what its task has written"):
        delivered(log_dir, runs)
    assert [name.name for name in log_dir.iterdir()] == [runs[0].file]


def test_missing_partitions_are_created_empty_with_the_topics_id(tmp_path: Path) -> None:
    log_dir = tmp_path / "data"
    topic_id = "AAECAwQFBgcICQoLDA0ODw"
    runs = staged(log_dir, [(("t", 1), record) for record in values(1, "v")])
    delivered(log_dir, runs, partitions={"t": 3}, topic_ids={"t": topic_id})
    deliver(
        staged(log_dir, [(("t", 3), record) for record in values(1, "v")]),
        Delivery(log_dir=str(log_dir), run_id="20260102T000000Z-bbbbbbbb", now_ms=NOW_MS),
    )
    for partition in range(4):
        assert topic_id in (log_dir / f"t-{partition}" / "partition.metadata").read_text()
        assert opens(log_dir / f"t-{partition}") == (partition in (1, 3))


# --- the log dir around it

STAGED_HERE = [
    "changed: . (mtime_ns)"
]  # the tasks' files were created in the log dir before anything was journaled


@pytest.fixture(autouse=True)
def unsynced(monkeypatch: pytest.MonkeyPatch) -> None:
    """These tests do not simulate a crash of the machine, and syncing takes most of the time."""
    for name in ("fsync", "fdatasync"):
        monkeypatch.setattr(os, name, lambda _: None)


def broker_dir(place: Path) -> Path:
    """A stopped broker's data directory with `kept-0`, and `t-0` with the log start 40."""
    log_dir = place / "data"
    runs = staged(
        log_dir,
        [((topic, 0), replaced) for topic in ("kept", "t") for replaced in values(100, topic)],
        batch_records=10,
    )
    delivered(log_dir, runs, rolls=RollRules(segment_bytes=2000))
    clear_staged(str(log_dir), [RUN_ID])
    (log_dir / "meta.properties").write_text("version=1\n")
    (log_dir / ".kafka_cleanshutdown").write_text('{"version":0,"brokerEpoch":3}')
    for name, offset in (
        ("recovery-point-offset-checkpoint", 100),
        ("replication-offset-checkpoint", 100),
        ("log-start-offset-checkpoint", 40),
        ("cleaner-offset-checkpoint", 90),
    ):
        (log_dir / name).write_text(f"0\n2\nkept 0 100\nt 0 {offset}\n")
    for journal in log_dir.glob("kseg-*"):
        journal.unlink()
    for partition in ("kept-0", "t-0"):
        for path in sorted((log_dir / partition / ".kseg").rglob("*"), reverse=True):
            path.rmdir() if path.is_dir() else path.unlink()
        (log_dir / partition / ".kseg").rmdir()
    return log_dir


def offset_in(log_dir: Path, name: str) -> dict[str, int]:
    entries = decode_offset_checkpoint((log_dir / name).read_bytes())
    return {f"{entry.topic}-{entry.partition}": entry.offset for entry in entries}


def test_overwrite_replaces_the_topic_and_leaves_others_alone(tmp_path: Path) -> None:
    log_dir = broker_dir(tmp_path)
    kept = trees.tree_state(log_dir / "kept-0")
    before = trees.tree_state(log_dir)
    runs = staged(log_dir, [(("t", 1), record) for record in values(7, "new")])
    done = delivered(log_dir, runs, replaces=True)
    assert done.log_end_offsets == {"t-0": 0, "t-1": 7}
    assert trees.tree_state(log_dir / "kept-0") == kept
    assert contents_of(log_dir / "t-0") == []
    assert opens(log_dir / "t-0") == 0
    assert offset_in(log_dir, "recovery-point-offset-checkpoint") == {"kept-0": 100, "t-0": 0, "t-1": 7}
    assert offset_in(log_dir, "log-start-offset-checkpoint") == {"kept-0": 100}
    assert offset_in(log_dir, "cleaner-offset-checkpoint") == {"kept-0": 100}
    assert (log_dir / ".kafka_cleanshutdown").exists()
    clear_staged(str(log_dir), [RUN_ID])
    assert done.journal is not None
    place = location_of(done.journal)
    assert place is not None
    undo(place)
    assert trees.differences(before, trees.tree_state(log_dir)) == STAGED_HERE


def test_running_broker_or_unfinished_change_blocks_the_commit(tmp_path: Path) -> None:
    log_dir = broker_dir(tmp_path)
    runs = staged(log_dir, [(("t", 0), record) for record in values(7, "new")])
    before = trees.tree_state(log_dir)
    hers, ours = os.pipe()
    mine, its = os.pipe()
    child = os.fork()
    if not child:
        with locked([str(log_dir)]):
            os.write(its, b"held")
            os.read(hers, 1)
        os._exit(0)
    assert os.read(mine, 4) == b"held"
    with pytest.raises(Refused, match="in use"):
        delivered(log_dir, runs)
    os.write(ours, b".")
    os.waitpid(child, 0)
    assert not trees.differences(before, trees.tree_state(log_dir))


# --- killed anywhere

CALLS = ("rename", "unlink", "mkdir", "rmdir", "fsync", "fdatasync", "replace", "link", "ftruncate")


def killed_at(number: int, work: Callable[[], object]) -> bool:
    """Whether a child that does the work was ended at its n-th change of the file system."""
    child = os.fork()
    if not child:
        left = number

        def counted(call: Callable[..., Any]) -> Callable[..., Any]:
            def counting(*arguments: Any, **more: Any) -> Any:
                nonlocal left
                left -= 1
                if left < 0:
                    os._exit(9)
                return call(*arguments, **more)

            return counting

        for name in CALLS:
            setattr(os, name, counted(getattr(os, name)))
        try:
            work()
        except BaseException:  # noqa: BLE001  (the child must not continue as a test)
            os._exit(1)
        os._exit(0)
    _, status = os.waitpid(child, 0)
    code = os.waitstatus_to_exitcode(status)
    assert code in (0, 9)
    return code == 9


def visible(log_dir: Path) -> dict[str, list[bytes | None]]:
    """The directories that a broker would take for partitions."""
    return {
        path.name: contents_of(path)
        for path in sorted(log_dir.iterdir())
        if path.is_dir() and not path.name.endswith("-delete")
    }


@pytest.mark.slow
@pytest.mark.parametrize("replaces", [False, True], ids=["append", "overwrite"])
def test_commit_killed_anywhere_is_reverted_by_the_next_run_or_undo(tmp_path: Path, replaces: bool) -> None:
    found = broker_dir(tmp_path)
    shown = visible(found)
    records = [(("t", n % 2), record) for n, record in enumerate(values(20, "new"))]
    records += [(("other", 0), record) for record in values(3, "o")]
    new_values = {"t-1": [b"new-%d" % n for n in range(1, 20, 2)], "other-0": [b"o-%d" % n for n in range(3)]}
    added = [b"new-%d" % n for n in range(0, 20, 2)]
    end = {**shown, **new_values, "t-0": added if replaces else [*shown["t-0"], *added]}
    # alternately undone by the next delivery and by undo
    for number in count(int(replaces), 3):
        log_dir = tmp_path / str(number) / "data"
        shutil.copytree(found, log_dir)
        runs = staged(log_dir, records)
        before = trees.tree_state(log_dir)
        first = Delivery(log_dir=str(log_dir), run_id=RUN_ID, now_ms=NOW_MS, replaces=replaces)
        if not killed_at(number, lambda: deliver(runs, first)):  # noqa: B023
            assert visible(log_dir) == end
            break
        seen = visible(log_dir)
        assert seen["kept-0"] == shown["kept-0"]
        assert all(seen.get(name) in (None, new_values[name]) for name in new_values), "never half of one"
        journals = list(log_dir.glob("kseg-journal-*.jsonl"))
        if journals and not half_done(str(log_dir)) and seen == end:
            # the last line of the journal was written, so the delivery is done
            pass
        elif number % 2 and journals:
            place = location_of(str(journals[0]))
            assert place is not None
            undo(place)
            (log_dir / ".lock").unlink(missing_ok=True)
            assert visible(log_dir) == shown
            left = set(trees.differences(before, trees.tree_state(log_dir)))
            # a directory whose journal had not begun yet has a new modification time, and one may be left that is marked for deletion
            left -= {"changed: . (mtime_ns)", "changed: t-0 (mtime_ns)"}
            assert all("-delete" in line for line in left), (number, left)
        else:
            deliver(runs, replace(first, run_id="20260102T000000Z-cccccccc"))
            assert visible(log_dir) == end
            assert (log_dir / ".kafka_cleanshutdown").exists()
            assert not list(log_dir.glob("*-delete")), number
        shutil.rmtree(log_dir.parent)
    assert number > 50
