"""Reading the log of a coordinator's topic, and finding the other directories of its broker."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from kseg.internal_topics.broker_directories import find_broker_directories
from kseg.internal_topics.coordinator_log import (
    CoordinatorRecord,
    LogProblem,
    TransactionMarker,
    read_coordinator_log,
)
from kseg.segment import layout as L
from kseg.segment.errors import UnreadableInput
from kseg.segment.sidecar.checkpoint import CheckpointEntry, encode_offset_checkpoint
from tests.internal_topics.coordinator_logs import T0, batch, data_batch, marker, write_segment

OFFSETS = "__consumer_offsets"


def _as_dumped(text: str) -> list[tuple[int, int, int, int]]:
    """(offset, timestamp, key size, value size) of each record line of the dump tool; -1 for null and for no timestamp."""
    line = re.compile(r"\| offset: (\d+) \w+: (-?\d+) keySize: (-?\d+) valueSize: (-?\d+)")
    found = [match.groups() for each in text.splitlines() if (match := line.match(each))]
    return [(int(offset), int(at), int(key), int(value)) for offset, at, key, value in found]


def _as_read(directory: Path) -> list[tuple[int, int, int, int]]:
    def size(content: bytes | None) -> int:
        return -1 if content is None else len(content)

    found = [each for each in read_coordinator_log(str(directory)) if isinstance(each, CoordinatorRecord)]
    return [(each.offset, each.timestamp_ms, size(each.key), size(each.value)) for each in found]


@pytest.mark.parametrize("topic", [OFFSETS, "__transaction_state"])
def test_coordinator_records_equal_those_kafkas_tool_dumps(capture_small: Path, topic: str) -> None:
    reported = (capture_small / "expected" / f"{topic}-0" / f"{0:020}.log.txt").read_text()
    expected = _as_dumped(reported)
    assert len(expected) > 20
    assert _as_read(capture_small / "data" / f"{topic}-0") == expected


@pytest.mark.parametrize("state", ["0.9.0.1/2-compacted", "0.10.2.2/3-compacted", "1.1.1/4-compacted"])
def test_coordinator_records_of_old_formats_are_read(legacy_small: Path, state: str) -> None:
    directory = legacy_small / "data" / state / f"{OFFSETS}-0"
    reported = legacy_small / "expected" / state / f"{OFFSETS}-0"
    expected = [row for path in sorted(reported.glob("*.log.txt")) for row in _as_dumped(path.read_text())]
    assert len(expected) >= 10
    assert _as_read(directory) == expected


def test_compressed_sets_of_old_formats_and_null_fields_are_read(tmp_path: Path) -> None:
    records = [(b"k", b"v"), (b"k", None), (None, b"")]
    old = batch(0, *records, magic=1, codec=L.GZIP, leader_epoch=-1)
    new = batch(3, *records, codec=L.ZSTD, producer_id=7, producer_epoch=2, base_sequence=0)
    write_segment(tmp_path / f"{OFFSETS}-0", old, new)
    found = list(read_coordinator_log(str(tmp_path / f"{OFFSETS}-0")))
    assert all(isinstance(each, CoordinatorRecord) for each in found)
    assert [each[:4] for each in found] == [
        (base + at, T0 + at, *pair) for base in (0, 3) for at, pair in enumerate(records)
    ]
    assert [each[4:] for each in found] == [(-1, -1, False)] * 3 + [(7, 2, False)] * 3


def test_markers_are_in_order_and_time_limits_records_and_markers(tmp_path: Path) -> None:
    directory = tmp_path / f"{OFFSETS}-0"
    write_segment(
        directory,
        data_batch(0, 7, 2, count=2, at_ms=T0),
        marker(2, 7, 2, coordinator_epoch=5, at_ms=T0 + 10),
        data_batch(3, 7, 2, at_ms=T0 + 20, sequence=2),
        marker(4, 7, 3, is_abort=True, coordinator_epoch=6, at_ms=T0 + 30),
    )
    found = list(read_coordinator_log(str(directory)))
    assert [each.offset for each in found] == [0, 1, 2, 3, 4]
    assert isinstance(found[0], CoordinatorRecord) and found[0].is_transactional
    assert found[2] == TransactionMarker(2, T0 + 10, 7, 2, True, 5)
    assert found[4] == TransactionMarker(4, T0 + 30, 7, 3, False, 6)
    until = [each.offset for each in read_coordinator_log(str(directory), until_ms=T0 + 20)]
    assert until == [0, 1, 2, 3]


def test_damage_is_reported_in_order_and_later_records_are_read(tmp_path: Path) -> None:
    directory = tmp_path / f"{OFFSETS}-0"
    batches = [batch(offset, (b"k%d" % offset, b"v" * 40)) for offset in range(4)]
    path = write_segment(directory, *batches)
    data = bytearray(path.read_bytes())
    position = len(batches[0]) + len(batches[1])
    data[position + 70] ^= 1
    path.write_bytes(data)
    write_segment(directory, b"", base_offset=4)
    found = list(read_coordinator_log(str(directory)))
    assert [type(each).__name__ for each in found] == ["CoordinatorRecord"] * 2 + [
        "LogProblem",
        "CoordinatorRecord",
    ]
    problem = found[2]
    assert isinstance(problem, LogProblem)
    assert (problem.path, problem.offset, problem.position) == (str(path), 2, position)
    assert "no valid batch" in problem.message


def test_unreadable_segment_is_a_problem_of_that_segment_only(tmp_path: Path) -> None:
    directory = tmp_path / f"{OFFSETS}-0"
    write_segment(directory, batch(0, (b"a", b"b")))
    write_segment(directory, batch(2, (b"c", b"d")), base_offset=2)
    (directory / f"{1:020}.log").mkdir()
    found = list(read_coordinator_log(str(directory)))
    assert [type(each).__name__ for each in found] == ["CoordinatorRecord", "LogProblem", "CoordinatorRecord"]
    with pytest.raises(UnreadableInput):
        list(read_coordinator_log(str(tmp_path / "nothing")))


def test_coordinator_log_is_read_from_the_batch_of_the_log_start(tmp_path: Path) -> None:
    log_dir = tmp_path / "data"
    directory = log_dir / f"{OFFSETS}-3"
    write_segment(directory, *(batch(offset, (b"a", b""), (b"b", b"")) for offset in (0, 2)))
    write_segment(
        directory, *(batch(offset, (b"a", b""), (b"b", b"")) for offset in (4, 6, 8)), base_offset=4
    )
    (log_dir / "meta.properties").write_text("version=1\nnode.id=1\ncluster.id=c\n")
    starts = encode_offset_checkpoint([CheckpointEntry(OFFSETS, 3, 7)])
    (log_dir / "log-start-offset-checkpoint").write_bytes(starts)
    assert [each.offset for each in read_coordinator_log(str(directory))] == [6, 7, 8, 9]


def test_several_log_dirs_belong_to_one_broker(tmp_path: Path) -> None:
    for disk, topics in (
        ("data-0/kafka-log1", ["orders-0", "orders-1"]),
        ("data-1/kafka-log1", [f"{OFFSETS}-0"]),
    ):
        for name in topics:
            write_segment(tmp_path / disk / name, batch(0, (b"a", b"b")))
        (tmp_path / disk / "meta.properties").write_text("version=1\nnode.id=1\ncluster.id=c\n")
    write_segment(tmp_path / "data-1/kafka-log1" / f"orders-2.{'a' * 32}-delete", batch(0, (b"a", b"b")))
    found = find_broker_directories([str(tmp_path)])
    assert found.log_dirs == (str(tmp_path / "data-0/kafka-log1"), str(tmp_path / "data-1/kafka-log1"))
    assert len(found.partitions) == 4
    assert list(found.replicas(OFFSETS)) == [0]
    assert [each.name.text for each in found.partitions if each.name and each.is_live] == [
        "orders-0",
        "orders-1",
        f"{OFFSETS}-0",
    ]
    alone = find_broker_directories([str(tmp_path / "data-1/kafka-log1" / f"{OFFSETS}-0")])
    (target,) = alone.replicas(OFFSETS)[0]
    assert alone.log_dirs == () and target.path == str(tmp_path / "data-1/kafka-log1" / f"{OFFSETS}-0")
