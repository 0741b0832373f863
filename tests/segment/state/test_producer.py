"""Replay of producers and transactions: rows of the acceptance list, a real broker's files, and a plain model of the rules."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kseg.segment import layout as L
from kseg.segment.model import Batch
from kseg.segment.sidecar.snapshot import ProducerSnapshotEntry, decode_snapshot, encode_snapshot
from kseg.segment.sidecar.txn_index import AbortedTxn, encode_txn_index
from kseg.segment.state import producer as P
from kseg.segment.state import replay_events as R
from kseg.segment.state.control import EndTransactionMarker, end_transaction_marker
from tests.support import reference_reader

TIME = 1_700_000_000_000


def batch_at(
    base_offset: int,
    count: int = 1,
    producer_id: int = 1,
    *,
    epoch: int = 0,
    sequence: int = L.NO_SEQUENCE,
    transactional: bool = True,
    control: bool = False,
    magic: int = 2,
    timestamp_ms: int = TIME,
) -> Batch:
    bits = (L.TRANSACTIONAL_BIT if transactional else 0) | (L.CONTROL_BIT if control else 0)
    return Batch(
        position=0,
        size_bytes=100,
        magic=magic,
        base_offset=base_offset,
        last_offset=base_offset + count - 1,
        count=count,
        attributes=bits,
        leader_epoch=0,
        crc=0,
        base_timestamp_ms=timestamp_ms,
        max_timestamp_ms=timestamp_ms,
        producer_id=producer_id,
        producer_epoch=epoch,
        base_sequence=sequence,
        crc_valid=True,
    )


class Log:
    """Appends to a replayed log. `events` collects everything that is reported."""

    def __init__(self, end_offset: int = 0, high_watermark: int | None = None) -> None:
        self.state = P.ProducerState(end_offset, high_watermark)
        self.events: list[R.ReplayEvent] = []

    def data(self, producer_id: int, count: int, *, transactional: bool = True, epoch: int = 0) -> None:
        batch = batch_at(self.state.end_offset, count, producer_id, transactional=transactional, epoch=epoch)
        self.events += self.state.apply(batch)

    def end(self, producer_id: int, *, abort: bool, coordinator_epoch: int = 0, epoch: int = 0) -> None:
        batch = batch_at(self.state.end_offset, 1, producer_id, control=True, epoch=epoch)
        marker = EndTransactionMarker(abort, coordinator_epoch, TIME)
        self.events += self.state.apply(batch, marker)

    @property
    def aborted(self) -> list[AbortedTxn]:
        completed = [event for event in self.events if isinstance(event, R.CompletedTransaction)]
        return [event.index_entry for event in completed if event.index_entry is not None]


@pytest.mark.behaviour("X01", "X02", "X07")
def test_aborted_transactions_equal_those_of_kafkas_own_test() -> None:
    log = Log()
    log.data(1, 5)
    log.data(-1, 3, transactional=False)
    log.data(2, 2)
    log.data(1, 4)
    log.data(3, 3)
    log.data(-1, 2, transactional=False)
    log.data(1, 10)
    log.end(1, abort=True)
    log.data(2, 6)
    log.data(4, 3)
    log.data(-1, 10, transactional=False)
    log.data(3, 9)
    log.end(3, abort=False)
    log.data(4, 8)
    log.data(2, 7)
    log.end(2, abort=True)
    log.data(-1, 10, transactional=False)
    log.data(4, 4)
    log.end(4, abort=False)
    assert log.state.end_offset == 90
    assert log.aborted == [AbortedTxn(0, 1, 0, 29, 8), AbortedTxn(0, 2, 8, 74, 36)]
    assert log.state.open_transactions == ()


@pytest.mark.behaviour("X06")
@pytest.mark.parametrize(("known", "first_offset"), [(True, 75), (False, 102)])
def test_first_offset_of_a_transaction_comes_from_the_loaded_state(known: bool, first_offset: int) -> None:
    entry = ProducerSnapshotEntry(10, 0, 10, 90, 5, TIME, 0, 75)
    log = Log()
    log.state = P.ProducerState.load([entry] if known else [], end_offset=100)
    log.data(5, 2)
    log.data(10, 2)
    log.data(5, 2)
    log.end(10, abort=True)
    log.end(5, abort=False)
    assert log.aborted == [AbortedTxn(0, 10, first_offset, 106, 100)]


@pytest.mark.behaviour("X10")
def test_first_unstable_offset_is_that_of_the_oldest_transaction() -> None:
    log = Log()
    seen = []
    steps: tuple[Callable[[], None], ...] = (
        lambda: log.data(1, 5),
        lambda: log.data(2, 5),
        lambda: log.data(3, 5),
        lambda: log.end(2, abort=False),
        lambda: log.end(1, abort=True),
        lambda: log.end(3, abort=False),
    )
    for step in steps:
        step()
        seen.append(log.state.first_unstable_offset)
    assert seen == [0, 0, 0, 0, 10, None]


def _own_batch(offset: int) -> int:
    """As if a batch began at each offset."""
    return offset


@pytest.mark.behaviour("X10")
def test_decided_transaction_is_unstable_above_the_high_watermark() -> None:
    log = Log(high_watermark=12)
    log.data(1, 10)
    log.end(1, abort=False)  # the marker at 10 is replicated
    log.data(2, 1)
    log.end(2, abort=False)  # the marker at 12 is not
    log.data(3, 1)
    assert log.state.first_undecided_offset == 13
    assert log.state.first_unstable_offset == 11
    assert P.last_stable_offset(log.state.first_unstable_offset, 0, 12, _own_batch) == 11


@pytest.mark.behaviour("X11", "X12")
def test_last_stable_offset_is_below_open_transactions_and_the_high_watermark() -> None:
    log = Log()
    log.data(-1, 8, transactional=False)
    assert log.state.first_unstable_offset is None
    assert P.last_stable_offset(None, 0, 8, _own_batch) == 8
    log.data(1, 4)
    first = log.state.first_unstable_offset
    assert P.last_stable_offset(first, 0, 12, _own_batch) == 8
    assert P.last_stable_offset(first, 0, 5, _own_batch) == 5
    # the result is the base offset of the batch that contains the log start, with which a fetch begins
    assert P.last_stable_offset(first, 10, 12, {10: 9}.__getitem__) == 9
    assert log.state.open_transactions == (P.OpenTransaction(1, 0, 8, 11, TIME, TIME),)


@pytest.mark.behaviour("X13")
def test_markers_without_a_transaction_create_no_index_entry() -> None:
    log = Log()
    log.data(1, 1)
    log.end(1, abort=True, coordinator_epoch=1)
    log.end(1, abort=True, coordinator_epoch=3)
    log.end(2, abort=True, coordinator_epoch=2)
    assert log.aborted == [AbortedTxn(0, 1, 0, 1, 2)]
    entry = log.state.entry(1)
    assert entry is not None and entry.coordinator_epoch == 3
    assert log.state.entry(2) == ProducerSnapshotEntry(2, 0, -1, -1, 0, TIME, 2, None)


@pytest.mark.behaviour("X14")
def test_abort_with_a_higher_epoch_closes_the_transaction_of_the_lower_one() -> None:
    log = Log()
    log.data(1, 3)
    log.end(1, abort=True, epoch=4)
    assert log.aborted == [AbortedTxn(0, 1, 0, 3, 4)]
    assert log.state.entry(1) == ProducerSnapshotEntry(1, 4, -1, -1, 0, TIME, 0, None)


@pytest.mark.behaviour("V13")
def test_lower_producer_and_coordinator_epochs_are_accepted() -> None:
    log = Log()
    log.data(1, 3, epoch=5)
    log.end(1, abort=False, coordinator_epoch=9, epoch=5)
    log.data(1, 2, epoch=4)
    log.end(1, abort=True, coordinator_epoch=2, epoch=4)
    assert log.state.entry(1) == ProducerSnapshotEntry(1, 4, -1, 5, 1, TIME, 2, None)
    assert log.aborted == [AbortedTxn(0, 1, 4, 6, 7)]


@pytest.mark.behaviour("V13")
@pytest.mark.parametrize(
    ("sequences", "found"),
    [
        ([(5, 2), (7, 1)], []),  # the first sequence may be any
        ([(L.INT32_MAX - 1, 3), (1, 1)], []),  # wraps around within a batch
        ([(L.INT32_MAX, 1), (0, 1)], []),
        ([(0, 3), (5, 1)], [(R.GAP, 3, 5, 2)]),
        ([(L.INT32_MAX, 1), (4, 1)], [(R.GAP, 0, 4, 4)]),
        ([(0, 3), (0, 3)], [(R.DUPLICATE, 3, 0, 3)]),
        ([(0, 1), (L.INT32_MAX, 1)], [(R.DUPLICATE, 1, L.INT32_MAX, 2)]),
        ([(0, 3), (-1, 3), (9, 1)], []),  # a batch without a sequence breaks the chain
    ],
)
def test_sequence_breaks_within_an_epoch_are_reported(
    sequences: list[tuple[int, int]], found: list[tuple[str, int, int, int]]
) -> None:
    state = P.ProducerState()
    breaks: list[Any] = []
    for sequence, count in sequences:
        batch = batch_at(state.end_offset, count, sequence=sequence, transactional=False)
        breaks += state.apply(batch)
    assert all(isinstance(event, R.SequenceBreak) for event in breaks)
    assert [(event.kind, event.expected, event.found, event.distance) for event in breaks] == found


def test_new_epoch_starts_a_new_sequence() -> None:
    state = P.ProducerState()
    state.apply(batch_at(0, 3, sequence=0))
    assert state.apply(batch_at(3, 3, sequence=7, epoch=1)) == ()
    entry = state.entry(1)
    assert entry is not None and (entry.last_sequence, entry.last_offset, entry.offset_delta) == (9, 5, 2)


def test_data_outside_the_open_transaction_is_reported() -> None:
    log = Log()
    log.data(1, 3)
    log.data(1, 2, transactional=False)
    assert log.events == [R.OutsideTransaction(1, 3, 4, 0)]
    assert log.state.first_undecided_offset == 0


def test_two_transactions_with_the_same_first_offset() -> None:
    state = P.ProducerState()
    state.apply(batch_at(5, producer_id=1))
    state.apply(batch_at(5, producer_id=2))
    marker = EndTransactionMarker(True, 0, TIME)
    (completed,) = state.apply(batch_at(6, producer_id=1, control=True), marker)
    assert isinstance(completed, R.CompletedTransaction)
    assert state.apply(batch_at(7, producer_id=2, control=True), marker) == (R.LostTransaction(2, 5, 7),)


def test_emptied_control_batch_creates_its_producer() -> None:
    # as in the snapshot that 4.3.1 wrote after recovering a log of one such batch
    state = P.ProducerState()
    assert state.apply(batch_at(4, producer_id=9, control=True, epoch=3)) == ()
    assert state.snapshot() == (ProducerSnapshotEntry(9, -1, -1, -1, 0, -1, -1, None),)


def test_entry_time_comes_from_the_marker_record_or_the_batch() -> None:
    state = P.ProducerState()
    state.apply(batch_at(0, timestamp_ms=TIME + 5))
    entry = state.entry(1)
    assert entry is not None and entry.timestamp_ms == TIME + 5
    state.apply(batch_at(1, control=True, timestamp_ms=TIME + 9), EndTransactionMarker(False, 0, TIME + 7))
    entry = state.entry(1)
    assert entry is not None and entry.timestamp_ms == TIME + 7


def test_old_formats_and_batches_without_a_producer_leave_no_entry() -> None:
    state = P.ProducerState(3)
    assert state.apply(batch_at(10, magic=1)) == ()
    assert state.end_offset == 3
    assert state.apply(batch_at(10, producer_id=-1, control=True, transactional=False)) == ()
    assert (state.end_offset, state.snapshot()) == (11, ())


def test_idle_producers_expire_unless_a_transaction_is_open() -> None:
    day = P.DEFAULT_EXPIRATION_MS
    entries = [
        ProducerSnapshotEntry(1, 0, 0, 5, 0, TIME, -1, None),
        ProducerSnapshotEntry(2, 0, 0, 6, 0, TIME + 1, -1, None),
        ProducerSnapshotEntry(3, 0, 0, 7, 0, TIME, -1, 7),
    ]
    loaded = P.ProducerState.load(entries, 8, now_ms=TIME + day)
    assert [entry.producer_id for entry in loaded.snapshot()] == [2, 3]
    assert loaded.first_undecided_offset == 7
    kept = P.ProducerState.load(entries, 8)
    assert kept.snapshot() == tuple(entries)
    assert kept.expire(TIME + day) == (1,)
    assert kept.expire(TIME + day + 1) == (2,)


def test_snapshot_entry_without_a_last_offset_has_no_batch() -> None:
    entry = ProducerSnapshotEntry(1, 2, 77, -1, 5, TIME, 3, None)
    assert P.ProducerState.load([entry], 8).snapshot() == (entry._replace(last_sequence=-1, offset_delta=0),)


def test_snapshots_have_the_order_of_a_java_hash_map() -> None:
    state = P.ProducerState()
    for producer_id in [*(7919 * n for n in range(30, 0, -1)), (3 << 32) + 5, 1000, 2000]:
        state.apply(batch_at(state.end_offset, producer_id=producer_id, transactional=False))
    printed_by_java = (
        "118785 237570 87109 205894 12884901893 174218 55433 142542 23757 229651 2000 110866 197975 79190 166299 "
        "47514 134623 15838 102947 71271 221732 1000 190056 39595 158380 7919 126704 95028 213813 63352 182137 "
        "31676 150461"
    )
    assert [str(entry.producer_id) for entry in state.snapshot()] == printed_by_java.split()


def replay(directory: Path, visit: Callable[[P.ProducerState], None]) -> dict[str, list[AbortedTxn]]:
    """Replay a partition. `visit` is called with the state at each segment's start and after each batch."""
    state = P.ProducerState()
    aborted: dict[str, list[AbortedTxn]] = {}
    for log in sorted(directory.glob("*.log")):
        data = log.read_bytes()
        state.end_offset = max(state.end_offset, int(log.stem))
        visit(state)
        for batch in reference_reader.batches(data):
            marker = None
            if batch.is_control and batch.producer_id >= 0 and batch.count:
                marker = end_transaction_marker(reference_reader.records(batch, data)[0])
            for event in state.apply(batch, marker):
                assert isinstance(event, R.CompletedTransaction)
                if event.index_entry is not None:
                    aborted.setdefault(log.stem, []).append(event.index_entry)
            visit(state)
    return aborted


