"""Producer snapshots (fact sheet §5.1, vectors §12; Kafka: ProducerStateManager.readSnapshot, writeSnapshot)."""

import importlib
import pickle
import re
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kseg.segment.errors import FormatError
from kseg.segment.sidecar.snapshot import (
    ProducerSnapshotEntry,
    SnapshotCorrupt,
    decode_snapshot,
    encode_snapshot,
)
from kseg.segment.state.producer import ProducerState

VECTOR = bytes.fromhex(
    "0001 34fc3cda 00000001 0000000000000001 0000 00000004 000000000000000e 00000004 0000018bcfe56800 ffffffff"
    " ffffffffffffffff"
)
ENTRY = ProducerSnapshotEntry(1, 0, 4, 14, 4, 1_700_000_000_000, -1, None)
SCHEMA = "Snapshot failed schema validation: "
independent_crc32c: Callable[[bytes], int] = importlib.import_module("crcmod.predefined").mkPredefinedCrcFun(
    "crc-32c"
)


def signed(bits: int, low: int | None = None) -> st.SearchStrategy[int]:
    return st.integers(-(2 ** (bits - 1)) if low is None else low, 2 ** (bits - 1) - 1)


entries = st.builds(
    ProducerSnapshotEntry,
    signed(64),
    signed(16),
    signed(32),
    signed(64, 0),
    signed(32),
    signed(64),
    signed(32),
    st.none() | signed(64, 0),
)


def with_crc(data: bytes) -> bytes:
    return data[:2] + independent_crc32c(data[6:]).to_bytes(4, "big") + data[6:]


def test_snapshot_matches_the_documented_vector() -> None:
    assert decode_snapshot(VECTOR) == (ENTRY,)
    assert encode_snapshot([ENTRY]) == VECTOR
    assert (ENTRY.first_sequence, ENTRY.first_offset, ENTRY.has_batch) == (0, 10, True)


@pytest.mark.behaviour("P01")
@given(st.lists(entries, max_size=8))
def test_snapshot_round_trips(producers: list[ProducerSnapshotEntry]) -> None:
    data = encode_snapshot(producers)
    assert len(data) == 10 + 46 * len(producers)
    assert data == with_crc(data)
    assert decode_snapshot(data) == tuple(producers)
    assert decode_snapshot(memoryview(bytearray(data))) == tuple(producers)


@pytest.mark.behaviour("P27")
def test_snapshot_without_producers_is_10_bytes() -> None:
    assert len(encode_snapshot([])) == 10
    assert decode_snapshot(encode_snapshot([])) == ()


def test_producer_without_a_batch_round_trips() -> None:
    entry = ProducerSnapshotEntry(7, 3, 99, -1, 12, 1, 2, 55)
    assert (entry.has_batch, entry.first_sequence, entry.first_offset) == (False, -1, -1)
    (stored,) = decode_snapshot(encode_snapshot([entry]))
    # the real loader keeps the sequence of a batch with offset -1
    assert stored == entry
    assert ProducerState.load([entry], 187).snapshot() == (ProducerSnapshotEntry(7, 3, -1, -1, 0, 1, 2, 55),)


def test_entry_with_a_negative_last_offset_is_stored_but_not_loaded() -> None:
    """The real loader writes such an entry for an unverified header with a damaged last offset delta."""
    entry = ProducerSnapshotEntry(1, 0, 17, -2147483514, -2147483646, 1, 0, 119)
    (stored,) = decode_snapshot(encode_snapshot([entry]))
    assert stored == entry and not stored.has_batch
    assert ProducerState.load([entry], 187, are_replayed=True).snapshot() == (entry,)
    forgotten = entry._replace(last_sequence=-1, last_offset=-1, offset_delta=0)
    assert ProducerState.load([entry], 187).snapshot() == (forgotten,)


def test_first_sequence_of_an_entry_wraps() -> None:
    assert ENTRY._replace(last_sequence=3, offset_delta=9).first_sequence == 2**31 - 6


def test_out_of_range_number_is_refused_in_a_snapshot() -> None:
    with pytest.raises(FormatError):
        encode_snapshot([ENTRY._replace(producer_epoch=2**15)])


