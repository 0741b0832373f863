"""Transactions followed by the kernel equal the same batches applied one by one, and the queue of open transactions equals a plain map."""

from __future__ import annotations

from array import array
from collections.abc import Callable
from types import ModuleType
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from kseg.recovery.loading.producer_replay import read_marker, rows_of_producers
from kseg.segment import header_tables as C
from kseg.segment.encoding.batch import encode_batch
from kseg.segment.header_tables import Columns
from kseg.segment.kernel.follow_producers import S_WIDTH
from kseg.segment.model import NewBatch, Record
from kseg.segment.scanning.batches import batch_at
from kseg.segment.scanning.decode import Decoder
from kseg.segment.scanning.scan import Scanner
from kseg.segment.sidecar.snapshot import ProducerSnapshotEntry
from kseg.segment.state.control import EndTransactionMarker, end_transaction_batch
from kseg.segment.state.open_transactions import UNSEEN_MS, OpenTransactions
from kseg.segment.state.producer import ProducerState
from kseg.segment.state.replay import completed, marker_of, replay_table
from kseg.segment.state.replay_events import CompletedTransaction, ReplayEvent
from tests.segment.state.test_replay import followed_rows, reported
from tests.segment.state.test_transaction_replay import logs
from tests.support.kernel_variants import both

T0 = 1_795_250_580_883


@st.composite
def disordered(draw: st.DrawFn) -> list[NewBatch]:
    """A log in which some batches may be repeated. No broker writes that, and it makes transactions begin before earlier ones."""
    log = draw(logs())
    again = draw(st.lists(st.integers(0, max(0, len(log) - 1)), max_size=6))
    return log + [log[at] for at in again if log]


@st.composite
def snapshots(draw: st.DrawFn) -> tuple[ProducerSnapshotEntry, ...]:
    """Entries for the producers of `logs`, in any order, with transactions that were already open."""
    producers = draw(st.lists(st.sampled_from([7, 8, 9, 10]), unique=True))
    return tuple(
        ProducerSnapshotEntry(each, 0, -1, -1, 0, T0, -1, draw(st.sampled_from([None, 0, 1, 2, 3])))
        for each in producers
    )


def table_of(log: list[NewBatch]) -> tuple[Decoder, Columns]:
    data = b"".join(map(encode_batch, log))
    table = Columns(C.BATCH_WIDTH, len(log) + 1)
    Scanner(data).fill_valid(table, 0, len(data), len(data))
    assert table.count == len(log)
    return Decoder(data, capacity=16), table


def by_batches(decoder: Decoder, table: Columns, state: ProducerState) -> list[ReplayEvent]:
    events: list[ReplayEvent] = []
    for row in range(table.count):
        batch = batch_at(table, row)
        events += state.apply(batch, marker_of(decoder, table, row) if batch.is_control else None)
    return events


@given(disordered(), snapshots(), st.one_of(st.none(), st.integers(0, 60)))
def test_table_with_transactions_equals_its_batches_one_by_one(
    log: list[NewBatch], snapshot: tuple[ProducerSnapshotEntry, ...], high_watermark: int | None
) -> None:
    decoder, table = table_of(log)
    one_by_one, as_table = (ProducerState.load(snapshot, 0, high_watermark=high_watermark) for _ in range(2))
    events = by_batches(decoder, table, one_by_one)
    found: list[ReplayEvent] = []
    row = 0
    while True:
        row, markers = as_table.follow_transactions(decoder.view, table, row, table.count)
        found += completed(markers)
        if row >= table.count:
            break
        batch = batch_at(table, row)
        found += as_table.apply(batch, marker_of(decoder, table, row) if batch.is_control else None)
        row += 1
    assert found == events
    assert reported(as_table) == reported(one_by_one)


@given(disordered(), st.integers(1, 3), st.integers(0, 3))
def test_compiled_and_interpreted_kernels_agree_on_transactions(
    log: list[NewBatch], open_room: int, most: int
) -> None:
    decoder, table = table_of(log)
    data = bytes(decoder.view)

    def run(kernel: dict[str, ModuleType], wrap: Callable[[Any], Any]) -> Any:
        return followed_rows(kernel, wrap, data, table, 0, open_room=open_room, most=most)

    both(run)


def damaged_bytes(decoder: Decoder, data: st.DataObject) -> bytes:
    """The bytes of a log with a few of them changed."""
    content = bytearray(decoder.view)
    for _ in range(data.draw(st.integers(0, 4))):
        if content:
            content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
    return bytes(content)


@given(disordered(), st.data())
def test_compiled_and_interpreted_kernels_agree_on_damaged_markers(
    log: list[NewBatch], data: st.DataObject
) -> None:
    decoder, table = table_of(log)
    content = damaged_bytes(decoder, data)

    def run(kernel: dict[str, ModuleType], wrap: Callable[[Any], Any]) -> Any:
        return followed_rows(kernel, wrap, content, table, 0, open_room=4)

    both(run)


