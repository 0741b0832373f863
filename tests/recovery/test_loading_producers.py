"""Rows P and X of the acceptance list: producer snapshots, transactions and their index after a broker's load."""

from __future__ import annotations

from pathlib import Path

import pytest

from fixtures.healthy import T0
from kseg.segment import layout as L
from kseg.segment.model import NewBatch
from kseg.segment.sidecar.snapshot import (
    HEADER_BYTES,
    ProducerSnapshotEntry,
    decode_snapshot,
    encode_snapshot,
)
from kseg.segment.sidecar.txn_index import AbortedTxn, TxnIndex, encode_txn_index
from kseg.segment.writing.batch_writer import encode_batch
from tests.recovery.loading import (
    Loaded,
    content_of,
    damage,
    data,
    load,
    log_file,
    marker,
    one_each,
    partition,
    produced,
    remove,
)

DAY_MS = 86_400_000


def entry(
    producer_id: int, current_txn_first_offset: int | None = None, **changes: int
) -> ProducerSnapshotEntry:
    """A producer with nothing remembered, except for what is said."""
    plain = ProducerSnapshotEntry(producer_id, 0, -1, -1, 0, T0, -1, current_txn_first_offset)
    return plain._replace(**changes)


def put_snapshot(directory: Path, offset: int, *entries: ProducerSnapshotEntry) -> Path:
    path = log_file(directory, offset, L.SNAPSHOT_SUFFIX)
    path.write_bytes(encode_snapshot(entries))
    return path


def final(loaded: Loaded) -> dict[int, ProducerSnapshotEntry]:
    """The producers at the log end."""
    return loaded.producers(loaded.repair.log_end_offset)


# --- snapshots


@pytest.mark.behaviour("P01", "P03", "P13")
def test_a_snapshot_at_the_log_end_is_the_state(tmp_path: Path) -> None:
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
def test_idle_producers_are_dropped_when_a_snapshot_is_loaded(tmp_path: Path) -> None:
    directory = partition(tmp_path, {0: [data(0)], 1: [data(1)]})
    put_snapshot(directory, 1, entry(1), entry(2, current_txn_first_offset=0), entry(3, timestamp_ms=T0 + 1))
    log_file(directory, 2, L.SNAPSHOT_SUFFIX).unlink()
    loaded = load(directory, clean=True, now_ms=T0 + DAY_MS)
    assert sorted(final(loaded)) == [2, 3]
    assert sorted(loaded.producers(1)) == [1, 2, 3]


@pytest.mark.behaviour("P05")
def test_snapshots_out_of_range_go(tmp_path: Path) -> None:
    directory = partition(tmp_path, one_each(3))
    for offset in range(1, 6):
        put_snapshot(directory, offset, entry(offset))
    loaded = load(directory, clean=True, log_start=1)
    # the one behind the log end is the greatest stray one, and goes as out of range
    assert loaded.snapshots == [2, 3]
    put_snapshot(directory, 3, entry(33))
    for offset in (4, 5):
        log_file(directory, offset, L.SNAPSHOT_SUFFIX).unlink()
    assert sorted(final(load(directory, clean=True, log_start=1))) == [33]


@pytest.mark.behaviour("P06")
@pytest.mark.parametrize("damaged", [b"", b"\0\1", b"\0\2" + bytes(8), b"\0\1" + bytes(50)])
def test_a_corrupt_snapshot_goes_and_the_one_before_counts(tmp_path: Path, damaged: bytes) -> None:
    directory = partition(tmp_path, {0: [produced(0, 1, 0)], 1: [produced(1, 2, 0)]})
    put_snapshot(directory, 1, entry(50))
    log_file(directory, 2, L.SNAPSHOT_SUFFIX).write_bytes(damaged)
    loaded = load(directory, clean=True)
    assert sorted(final(loaded)) == [2, 50]
    assert "snapshot-corrupt" in loaded.findings


