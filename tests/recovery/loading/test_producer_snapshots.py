"""Rows P of the acceptance list: producer snapshots after a broker's load, and the transactions that they keep open."""

from __future__ import annotations

from pathlib import Path

import pytest

from fixtures.healthy import T0
from kseg.segment import layout as L
from kseg.segment.encoding.batch import encode_batch
from kseg.segment.model import NewBatch
from kseg.segment.sidecar.snapshot import HEADER_BYTES, ProducerSnapshotEntry, decode_snapshot
from tests.support.load_helpers import (
    Loaded,
    damage,
    data,
    entry,
    load,
    log_file,
    marker,
    one_each,
    partition,
    produced,
    put_snapshot,
    remove,
)

DAY_MS = 86_400_000


def final(loaded: Loaded) -> dict[int, ProducerSnapshotEntry]:
    """The producers at the log end."""
    return loaded.producers(loaded.repair.log_end_offset)


@pytest.mark.behaviour("P01", "P03", "P13")
def test_snapshot_at_the_log_end_is_the_producer_state(tmp_path: Path) -> None:
    directory = partition(tmp_path, {0: [data(0), data(1)], 2: [data(2)]})
    open_one = entry(7, last_sequence=4, last_offset=2, offset_delta=1, current_txn_first_offset=1)
    ended = entry(8, producer_epoch=3, last_sequence=9, last_offset=2, coordinator_epoch=5)
    path = put_snapshot(directory, 3, open_one, ended, entry(9, coordinator_epoch=2))
    loaded = load(directory, clean=True)
    assert loaded.file(3, L.SNAPSHOT_SUFFIX) == path.read_bytes()
    assert loaded.repair.last_stable_offset == 1
    with log_file(directory, 2).open("ab") as file:
        file.write(encode_batch(marker(3, 7, abort=False)))
    later = load(directory, clean=True)
    assert final(later)[7].current_txn_first_offset is None
    assert later.repair.last_stable_offset == 4


@pytest.mark.behaviour("P02", "P21")
def test_only_the_last_batch_of_a_producer_is_remembered(tmp_path: Path) -> None:
    top = L.INT32_MAX
    batches = [
        produced(0, 1, top - 10, 5),
        produced(5, 1, top - 5, 16),
        produced(21, 2, top),
        produced(22, 2, 0),
    ]
    loaded = load(partition(tmp_path, {0: batches}))
    assert final(loaded)[1][2:5] == (9, 20, 15)
    assert final(loaded)[2][2:5] == (0, 22, 0)


@pytest.mark.behaviour("P04")
def test_expired_producers_are_dropped_when_a_snapshot_is_loaded(tmp_path: Path) -> None:
    directory = partition(tmp_path, {0: [data(0)], 1: [data(1)]})
    put_snapshot(directory, 1, entry(1), entry(2, current_txn_first_offset=0), entry(3, timestamp_ms=T0 + 1))
    log_file(directory, 2, L.SNAPSHOT_SUFFIX).unlink()
    loaded = load(directory, clean=True, now_ms=T0 + DAY_MS)
    assert sorted(final(loaded)) == [2, 3]
    assert sorted(loaded.producers(1)) == [1, 2, 3]


@pytest.mark.behaviour("P05")
def test_load_removes_snapshots_outside_the_log(tmp_path: Path) -> None:
    directory = partition(tmp_path, one_each(3))
    for offset in range(1, 6):
        put_snapshot(directory, offset, entry(offset))
    loaded = load(directory, clean=True, log_start=1)
    # the one after the log end is the largest stray snapshot, and is deleted as out of range
    assert loaded.snapshots == [2, 3]
    put_snapshot(directory, 3, entry(33))
    for offset in (4, 5):
        log_file(directory, offset, L.SNAPSHOT_SUFFIX).unlink()
    assert sorted(final(load(directory, clean=True, log_start=1))) == [33]


@pytest.mark.behaviour("P06")
@pytest.mark.parametrize("damaged", [b"", b"\0\1", b"\0\2" + bytes(8), b"\0\1" + bytes(50)])
def test_corrupt_snapshot_is_removed_and_the_previous_one_used(tmp_path: Path, damaged: bytes) -> None:
    directory = partition(tmp_path, {0: [produced(0, 1, 0)], 1: [produced(1, 2, 0)]})
    put_snapshot(directory, 1, entry(50))
    log_file(directory, 2, L.SNAPSHOT_SUFFIX).write_bytes(damaged)
    loaded = load(directory, clean=True)
    assert sorted(final(loaded)) == [2, 50]
    assert "snapshot-corrupt" in loaded.findings


@pytest.mark.behaviour("P08")
def test_replaced_log_has_no_producers(tmp_path: Path) -> None:
    directory = partition(tmp_path, {0: [produced(0, 1, 0)], 1: [produced(1, 2, 0)]})
    loaded = load(directory, log_start=9)
    assert loaded.snapshots == []
    assert (loaded.segments, loaded.repair.log_end_offset) == ([9], 9)
    assert load(directory, clean=True, log_start=9).producers(9) == {}


