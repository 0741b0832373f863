"""Rows X of the acceptance list: the index of aborted transactions after a broker's load."""

from __future__ import annotations

from pathlib import Path

import pytest

from kseg.segment import layout as L
from kseg.segment.encoding.batch import encode_batch
from kseg.segment.sidecar.txn_index import AbortedTxn, TxnIndex, encode_txn_index
from tests.support.load_helpers import (
    damage,
    data,
    entry,
    load,
    log_file,
    marker,
    partition,
    produced,
    put_snapshot,
    remove,
)
from tests.support.trees import content_of


def transactions(parent: Path) -> Path:
    """Segments 0, 30 and 60 with overlapping transactions of four producers. Two are aborted, in later segments than they began in."""
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
def test_aborted_transactions_are_in_the_index_of_the_markers_segment(
    tmp_path: Path, removed: tuple[str, ...]
) -> None:
    directory = transactions(tmp_path)
    remove(directory, *removed)
    loaded = load(directory)
    assert {base: loaded.aborted(base) for base in loaded.segments} == ABORTED


@pytest.mark.behaviour("R16", "X04", "X05")
@pytest.mark.parametrize("keeps_snapshots", [True, False])
def test_recovery_of_the_last_segment_knows_open_transactions(tmp_path: Path, keeps_snapshots: bool) -> None:
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
def test_aborted_transaction_starts_where_the_producer_state_says(tmp_path: Path, is_known: bool) -> None:
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
def test_markers_without_data_or_with_a_higher_epoch(tmp_path: Path) -> None:
    batches = [
        marker(0, 1, abort=True),
        produced(1, 1, 0, transactional=True),
        marker(2, 1, abort=True, producer_epoch=1),
        marker(3, 1, abort=True, producer_epoch=1),
    ]
    loaded = load(partition(tmp_path, {0: batches}))
    assert [aborted[1:] for aborted in loaded.aborted(0)] == [(1, 1, 2, 3)]


@pytest.mark.behaviour("X08", "X09")
def test_abort_marker_in_a_later_segment_is_found(tmp_path: Path) -> None:
    loaded = load(transactions(tmp_path))
    found: list[AbortedTxn] = []
    # reads offsets 0 to 20, segment by segment
    for base in loaded.segments:
        search = TxnIndex(encode_txn_index(loaded.aborted(base)), base).collect_aborted(0, 20)
        found += search.aborted
        if search.is_complete:
            break
    assert [aborted.producer_id for aborted in found] == [1, 2]


@pytest.mark.behaviour("X16")
def test_transaction_index_is_truncated_with_its_log(tmp_path: Path) -> None:
    directory = transactions(tmp_path)
    size = len(encode_batch(produced(60, 4, 0, 5, transactional=True)))
    damage(log_file(directory, 60), size + 30)
    loaded = load(directory)
    assert loaded.aborted(30) == ABORTED[30]
    assert loaded.aborted(60) == []
    index = TxnIndex(encode_txn_index([*ABORTED[30], *ABORTED[60]]), 0)
    assert bytes(index.truncate_to(74)) == encode_txn_index(ABORTED[30])


@pytest.mark.parametrize("version", [256, 512])
def test_unknown_version_in_a_transaction_index_fails_the_load(tmp_path: Path, version: int) -> None:
    directory = transactions(tmp_path)
    entries = [AbortedTxn(version, 1, 0, 30, 8)]
    log_file(directory, 30, L.TXN_INDEX_SUFFIX).write_bytes(encode_txn_index(entries))
    load_failure = load(directory, clean=True).repair.load_failure
    assert load_failure is not None
    assert load_failure.kafka_exception == "KafkaException"


def test_aborted_entry_below_its_segment_causes_recovery_on_a_clean_start(tmp_path: Path) -> None:
    directory = transactions(tmp_path)
    entries = [AbortedTxn(0, 1, 0, 29, 30)]
    log_file(directory, 30, L.TXN_INDEX_SUFFIX).write_bytes(encode_txn_index(entries))
    loaded = load(directory, clean=True)
    assert loaded.aborted(30) == ABORTED[30]
    assert "txn-index-below-base" in loaded.findings


def test_non_transactional_batch_in_an_open_transaction_fails_the_load(tmp_path: Path) -> None:
    directory = partition(tmp_path, {0: [produced(0, 1, 0, transactional=True)]})
    with log_file(directory, 0).open("ab") as file:
        file.write(encode_batch(produced(1, 1, 1)))
    load_failure = load(directory).repair.load_failure
    assert load_failure is not None
    assert load_failure.kafka_exception == "InvalidTxnStateException"
