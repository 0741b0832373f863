"""The replay of transactions by columns equals the replay of recovery, which is compared with the real Kafka."""

from __future__ import annotations

from array import array
from collections.abc import Callable
from dataclasses import replace
from types import ModuleType
from typing import Any, NamedTuple

from hypothesis import given
from hypothesis import strategies as st

from kseg.segment import header_tables as C
from kseg.segment import layout as L
from kseg.segment.encoding.batch import encode_batch
from kseg.segment.header_tables import Columns
from kseg.segment.kernel import follow_transactions as T
from kseg.segment.model import NewBatch, Record
from kseg.segment.scanning.batches import batch_at
from kseg.segment.scanning.damage import Damage
from kseg.segment.scanning.decode import Decoder
from kseg.segment.scanning.scan import Scanner
from kseg.segment.state.control import EndTransactionMarker, end_transaction_batch
from kseg.segment.state.producer import ProducerState
from kseg.segment.state.replay import marker_of, replay_table
from kseg.segment.state.replay_events import CompletedTransaction
from kseg.segment.state.transaction_replay import TransactionReplay
from tests.segment.state.test_replay import tables
from tests.support.kernel_variants import both

T0 = 1_795_250_580_883


@st.composite
def logs(draw: st.DrawFn) -> list[NewBatch]:
    """What three producers may have written: transactions, idempotent batches, markers of every kind, batches that were cleaned."""
    made = []
    offset = draw(st.integers(0, 5))
    sequences = [0, 0, 0]
    for _ in range(draw(st.integers(0, 25))):
        producer = draw(st.integers(-1, 2))
        epoch, at_ms = draw(st.integers(0, 2)), T0 + draw(st.integers(0, 50))
        kind = draw(st.sampled_from(["data", "data", "data", "marker", "marker", "empty", "odd marker"]))
        count = draw(st.integers(1, 3))
        if producer < 0:
            records = tuple(Record(offset + at, at_ms, None, b"v") for at in range(count))
            made.append(NewBatch(records=records))
        elif kind in ("data", "empty"):
            is_open = draw(st.integers(0, 5)) > 0
            new = NewBatch(
                records=tuple(Record(offset + at, at_ms + at, None, b"v") for at in range(count)),
                transactional=is_open,
                producer_id=7 + producer,
                producer_epoch=epoch,
                base_sequence=sequences[producer] if draw(st.booleans()) else 2**31 - 2,
                codec=draw(st.sampled_from([L.NONE, L.GZIP])),
            )
            if kind == "empty":
                cleaned: dict[str, Any] = {
                    "base_offset": offset,
                    "last_offset": offset + count - 1,
                    "max_timestamp_ms": at_ms,
                }
                new = replace(new, records=(), codec=L.NONE, **cleaned)
            sequences[producer] += count
            made.append(new)
        else:
            count = 1
            marker = EndTransactionMarker(draw(st.booleans()), draw(st.integers(-1, 3)), at_ms)
            new = end_transaction_batch(marker, offset, 7 + producer, epoch, 0)
            if kind == "odd marker":
                change: dict[str, Any] = draw(
                    st.sampled_from(
                        [
                            {
                                "records": (),
                                "base_offset": offset,
                                "last_offset": offset,
                                "max_timestamp_ms": at_ms,
                            },
                            {"delete_horizon_ms": at_ms + 9},
                            {"log_append_time": True, "max_timestamp_ms": at_ms + 5},
                            {"records": (replace(new.records[0], key=b"\0\0\0\2"),)},
                            {
                                "records": (
                                    replace(new.records[0], value=(new.records[0].value or b"") + b"more"),
                                )
                            },
                        ]
                    )
                )
                new = replace(new, **change)
            made.append(new)
        offset += count + draw(st.integers(0, 1))
    return made


def _tables(data: bytes, capacity: int) -> list[tuple[Decoder, Columns]]:
    found = []
    scanner = Scanner(data, 0, capacity)
    for block in scanner.blocks():
        assert not isinstance(block, Damage)
        copy = Columns(C.BATCH_WIDTH, max(1, block.count))
        copy.count = block.count
        for field in range(C.BATCH_WIDTH):
            copy.column(field)[:] = block.column(field)
        found.append((Decoder(data), copy))
    return found


class EndedTransaction(NamedTuple):
    """A transaction with data that was ended by a marker. first_offset, last_offset: of its data. producer_epoch, timestamp_ms: of its last
    data batch (the maximum timestamp)."""

    producer_id: int
    producer_epoch: int
    first_offset: int
    last_offset: int
    timestamp_ms: int
    marker_offset: int
    is_abort: bool


def ended_of(table: Columns) -> list[EndedTransaction]:
    rows = zip(*(table.column(field) for field in range(T.ENDED_WIDTH)), strict=True)
    return [
        EndedTransaction(row[0], row[1], row[2], row[3], row[4], row[5], is_abort=row[6] == 1) for row in rows
    ]


def _replayed(replay: TransactionReplay, parts: list[tuple[Decoder, Columns]]) -> list[EndedTransaction]:
    found: list[EndedTransaction] = []
    for decoder, table in parts:
        for ended in replay.follow(decoder, table):
            found += ended_of(ended)
    for ended in replay.take_ended():
        found += ended_of(ended)
    return found