@pytest.mark.behaviour("P08")
def test_a_log_made_anew_knows_no_producer(tmp_path: Path) -> None:
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
def test_snapshots_that_belong_nowhere_go(
    tmp_path: Path, bases: tuple[int, ...], end: int, snapshots: tuple[int, ...], kept: list[int]
) -> None:
    segments: dict[int, list[NewBatch]] = {base: [data(base)] for base in bases}
    segments[bases[-1]] = [data(bases[-1], end - bases[-1])] if end > bases[-1] else []
    directory = partition(tmp_path, segments)
    remove(directory, L.SNAPSHOT_SUFFIX)
    for offset in snapshots:
        put_snapshot(directory, offset)
    # a log that starts at 5 or 42 drops the snapshot there: its producers are those of an empty log
    assert load(directory, clean=True).snapshots == kept


@pytest.mark.behaviour("P11")
@pytest.mark.parametrize(
    ("clean", "recovery_point", "expected"),
    [(True, 0, [2, 3, 4]), (False, 4, [2, 3, 4]), (False, 0, [1, 2, 3, 4])],
)
def test_a_log_without_snapshots_gets_them(
    tmp_path: Path, clean: bool, recovery_point: int, expected: list[int]
) -> None:
    directory = partition(tmp_path, {base: [produced(base, 1, base)] for base in range(4)})
    remove(directory, L.SNAPSHOT_SUFFIX)
    loaded = load(directory, clean=clean, recovery_point=recovery_point)
    assert loaded.snapshots == expected
    assert bool(final(loaded)) is not clean  # after a clean stop nobody looks into the batches


@pytest.mark.behaviour("P12")
@pytest.mark.parametrize("first_kept", [8, 6])
def test_recovery_goes_on_from_the_newest_usable_snapshot(tmp_path: Path, first_kept: int) -> None:
    directory = partition(tmp_path, {base: [produced(base, base + 1, 0)] for base in range(10)})
    for offset in range(1, first_kept):
        log_file(directory, offset, L.SNAPSHOT_SUFFIX).unlink()
    loaded = load(directory, recovery_point=6)
    assert [offset for offset in loaded.snapshots if offset >= 6] == [6, 7, 8, 9, 10]
    assert sorted(final(loaded)) == list(range(1, 11))


@pytest.mark.behaviour("P14", "P15")
def test_producers_below_the_log_start(tmp_path: Path) -> None:
    one_segment = partition(tmp_path / "one", {0: [produced(0, 1, 0), produced(1, 2, 0)]})
    assert sorted(final(load(one_segment, log_start=1))) == [1, 2]
    two_segments = partition(tmp_path / "two", {1: [produced(1, 2, 0)]})
    put_snapshot(two_segments, 1, entry(1))
    assert sorted(final(load(two_segments, log_start=1))) == [2]