@pytest.mark.behaviour("P09", "P10")
@pytest.mark.parametrize(
    ("bases", "end", "snapshots", "kept"),
    [
        ((0, 1, 2), 4, (1, 2, 3, 4), [1, 2, 4]),
        ((5,), 50, (2, 5, 42), [42, 50]),
        ((42,), 50, (2, 5, 42), [50]),
        ((0,), 0, (42,), []),
    ],
)
def test_load_removes_stray_snapshots(
    tmp_path: Path, bases: tuple[int, ...], end: int, snapshots: tuple[int, ...], kept: list[int]
) -> None:
    segments: dict[int, list[NewBatch]] = {base: [data(base)] for base in bases}
    segments[bases[-1]] = [data(bases[-1], end - bases[-1])] if end > bases[-1] else []
    directory = partition(tmp_path, segments)
    remove(directory, L.SNAPSHOT_SUFFIX)
    for offset in snapshots:
        put_snapshot(directory, offset)
    # a log that starts at 5 or 42 drops the snapshot there, because its producers are those of an empty log
    assert load(directory, clean=True).snapshots == kept


@pytest.mark.behaviour("P11")
@pytest.mark.parametrize(
    ("clean", "recovery_point", "expected"),
    [(True, 0, [2, 3, 4]), (False, 4, [2, 3, 4]), (False, 0, [1, 2, 3, 4])],
)
def test_load_writes_missing_snapshots(
    tmp_path: Path, clean: bool, recovery_point: int, expected: list[int]
) -> None:
    directory = partition(tmp_path, {base: [produced(base, 1, base)] for base in range(4)})
    remove(directory, L.SNAPSHOT_SUFFIX)
    loaded = load(directory, clean=clean, recovery_point=recovery_point)
    assert loaded.snapshots == expected
    # after a clean shutdown the batches are not replayed
    assert bool(final(loaded)) is not clean


@pytest.mark.behaviour("P12")
@pytest.mark.parametrize("first_kept", [8, 6])
def test_replay_starts_at_the_newest_usable_snapshot(tmp_path: Path, first_kept: int) -> None:
    directory = partition(tmp_path, {base: [produced(base, base + 1, 0)] for base in range(10)})
    for offset in range(1, first_kept):
        log_file(directory, offset, L.SNAPSHOT_SUFFIX).unlink()
    loaded = load(directory, recovery_point=6)
    assert [offset for offset in loaded.snapshots if offset >= 6] == [6, 7, 8, 9, 10]
    assert sorted(final(loaded)) == list(range(1, 11))


@pytest.mark.behaviour("P14", "P15")
def test_producers_are_known_as_long_as_their_segment_exists(tmp_path: Path) -> None:
    one_segment = partition(tmp_path / "one", {0: [produced(0, 1, 0), produced(1, 2, 0)]})
    assert sorted(final(load(one_segment, log_start=1))) == [1, 2]
    two_segments = partition(tmp_path / "two", {1: [produced(1, 2, 0)]})
    put_snapshot(two_segments, 1, entry(1))
    assert sorted(final(load(two_segments, log_start=1))) == [2]


@pytest.mark.behaviour("P17", "P18")
def test_compacted_batch_uses_the_sequences_of_its_header(tmp_path: Path) -> None:
    gaps = produced(0, 1, 0, 3)
    gaps = NewBatch(
        records=gaps.records[1:2],
        base_offset=0,
        last_offset=4,
        leader_epoch=0,
        producer_id=1,
        producer_epoch=0,
        base_sequence=10,
    )
    emptied = NewBatch(
        base_offset=5,
        last_offset=6,
        leader_epoch=0,
        max_timestamp_ms=T0,
        producer_id=2,
        producer_epoch=0,
        base_sequence=0,
    )
    producers = final(load(partition(tmp_path, {0: [gaps, emptied]})))
    assert producers[1][2:5] == (14, 4, 4)
    assert producers[2][2:5] == (1, 6, 1)