@pytest.mark.behaviour("X01", "X03", "X04", "X05")
def test_replay_gives_the_files_of_a_real_broker(capture_small: Path) -> None:
    compared = 0
    for directory in sorted((capture_small / "before").glob("*-*/")):
        snapshots = {int(path.stem): path.read_bytes() for path in directory.glob("*.snapshot")}
        found: dict[int, bytes] = {}

        def visit(state: P.ProducerState, found: dict[int, bytes] = found) -> None:
            found[state.end_offset] = encode_snapshot(state.snapshot())

        aborted = replay(directory, visit)
        assert {offset: found.get(offset) for offset in snapshots} == snapshots, directory.name
        on_disk = {path.stem: path.read_bytes() for path in directory.glob("*.txnindex")}
        assert {stem: encode_txn_index(entries) for stem, entries in aborted.items()} == on_disk
        compared += len(snapshots) + len(on_disk)
    assert compared > 20


@pytest.mark.behaviour("X04")
def test_replay_from_a_loaded_snapshot_equals_a_full_replay(capture_small: Path) -> None:
    directory = capture_small / "data" / "fares-0"
    loaded = decode_snapshot((directory / "00000000000000000068.snapshot").read_bytes())
    state = P.ProducerState.load(loaded, 68)
    log = directory / "00000000000000000068.log"
    data, entries = log.read_bytes(), []
    for batch in reference_reader.batches(data):
        marker = (
            end_transaction_marker(reference_reader.records(batch, data)[0]) if batch.is_control else None
        )
        for event in state.apply(batch, marker):
            assert isinstance(event, R.CompletedTransaction)
            entries += [event.index_entry] if event.index_entry else []
    assert encode_txn_index(entries) == log.with_suffix(".txnindex").read_bytes()
    written = decode_snapshot((directory / "00000000000000000117.snapshot").read_bytes())
    assert state.snapshot() == tuple(written)