@pytest.mark.behaviour("P17", "P18")
def test_a_compacted_batch_counts_by_its_header(tmp_path: Path) -> None:
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
def test_the_state_of_a_cut_log_is_that_of_its_rest(tmp_path: Path) -> None:
    batches = [produced(offset, offset % 3 + 1, offset // 3) for offset in range(9)]
    whole = partition(tmp_path / "whole", {0: batches[:4], 4: batches[4:]})
    rest = partition(tmp_path / "rest", {0: batches[:4], 4: batches[4:6]})
    log_file(whole, 4).write_bytes(log_file(rest, 4).read_bytes() + b"torn")
    with_snapshots = load(whole)
    remove(whole, L.SNAPSHOT_SUFFIX)
    assert final(with_snapshots) == final(load(whole)) == final(load(rest))
    assert load(whole).snapshots == [4, 6]


@pytest.mark.behaviour("P20", "X10", "X11")
def test_open_transactions_hold_the_last_stable_offset(tmp_path: Path) -> None:
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
def test_the_last_stable_offset_is_not_below_the_log_start(tmp_path: Path) -> None:
    directory = partition(
        tmp_path, {0: [produced(0, 1, 0, transactional=True), data(1), data(2, 3)], 5: [data(5)]}
    )
    assert load(directory).repair.last_stable_offset == 0
    assert load(directory, log_start=1).repair.last_stable_offset == 1
    # the answer is where the batch begins that holds the log start
    assert load(directory, log_start=3).repair.last_stable_offset == 2
    # the replay of a segment that is not recovered begins at the log start, so the transaction is not seen
    assert load(directory, log_start=6, recovery_point=6).repair.last_stable_offset == 6
    damage(log_file(directory, 0), 70)
    assert load(directory).repair.last_stable_offset == load(directory).repair.log_end_offset == 0


@pytest.mark.behaviour("P22", "P23", "P24", "P25")
def test_markers_make_producers_known_and_raise_epochs(tmp_path: Path) -> None:
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
def test_a_coordinator_epoch_may_fall(tmp_path: Path) -> None:
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
def test_a_snapshot_of_nobody(tmp_path: Path) -> None:
    loaded = load(partition(tmp_path, {0: [data(0)]}))
    assert len(loaded.file(1, L.SNAPSHOT_SUFFIX)) == HEADER_BYTES
    assert decode_snapshot(loaded.file(1, L.SNAPSHOT_SUFFIX)) == ()


# --- the transaction index


def transactions(parent: Path) -> Path:
    """Segments 0, 30 and 60: transactions of four producers that overlap, two of them aborted, in other segments
    than they began in."""
    return partition(
        parent,
        {
            0: [
                produced(0, 1, 0, 5, transactional=True),
                data(5, 3),
                produced(8, 2, 0, 12, transactional=True),
            ],
            30: [
                marker(30, 1, abort=True),
                produced(31, 3, 0, 9, transactional=True),
                marker(40, 3, abort=False),
            ],
            60: [
                produced(60, 4, 0, 5, transactional=True),
                marker(74, 2, abort=True),
                data(75, 3),
                marker(89, 4, abort=False),
            ],
        },
    )


ABORTED = {0: [], 30: [AbortedTxn(0, 1, 0, 30, 8)], 60: [AbortedTxn(0, 2, 8, 74, 60)]}


@pytest.mark.behaviour("X01", "X02", "X03", "X07")
@pytest.mark.parametrize("removed", [(), (L.TXN_INDEX_SUFFIX,), (L.TXN_INDEX_SUFFIX, L.SNAPSHOT_SUFFIX)])
def test_aborts_stand_with_their_markers(tmp_path: Path, removed: tuple[str, ...]) -> None:
    directory = transactions(tmp_path)
    remove(directory, *removed)
    loaded = load(directory)
    assert {base: loaded.aborted(base) for base in loaded.segments} == ABORTED


@pytest.mark.behaviour("R16", "X04", "X05")
@pytest.mark.parametrize("keeps_snapshots", [True, False])
def test_recovery_of_the_last_segment_knows_what_was_open(tmp_path: Path, keeps_snapshots: bool) -> None:
    directory = transactions(tmp_path)
    before = content_of(directory)
    log_file(directory, 60, L.TXN_INDEX_SUFFIX).unlink()
    if not keeps_snapshots:
        remove(directory, L.SNAPSHOT_SUFFIX)
    loaded = load(directory, recovery_point=80)
    assert loaded.aborted(60) == ABORTED[60]
    assert loaded.file(30, L.TXN_INDEX_SUFFIX) == before[log_file(directory, 30, L.TXN_INDEX_SUFFIX).name]


@pytest.mark.behaviour("X06")
@pytest.mark.parametrize("is_known", [True, False])
def test_an_abort_begins_where_the_state_says(tmp_path: Path, is_known: bool) -> None:
    batches = [
        produced(100, 11, 0, 2, transactional=True),
        produced(102, 10, 5, 2, transactional=True),
        data(104, 2),
        marker(106, 10, abort=True),
    ]
    directory = partition(tmp_path, {100: batches})
    if is_known:
        open_one = entry(10, last_sequence=4, last_offset=90, offset_delta=1, current_txn_first_offset=75)
        put_snapshot(directory, 100, open_one)
    loaded = load(directory, recovery_point=100)
    assert [aborted[1:] for aborted in loaded.aborted(100)] == [(10, 75 if is_known else 102, 106, 100)]


@pytest.mark.behaviour("X13", "X14")
def test_markers_without_a_transaction_and_of_a_higher_epoch(tmp_path: Path) -> None:
    batches = [
        marker(0, 1, abort=True),
        produced(1, 1, 0, transactional=True),
        marker(2, 1, abort=True, producer_epoch=1),
        marker(3, 1, abort=True, producer_epoch=1),
    ]
    loaded = load(partition(tmp_path, {0: batches}))
    assert [aborted[1:] for aborted in loaded.aborted(0)] == [(1, 1, 2, 3)]


@pytest.mark.behaviour("X08", "X09")
def test_an_abort_is_found_from_a_later_segment(tmp_path: Path) -> None:
    loaded = load(transactions(tmp_path))
    found: list[AbortedTxn] = []
    for base in loaded.segments:  # a reader of offsets 0 to 20, segment after segment
        search = TxnIndex(encode_txn_index(loaded.aborted(base)), base).collect_aborted(0, 20)
        found += search.aborted
        if search.is_complete:
            break
    assert [aborted.producer_id for aborted in found] == [1, 2]


@pytest.mark.behaviour("X16")
def test_an_index_of_a_cut_log_ends_with_it(tmp_path: Path) -> None:
    directory = transactions(tmp_path)
    size = len(encode_batch(produced(60, 4, 0, 5, transactional=True)))
    damage(log_file(directory, 60), size + 30)
    loaded = load(directory)
    assert loaded.aborted(30) == ABORTED[30]
    assert loaded.aborted(60) == []
    index = TxnIndex(encode_txn_index([*ABORTED[30], *ABORTED[60]]), 0)
    assert bytes(index.truncate_to(74)) == encode_txn_index(ABORTED[30])


@pytest.mark.parametrize("version", [256, 512])
def test_an_unknown_version_in_a_transaction_index_ends_the_load(tmp_path: Path, version: int) -> None:
    directory = transactions(tmp_path)
    entries = [AbortedTxn(version, 1, 0, 30, 8)]
    log_file(directory, 30, L.TXN_INDEX_SUFFIX).write_bytes(encode_txn_index(entries))
    death = load(directory, clean=True).repair.death
    assert death is not None
    assert death.kafka_exception == "KafkaException"


def test_an_abort_below_its_segment_makes_a_clean_start_recover_it(tmp_path: Path) -> None:
    directory = transactions(tmp_path)
    entries = [AbortedTxn(0, 1, 0, 29, 30)]
    log_file(directory, 30, L.TXN_INDEX_SUFFIX).write_bytes(encode_txn_index(entries))
    loaded = load(directory, clean=True)
    assert loaded.aborted(30) == ABORTED[30]
    assert "txn-index-below-base" in loaded.findings


def test_writing_outside_an_open_transaction_ends_the_load(tmp_path: Path) -> None:
    directory = partition(tmp_path, {0: [produced(0, 1, 0, transactional=True)]})
    with log_file(directory, 0).open("ab") as file:
        file.write(encode_batch(produced(1, 1, 1)))
    death = load(directory).repair.death
    assert death is not None
    assert death.kafka_exception == "InvalidTxnStateException"


def test_a_producer_back_in_a_former_epoch_keeps_its_batch_only_when_replayed_together(
    tmp_path: Path,
) -> None:
    """A segment that is recovered forgets the batch at the first marker; one that is only replayed compares the
    epochs before and after (Kafka: ProducerStateEntry.update)."""
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


def test_the_newest_producer_of_a_bucket_comes_first_when_replayed_together(tmp_path: Path) -> None:
    """HashMap.computeIfAbsent puts a newcomer before the others of its bucket (ids 1 and 17 share one)."""
    directory = partition(tmp_path, {0: [produced(0, 1, 0), produced(1, 17, 0)], 2: []})
    assert list(final(load(directory))) == [1, 17]
    remove(directory, L.SNAPSHOT_SUFFIX)
    put_snapshot(directory, 0)
    assert list(final(load(directory, recovery_point=2))) == [17, 1]