@pytest.mark.behaviour("P19")
def test_producer_state_after_truncation_equals_a_replay_of_the_rest(tmp_path: Path) -> None:
    batches = [produced(offset, offset % 3 + 1, offset // 3) for offset in range(9)]
    whole = partition(tmp_path / "whole", {0: batches[:4], 4: batches[4:]})
    rest = partition(tmp_path / "rest", {0: batches[:4], 4: batches[4:6]})
    log_file(whole, 4).write_bytes(log_file(rest, 4).read_bytes() + b"torn")
    with_snapshots = load(whole)
    remove(whole, L.SNAPSHOT_SUFFIX)
    assert final(with_snapshots) == final(load(whole)) == final(load(rest))
    assert load(whole).snapshots == [4, 6]


@pytest.mark.behaviour("P20", "X10", "X11")
def test_open_transactions_limit_the_last_stable_offset(tmp_path: Path) -> None:
    batches = [
        data(0),
        produced(1, 1, 0, transactional=True),
        produced(2, 2, 0, transactional=True),
        marker(3, 1, abort=False),
        produced(4, 3, 0, transactional=True),
        data(5),
    ]
    directory = partition(tmp_path, {0: batches})
    remove(directory, L.SNAPSHOT_SUFFIX)
    loaded = load(directory)
    assert {pid: one.current_txn_first_offset for pid, one in final(loaded).items()} == {1: None, 2: 2, 3: 4}
    assert loaded.repair.last_stable_offset == 2
    quiet = load(partition(tmp_path / "quiet", {0: [data(0), produced(1, 1, 0)]}))
    assert quiet.repair.last_stable_offset == quiet.repair.log_end_offset == 2


@pytest.mark.behaviour("X12")
def test_last_stable_offset_is_not_below_the_log_start(tmp_path: Path) -> None:
    directory = partition(
        tmp_path, {0: [produced(0, 1, 0, transactional=True), data(1), data(2, 3)], 5: [data(5)]}
    )
    assert load(directory).repair.last_stable_offset == 0
    assert load(directory, log_start=1).repair.last_stable_offset == 1
    # the result is the base offset of the batch that contains the log start
    assert load(directory, log_start=3).repair.last_stable_offset == 2
    # without recovery, the replay of the segment begins at the log start and does not see the transaction
    assert load(directory, log_start=6, recovery_point=6).repair.last_stable_offset == 6
    damage(log_file(directory, 0), 70)
    assert load(directory).repair.last_stable_offset == load(directory).repair.log_end_offset == 0


@pytest.mark.behaviour("P22", "P23", "P24", "P25")
def test_markers_create_producers_and_raise_epochs(tmp_path: Path) -> None:
    emptied = NewBatch(
        base_offset=5,
        last_offset=5,
        leader_epoch=0,
        max_timestamp_ms=T0,
        transactional=True,
        control=True,
        producer_id=4,
        producer_epoch=2,
    )
    batches = [
        produced(0, 1, 0, 2, transactional=True),
        marker(2, 1, abort=True, producer_epoch=1, coordinator_epoch=6),
        marker(3, 3, abort=False, producer_epoch=7, coordinator_epoch=5),
        produced(4, 1, 0, producer_epoch=1, transactional=True),
    ]
    first = final(load(partition(tmp_path / "first", {0: batches[:2]})))
    assert first[1][1:8] == (1, -1, -1, 0, T0 + 2000, 6, None)
    producers = final(load(partition(tmp_path / "all", {0: [*batches, emptied]})))
    assert producers[1][1:4] == (1, 0, 4)
    assert producers[3][1:8] == (7, -1, -1, 0, T0 + 3000, 5, None)
    assert producers[4] == entry(4, producer_epoch=-1, timestamp_ms=-1)


@pytest.mark.behaviour("P26")
def test_coordinator_epoch_may_decrease(tmp_path: Path) -> None:
    batches = [
        produced(0, 1, 0, transactional=True),
        marker(1, 1, abort=True, coordinator_epoch=3),
        produced(2, 1, 1, transactional=True),
        marker(3, 1, abort=True, coordinator_epoch=1),
    ]
    loaded = load(partition(tmp_path, {0: batches}))
    assert final(loaded)[1].coordinator_epoch == 1
    assert [aborted[1:] for aborted in loaded.aborted(0)] == [(1, 0, 1, 2), (1, 2, 3, 4)]


@pytest.mark.behaviour("P27")
def test_snapshot_without_producers_is_only_a_header(tmp_path: Path) -> None:
    loaded = load(partition(tmp_path, {0: [data(0)]}))
    assert len(loaded.file(1, L.SNAPSHOT_SUFFIX)) == HEADER_BYTES
    assert decode_snapshot(loaded.file(1, L.SNAPSHOT_SUFFIX)) == ()


def test_producer_back_in_a_former_epoch_keeps_its_batch_in_one_replay(
    tmp_path: Path,
) -> None:
    """When its segment is recovered, the batch is forgotten at the first marker. A replay only compares the epochs before and after (Kafka:
    ProducerStateEntry.update)."""
    batches = [
        marker(2, 1, abort=False, producer_epoch=1),
        marker(3, 1, abort=False, producer_epoch=0),
        data(4),
    ]
    directory = partition(tmp_path, {0: [produced(0, 1, 0, 2)], 2: batches, 5: []})
    recovered = load(directory)
    assert final(recovered)[1][1:4] == (0, -1, -1)
    log_file(directory, 5, L.SNAPSHOT_SUFFIX).unlink()
    replayed = load(directory, clean=True)
    assert final(replayed)[1][1:4] == (0, 1, 1)


def test_producers_of_one_hash_bucket_are_written_newest_first(tmp_path: Path) -> None:
    """HashMap.computeIfAbsent puts a new entry before the others in its bucket (ids 1 and 17 share one)."""
    directory = partition(tmp_path, {0: [produced(0, 1, 0), produced(1, 17, 0)], 2: []})
    assert list(final(load(directory))) == [1, 17]
    remove(directory, L.SNAPSHOT_SUFFIX)
    put_snapshot(directory, 0)
    assert list(final(load(directory, recovery_point=2))) == [17, 1]