@pytest.mark.behaviour("X07", "X10")
@given(st.lists(st.tuples(st.integers(0, 5), st.booleans(), st.booleans()), max_size=60))
def test_last_stable_offsets_equal_a_plain_model(steps: list[tuple[int, bool, bool]]) -> None:
    log = Log()
    open_: dict[int, int] = {}
    expected = []
    for producer_id, is_marker, abort in steps:
        offset = log.state.end_offset
        if not is_marker:
            log.data(producer_id, 1)
            open_.setdefault(producer_id, offset)
        else:
            log.end(producer_id, abort=abort)
            first = open_.pop(producer_id, None)
            if first is not None and abort:
                stable = min(open_.values(), default=offset + 1)
                expected.append(AbortedTxn(0, producer_id, first, offset, stable))
        assert log.state.first_unstable_offset == min(open_.values(), default=None)
    assert log.aborted == expected
    assert [(t.producer_id, t.first_offset) for t in log.state.open_transactions] == sorted(
        open_.items(), key=lambda pair: pair[1]
    )


@given(st.integers(-(2**31), 2**31 - 1), st.integers(-(2**31), 2**31 - 1))
def test_damaged_headers_always_fit_a_snapshot(sequence: int, delta: int) -> None:
    state = P.ProducerState()
    state.apply(batch_at(2**40, delta + 1, sequence=sequence))
    assert decode_snapshot(encode_snapshot(state.snapshot()))