@given(logs(), st.integers(1, 9))
def test_column_replay_equals_the_replay_of_recovery(log: list[NewBatch], capacity: int) -> None:
    parts = _tables(b"".join(map(encode_batch, log)), capacity)
    state, replay = ProducerState(), TransactionReplay()
    events = [event for decoder, table in parts for event in replay_table(decoder, table, state)]
    ended = _replayed(replay, parts)
    assert replay.entries() == sorted(state.snapshot())
    assert replay.end_offset == state.end_offset
    assert [(each.first_offset, each.producer_id, each.producer_epoch) for each in replay.unfinished()] == [
        (each.first_offset, each.producer_id, each.producer_epoch) for each in state.open_transactions
    ]
    completed = [event for event in events if isinstance(event, CompletedTransaction)]
    with_data = _with_data(log, completed)
    assert [(each.producer_id, each.marker_offset, each.is_abort) for each in ended] == [
        (each.producer_id, each.last_offset, each.is_aborted) for each in with_data
    ]


def _with_data(log: list[NewBatch], completed: list[CompletedTransaction]) -> list[CompletedTransaction]:
    def has_data(each: CompletedTransaction) -> bool:
        return any(
            new.records
            and new.transactional
            and not new.control
            and new.producer_id == each.producer_id
            and each.first_offset <= new.records[0].offset < each.last_offset
            for new in log
        )

    return list(filter(has_data, completed))


@given(logs())
def test_transaction_has_the_offset_range_of_its_data(log: list[NewBatch]) -> None:
    found = _replayed(TransactionReplay(), _tables(b"".join(map(encode_batch, log)), 64))
    for each in found:
        data = [
            new
            for new in log
            if new.records
            and new.transactional
            and not new.control
            and new.producer_id == each.producer_id
            and each.first_offset <= new.records[0].offset <= each.last_offset
        ]
        first, last = data[0], data[-1]
        assert (first.records[0].offset, last.records[-1].offset) == (each.first_offset, each.last_offset)
        assert (last.producer_epoch, max(record.timestamp_ms for record in last.records)) == (
            each.producer_epoch,
            each.timestamp_ms,
        )


@given(logs(), st.data())
def test_replay_from_an_intermediate_snapshot_gives_the_same_state(
    log: list[NewBatch], data: st.DataObject
) -> None:
    at = data.draw(st.integers(0, len(log)))
    before, behind = (b"".join(map(encode_batch, part)) for part in (log[:at], log[at:]))
    whole, first = TransactionReplay(), TransactionReplay()
    _replayed(whole, _tables(before + behind, 64))
    _replayed(first, _tables(before, 64))
    second = TransactionReplay(first.end_offset, first.entries())
    _replayed(second, _tables(behind, 64))
    assert (second.entries(), second.unfinished()) == (whole.entries(), whole.unfinished())


def test_many_transactions_are_returned_in_parts() -> None:
    batches, offset = [], 0
    for _ in range(9000):
        batches.append(
            NewBatch(
                records=(Record(offset, T0, None, b"v"),),
                transactional=True,
                producer_id=7,
                producer_epoch=0,
                base_sequence=0,
            )
        )
        batches.append(end_transaction_batch(EndTransactionMarker(False, 0, T0), offset + 1, 7, 0, 0))
        offset += 2
    replay = TransactionReplay()
    found = _replayed(replay, _tables(b"".join(map(encode_batch, batches)), 4096))
    assert [each.first_offset for each in found] == list(range(0, 18000, 2))
    marker = replay.last_marker(7)
    assert marker is not None and (marker.offset, marker.producer_epoch, marker.timestamp_ms) == (
        17999,
        0,
        T0,
    )


@given(tables(), st.integers(0, 12), st.binary(max_size=2000), st.integers(0, 3))
def test_compiled_and_interpreted_column_replay_agree(
    table: Columns, first: int, data: bytes, most: int
) -> None:
    first = min(first, table.count)

    def run(kernel: dict[str, ModuleType], wrap: Callable[[Any], Any]) -> Any:
        slots, state = array("q", bytes(8 * 16 * 4)), array("q", [-7, 0])
        for at in range(9 * 4, 16 * 4):
            slots[at] = -1
        ended = array("q", bytes(8 * 7 * max(1, most)))
        stopped = kernel["follow_transactions"].follow_transactions(
            wrap(data),
            wrap(table.cells),
            table.capacity,
            first,
            table.count,
            {0: 1, 1: 3},
            wrap(slots),
            4,
            wrap(ended),
            most,
            wrap(state),
        )
        return stopped, slots.tolist(), ended.tolist(), state.tolist()

    both(run)


@given(logs())
def test_compiled_and_interpreted_marker_reading_agree(log: list[NewBatch]) -> None:
    data = b"".join(map(encode_batch, log))
    for _, table in _tables(data, 64):

        def run(kernel: dict[str, ModuleType], wrap: Callable[[Any], Any], table: Columns = table) -> Any:
            slots, state, ended = array("q", [-1] * 16 * 4), array("q", [-7, 0]), array("q", bytes(8 * 7 * 3))
            for at in range(4):
                slots[6 * 4 + at] = 0
            row, stops = 0, []
            while row < table.count:
                row = kernel["follow_transactions"].follow_transactions(
                    wrap(data),
                    wrap(table.cells),
                    table.capacity,
                    row,
                    table.count,
                    {7: 1, 8: 3},
                    wrap(slots),
                    4,
                    wrap(ended),
                    3,
                    wrap(state),
                )
                stops.append((row, state[1], ended.tolist()))
                row += state[1] < 3
                state[1] %= 3
            return stops, slots.tolist(), state.tolist()

        both(run)


def test_marker_of_the_column_replay_equals_the_control_record() -> None:
    data = encode_batch(end_transaction_batch(EndTransactionMarker(True, 9, T0), 3, 7, 2, 0))
    ((decoder, table),) = _tables(data, 4)
    assert batch_at(table, 0).size_bytes == 78
    assert marker_of(decoder, table, 0) == EndTransactionMarker(True, 9, T0)