# the messages of the exceptions that Kafka 4.3.1 throws for exactly these bytes
@pytest.mark.behaviour("V16")
@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", SCHEMA + "null"),
        (b"\0", SCHEMA + "null"),
        (VECTOR[:2], SCHEMA + "null"),
        (VECTOR[:9], SCHEMA + "null"),
        (VECTOR[:55], SCHEMA + "null"),
        (
            VECTOR[:10],
            SCHEMA + "Tried to allocate a collection of size 1, but there are only 0 bytes remaining.",
        ),
        (
            VECTOR[:6] + bytes.fromhex("7fffffff"),
            SCHEMA
            + "Tried to allocate a collection of size 2147483647, but there are only 0 bytes remaining.",
        ),
        (VECTOR[:6] + b"\xff" * 4, SCHEMA + "non-nullable field producerEntries was serialized as null"),
        (bytes(56), SCHEMA + "Snapshot contained an unknown file version 0"),
        (b"\0\2\0\0", SCHEMA + "Snapshot contained an unknown file version 2"),
        (b"\xff\xff", SCHEMA + "Snapshot contained an unknown file version -1"),
        (
            VECTOR[:20] + b"\xff" + VECTOR[21:],
            "Snapshot is corrupt (CRC is no longer valid). Stored crc: 888945882. Computed crc: 989472687",
        ),
        (
            VECTOR + b"\0",
            "Snapshot is corrupt (CRC is no longer valid). Stored crc: 888945882. Computed crc: 3933759230",
        ),
    ],
)
def test_corrupt_snapshot_has_kafkas_message(data: bytes, message: str) -> None:
    with pytest.raises(SnapshotCorrupt) as caught:
        decode_snapshot(data)
    assert caught.value.kafka_message == message
    assert str(caught.value).startswith("the snapshot")
    copy = pickle.loads(pickle.dumps(caught.value))
    assert (str(copy), copy.kafka_message) == (str(caught.value), message)


@pytest.mark.behaviour("V16")
def test_snapshot_can_be_read_without_checking_the_crc() -> None:
    damaged = VECTOR[:2] + bytes(4) + VECTOR[6:]
    assert decode_snapshot(damaged, check_crc=False) == (ENTRY,)


def test_bytes_after_the_last_producer_are_ignored_if_the_crc_covers_them() -> None:
    assert decode_snapshot(with_crc(VECTOR + b"more")) == (ENTRY,)


@pytest.mark.behaviour("V16")
@given(st.lists(entries, min_size=1, max_size=3), st.data())
def test_any_flipped_bit_of_a_snapshot_is_found(
    producers: list[ProducerSnapshotEntry], data: st.DataObject
) -> None:
    damaged = bytearray(encode_snapshot(producers))
    bit = data.draw(st.integers(0, 8 * len(damaged) - 1))
    damaged[bit // 8] ^= 1 << bit % 8
    with pytest.raises(SnapshotCorrupt):
        decode_snapshot(damaged)


@given(
    st.binary(max_size=200)
    | st.binary(max_size=200).map(lambda tail: with_crc(b"\0\1\0\0\0\0\0\0\0\2" + tail))
)
def test_any_bytes_are_a_snapshot_or_corrupt(data: bytes) -> None:
    try:
        producers = decode_snapshot(data)
    except SnapshotCorrupt as corrupt:
        assert corrupt.kafka_message
    else:
        assert len(producers) * 46 + 10 <= len(data)


@pytest.mark.parametrize("capture", ["capture_small", "legacy_small"])
def test_captured_snapshots_equal_kafkas_dump(capture: str, request: pytest.FixtureRequest) -> None:
    root: Path = request.getfixturevalue(capture)
    files = 0
    for path in sorted((root / "data").rglob("*.snapshot")):
        expected = root / "expected" / f"{path.relative_to(root / 'data')}.txt"
        if not expected.exists():
            continue
        producers = decode_snapshot(path.read_bytes())
        lines = expected.read_text().splitlines()[1:]
        assert len(lines) == len(producers)
        for line, producer in zip(lines, producers, strict=True):
            output = dict(re.findall(r"(\w+): (\S+)", line))
            assert int(output["producerId"]) == producer.producer_id
            assert int(output["producerEpoch"]) == producer.producer_epoch
            assert int(output["coordinatorEpoch"]) == producer.coordinator_epoch
            assert int(output["lastTimestamp"]) == producer.timestamp_ms
            assert (output["currentTxnFirstOffset"] == "OptionalLong.empty") == (
                producer.current_txn_first_offset is None
            )
            assert producer.has_batch == ("lastOffset" in output)
            if producer.has_batch:
                assert int(output["firstSequence"]) == producer.first_sequence
                assert int(output["lastSequence"]) == producer.last_sequence
                assert int(output["lastOffset"]) == producer.last_offset
                assert int(output["offsetDelta"]) == producer.offset_delta
        assert encode_snapshot(producers) == path.read_bytes()
        files += 1
    assert files > 20
