"""The index of aborted transactions (fact sheet §4.3, vectors §12; Kafka: TransactionIndex, AbortedTxn)."""

import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kseg.segment.errors import FormatError, UsageError
from kseg.segment.sidecar.txn_index import (
    AbortedTxn,
    TxnIndex,
    collect_aborted,
    encode_aborted,
    encode_txn_index,
)

VECTOR = bytes.fromhex("0000 0000000000000001 0000000000000005 0000000000000009 000000000000000a")
FOUR = [
    AbortedTxn(0, *numbers) for numbers in ((0, 0, 10, 11), (1, 5, 15, 13), (2, 18, 35, 25), (3, 32, 50, 40))
]
INT64 = st.integers(-(2**63), 2**63 - 1)


@st.composite
def aborted(draw: st.DrawFn) -> list[AbortedTxn]:
    last_offsets = sorted(draw(st.sets(st.integers(0, 2**63 - 1), max_size=20)))
    return [AbortedTxn(0, draw(INT64), draw(INT64), last, draw(INT64)) for last in last_offsets]


@pytest.mark.behaviour("I16")
def test_transaction_index_entry_matches_the_documented_bytes() -> None:
    entry = AbortedTxn(0, 1, 5, 9, 10)
    assert list(TxnIndex(VECTOR, 0)) == [entry] and encode_aborted(entry) == VECTOR
    assert TxnIndex(VECTOR, 0).entry(0) == entry
    with pytest.raises(UsageError):
        TxnIndex(VECTOR, 0).entry(1)


@pytest.mark.behaviour("I16")
@pytest.mark.parametrize(("version", "as_kafka"), [(1, 0), (255, 0), (256, 1), (-1, -1), (-32768, -128)])
def test_entry_of_an_unknown_version_is_read_by_its_known_fields(version: int, as_kafka: int) -> None:
    index = TxnIndex(version.to_bytes(2, "big", signed=True) + VECTOR[2:], 0)
    (entry,) = index
    assert entry[1:] == (1, 5, 9, 10)
    assert (entry.version, entry.version_as_kafka) == (version, as_kafka)
    assert (index.sanity_problem() is not None) == (as_kafka > 0)


@given(aborted(), st.integers(0, 33))
def test_transaction_index_round_trips_and_ignores_a_partial_tail(
    entries: list[AbortedTxn], surplus: int
) -> None:
    data = encode_txn_index(entries)
    assert len(data) == 34 * len(entries)
    index = TxnIndex(data + bytes(surplus), 0)
    assert list(index) == entries
    assert (index.entries, index.trailing_bytes) == (len(entries), surplus)


@pytest.mark.behaviour("I19")
def test_missing_transaction_index_has_no_aborts() -> None:
    index = TxnIndex(b"", 100)
    assert list(index) == [] and index.sanity_problem() is None
    search = index.collect_aborted(0, 1000)
    assert search.aborted == () and not search.is_complete


@pytest.mark.behaviour("I17")
def test_transaction_index_entry_below_the_segment_is_corrupt() -> None:
    data = encode_txn_index(FOUR)
    assert TxnIndex(data, 10).sanity_problem() is None
    problem = TxnIndex(data, 11).sanity_problem()
    assert problem is not None and "entry 0 ends at 10, below the base offset 11" in problem


@pytest.mark.behaviour("I17")
@pytest.mark.parametrize("last_offset", [10, 9])
def test_last_offsets_of_a_transaction_index_must_increase(last_offset: int) -> None:
    with pytest.raises(FormatError, match="not greater than 10"):
        encode_txn_index([AbortedTxn(0, 0, 0, 10, 2), AbortedTxn(0, 1, 0, last_offset, 2)])


def test_out_of_range_number_is_refused_in_a_transaction_index() -> None:
    with pytest.raises(FormatError):
        encode_txn_index([AbortedTxn(0, 2**63, 0, 0, 0)])


@pytest.mark.behaviour("I18", "X16")
@pytest.mark.parametrize(("offset", "kept"), [(51, 4), (50, 3), (36, 3), (35, 2), (10, 0), (0, 0)])
def test_transaction_index_is_truncated_at_an_offset(offset: int, kept: int) -> None:
    index = TxnIndex(encode_txn_index(FOUR), 0)
    assert list(TxnIndex(index.truncate_to(offset), 0)) == FOUR[:kept]


@pytest.mark.behaviour("X08")
@pytest.mark.parametrize(
    ("from_offset", "to_offset", "found", "is_complete"),
    [
        (0, 100, [0, 1, 2, 3], False),
        (0, 32, [0, 1, 2], True),
        (0, 35, [0, 1, 2, 3], True),
        (10, 35, [0, 1, 2, 3], True),
        (11, 35, [1, 2, 3], True),
        (20, 41, [2, 3], False),
    ],
)
def test_aborted_transactions_in_an_offset_range_are_collected(
    from_offset: int, to_offset: int, found: list[int], is_complete: bool
) -> None:
    search = collect_aborted(FOUR, from_offset, to_offset)
    assert search.aborted == tuple(FOUR[i] for i in found)
    assert search.is_complete == is_complete
    assert TxnIndex(encode_txn_index(FOUR), 0).collect_aborted(from_offset, to_offset) == search


@given(st.binary(max_size=300), INT64, INT64, INT64)
def test_any_bytes_are_read_as_a_transaction_index(
    data: bytes, base: int, from_offset: int, to_offset: int
) -> None:
    index = TxnIndex(data, base)
    assert 34 * len(list(index)) + index.trailing_bytes == len(data)
    assert set(index.collect_aborted(from_offset, to_offset).aborted) <= set(index)
    assert len(index.truncate_to(from_offset)) <= len(data)
    assert isinstance(index.sanity_problem(), str | None)


def test_captured_transaction_indexes_equal_kafkas_dump(capture_small: Path) -> None:
    entries = 0
    for path in sorted((capture_small / "data").rglob("*.txnindex")):
        text = (capture_small / "expected" / f"{path.relative_to(capture_small / 'data')}.txt").read_text()
        pattern = (
            r"version: (\d+) producerId: (\d+) firstOffset: (\d+) lastOffset: (\d+) lastStableOffset: (\d+)"
        )
        printed = [tuple(map(int, fields)) for fields in re.findall(pattern, text)]
        index = TxnIndex(path.read_bytes(), int(path.stem))
        assert list(map(tuple, index)) == printed
        assert index.sanity_problem() is None
        assert encode_txn_index(index) == path.read_bytes()
        entries += len(printed)
    assert entries == 9