@given(disordered(), st.data())
def test_all_control_batches_except_ordinary_markers_are_to_be_read(
    log: list[NewBatch], data: st.DataObject
) -> None:
    decoder, table = table_of(log)
    content = damaged_bytes(decoder, data)
    damaged = Decoder(content, capacity=16)

    def run(kernel: dict[str, ModuleType], wrap: Callable[[Any], Any]) -> list[int]:
        rows, row = [], -1
        while (
            row := kernel["follow_producers"].next_control(
                wrap(content), wrap(table.cells), table.capacity, row + 1, table.count
            )
        ) < table.count:
            rows.append(row)
        return rows

    to_read = both(run)
    controls = rows_of_producers(table, table.count)
    assert set(to_read) <= set(controls)
    # rows that the kernel skips must be readable
    for row in set(controls) - set(to_read):
        assert read_marker(damaged, table, row) is not None


def test_ordinary_transactions_are_handled_by_the_kernel_alone() -> None:
    """Three producers with overlapping transactions, of which every third is aborted. None of the 1,200 batches is applied on its own,
    although more transactions begin than the queue has room for."""
    made: list[NewBatch] = []
    offset, sequences = 0, [0, 0, 0]
    for at in range(600):
        producer = at % 3
        made.append(
            NewBatch(
                records=(Record(offset, T0 + at, None, b"v"),),
                transactional=True,
                producer_id=7 + producer,
                producer_epoch=0,
                base_sequence=sequences[producer],
            )
        )
        sequences[producer] += 1
        if at >= 2:
            ending = 7 + (at - 2) % 3
            marker = EndTransactionMarker(at % 4 == 0, 1, T0 + at)
            made.append(end_transaction_batch(marker, offset + 1, ending, 0, 0))
            offset += 1
        offset += 1
    decoder, table = table_of(made)
    state = ProducerState()
    stops, ended, row = [], 0, 0
    while row < table.count:
        row, markers = state.follow_transactions(decoder.view, table, row, table.count)
        ended += len(markers)
        if row < table.count:
            stops.append(table.at(C.PRODUCER_ID, row))
            assert state.apply(batch_at(table, row)) == ()
            row += 1
    assert (stops, ended) == ([], 598)
    assert [opened.producer_id for opened in state.open_transactions] == [8, 9]
    assert [opened.since_ms for opened in state.open_transactions] == [T0 + 598, T0 + 599]


def test_full_table_of_markers_loses_none() -> None:
    made: list[NewBatch] = []
    for at in range(1500):
        record = Record(2 * at, T0, None, b"v")
        made.append(
            NewBatch(records=(record,), transactional=True, producer_id=7, producer_epoch=0, base_sequence=at)
        )
        made.append(end_transaction_batch(EndTransactionMarker(True, 0, T0), 2 * at + 1, 7, 0, 0))
    decoder, table = table_of(made)
    state = ProducerState()
    aborted = [each for each in replay_table(decoder, table, state) if isinstance(each, CompletedTransaction)]
    assert [(each.first_offset, each.last_stable_offset) for each in aborted] == [
        (2 * at, 2 * at + 2) for at in range(1500)
    ]
    assert state.open_transactions == ()


@given(
    st.lists(
        st.tuples(st.sampled_from(["add", "remove", "see", "sort"]), st.integers(0, 30), st.integers(1, 4))
    )
)
def test_queue_of_open_transactions_equals_a_plain_map(steps: list[tuple[str, int, int]]) -> None:
    """As long as a producer has at most one transaction, which `ProducerState` ensures, the queue gives the same results."""
    queue = OpenTransactions(memoryview(array("q", bytes(8 * S_WIDTH))))
    plain: dict[int, tuple[int, int]] = {}
    for word, offset, producer in steps:
        if word == "add" and all(known != producer for at, (known, _) in plain.items() if at != offset):
            queue.add(offset, producer)
            plain[offset] = producer, UNSEEN_MS
        elif word == "remove":
            assert queue.remove(offset) == (plain.pop(offset, None) is not None)
        elif word == "see":
            queue.see(offset, T0 + offset)
            if offset in plain and plain[offset][1] == UNSEEN_MS:
                plain[offset] = plain[offset][0], T0 + offset
        elif word == "sort":
            queue.sort()
            assert queue.is_in_order
        assert [tuple(place) for place in queue.in_order()] == [(at, *plain[at]) for at in sorted(plain)]
        assert queue.first() == min(plain, default=None)
        others = [at for at, (known, _) in plain.items() if known != producer]
        assert queue.first_of_others(producer) == min(others, default=None)
