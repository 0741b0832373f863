"""Offset and time indexes (fact sheet §4; rows I01-I18 of the acceptance list; Kafka: OffsetIndex, TimeIndex)."""

import re
import struct
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kseg.inspection.dump.options import DumpOptions
from kseg.segment.errors import FormatError, UsageError
from kseg.segment.findings import CATALOGUE, Finding
from kseg.segment.partition.targets import FileTarget
from kseg.segment.sidecar.index import OffsetIndex, OffsetIndexEntry, TimeIndex, TimeIndexEntry
from kseg.segment.sidecar.index_writer import OffsetIndexBuilder, TimeIndexBuilder, can_index_offset
from tests.support.encoders import encode_offset_index, encode_time_index
from tests.support.one_target import dump

INT32_MAX = 2**31 - 1
BASE = 45
NINE = [OffsetIndexEntry(BASE + i, 10 * i) for i in range(1, 10)]
FOUR_TIMES = [TimeIndexEntry(ts, offset) for ts, offset in ((10, 55), (20, 65), (30, 75), (40, 85))]


@st.composite
def offset_entries(draw: st.DrawFn) -> list[OffsetIndexEntry]:
    relative = sorted(draw(st.sets(st.integers(0, INT32_MAX), max_size=60)))
    positions = st.integers(1, INT32_MAX)
    return [OffsetIndexEntry(BASE + offset, draw(positions)) for offset in relative]


@st.composite
def time_entries(draw: st.DrawFn) -> list[TimeIndexEntry]:
    times = sorted(draw(st.sets(st.integers(1, 2**63 - 1), max_size=60)))
    offsets = sorted(draw(st.lists(st.integers(0, INT32_MAX), min_size=len(times), max_size=len(times))))
    return [TimeIndexEntry(ts, BASE + offset) for ts, offset in zip(times, offsets, strict=True)]


# --- reading what was written


@pytest.mark.behaviour("I06")
@given(offset_entries(), st.integers(0, 40), st.integers(0, 7))
def test_offset_index_round_trip(entries: list[OffsetIndexEntry], zero_slots: int, surplus: int) -> None:
    data = encode_offset_index(entries, BASE)
    assert len(data) == 8 * len(entries)
    # a single slot does not count as a zero tail
    tail = bytes(8 * zero_slots) if len(entries) or zero_slots != 1 else b""
    index = OffsetIndex(data + tail + bytes(surplus), BASE)
    assert list(index) == entries
    assert (index.entries, index.zero_tail_slots, index.trailing_bytes) == (
        len(entries),
        len(tail) // 8,
        surplus,
    )
    assert [index.entry(i) for i in range(len(index))] == entries
    as_kafka = OffsetIndex(data + tail, BASE, as_kafka=True)
    assert as_kafka.entries == as_kafka.slots == len(entries) + len(tail) // 8
    assert list(as_kafka) == entries + [OffsetIndexEntry(BASE, 0)] * (len(tail) // 8)


@pytest.mark.behaviour("I06")
@given(time_entries(), st.integers(0, 40))
def test_time_index_round_trip(entries: list[TimeIndexEntry], zero_slots: int) -> None:
    data = encode_time_index(entries, BASE)
    assert len(data) == 12 * len(entries)
    tail = bytes(12 * zero_slots) if len(entries) or zero_slots != 1 else b""
    index = TimeIndex(data + tail, BASE)
    assert list(index) == entries and index.zero_tail_slots == len(tail) // 12
    assert TimeIndex(data + tail, BASE, as_kafka=True).entries == len(entries) + len(tail) // 12


@pytest.mark.behaviour("I09")
def test_index_entries_match_the_documented_bytes() -> None:
    assert (
        encode_time_index([TimeIndexEntry(0x0102030405060708, BASE + 9)], BASE).hex()
        == "010203040506070800000009"
    )
    assert encode_offset_index([OffsetIndexEntry(BASE + 9, 4096)], BASE).hex() == "0000000900001000"


def test_index_slot_out_of_range_is_a_usage_error() -> None:
    index = OffsetIndex(encode_offset_index(NINE, BASE) + bytes(80), BASE)
    for slot in (-1, 9):
        with pytest.raises(UsageError):
            index.entry(slot)


# --- lookups


@pytest.mark.behaviour("I01")
@pytest.mark.parametrize("data", [b"", bytes(8 * 1310720)], ids=["empty", "preallocated"])
def test_lookup_in_an_empty_offset_index_gives_the_base_offset(data: bytes) -> None:
    index = OffsetIndex(data, BASE)
    assert {index.lookup(target) for target in (0, BASE - 1, BASE, BASE + 1, 2**62)} == {
        OffsetIndexEntry(BASE, 0)
    }
    assert index.last_entry == OffsetIndexEntry(BASE, 0)


@pytest.mark.behaviour("I10")
@pytest.mark.parametrize("data", [b"", bytes(12 * 873813)], ids=["empty", "preallocated"])
def test_lookup_in_an_empty_time_index_gives_no_timestamp(data: bytes) -> None:
    index = TimeIndex(data, BASE)
    assert index.lookup(100) == index.last_entry == TimeIndexEntry(-1, BASE)


@pytest.mark.behaviour("I11")
def test_timestamp_lookup_finds_the_last_entry_at_or_before() -> None:
    index = TimeIndex(encode_time_index(FOUR_TIMES, BASE), BASE)
    assert [index.lookup(ts) for ts in (9, 25, 30, 99)] == [(-1, BASE), (20, 65), (30, 75), (40, 85)]


@pytest.mark.behaviour("I02")
@given(offset_entries(), st.integers(BASE - 2, BASE + 2**31), st.integers(0, 3000))
def test_offset_lookup_finds_the_last_entry_at_or_before(
    entries: list[OffsetIndexEntry], target: int, zero_slots: int
) -> None:
    index = OffsetIndex(encode_offset_index(entries, BASE) + bytes(8 * zero_slots), BASE)
    below = [entry for entry in entries if entry.offset <= target]
    assert index.lookup(target) == (below[-1] if below else (BASE, 0))


@given(offset_entries(), st.integers(0, 2**31), st.integers(0, 100))
def test_position_search_finds_the_first_entry_at_or_after(
    entries: list[OffsetIndexEntry], position: int, low: int
) -> None:
    positions = sorted(entry.position for entry in entries)
    entries = [entry._replace(position=rising) for entry, rising in zip(entries, positions, strict=True)]
    index = OffsetIndex(encode_offset_index(entries, BASE), BASE)
    low = min(low, len(entries))
    behind = [slot for slot in range(low, len(entries)) if positions[slot] >= position]
    assert index.slot_at(position, low) == (behind[0] if behind else len(entries))


@pytest.mark.slow
@pytest.mark.parametrize("zero_slots", [0, 500_000])
def test_index_lookup_reads_a_few_bytes(zero_slots: int) -> None:
    entries = [OffsetIndexEntry(3 * i, 7 * i) for i in range(1, 500_001)]
    index = OffsetIndex(encode_offset_index(entries, 0) + bytes(8 * zero_slots), 0)
    for target in (1, 3, 750_001, 1_499_000, 1_500_000, 2**40):
        before = index.bytes_read
        entry = index.lookup(target)
        assert entry == (
            (0, 0) if target < 3 else (3 * min(target // 3, 500_000), 7 * min(target // 3, 500_000))
        )
        assert index.bytes_read - before <= 8 * 22
    assert OffsetIndex(bytes(8 * 1_000_000), 0).bytes_read <= 8 * 21


# Results of Kafka 4.3.1's OffsetIndex and TimeIndex for slots that are not sorted. Each line: slots, then target → lookup, entries left by
# truncateTo(target).
UNSORTED_OFFSETS = [
    ([(9, 1), (3, 2), (7, 3), (5, 4)], {4: ((0, 0), 0), 5: ((0, 0), 0), 8: ((0, 0), 0), 10: ((5, 4), 4)}),
    ([(2, 1), (8, 2), (4, 3), (6, 4), (0, 0)], {3: ((2, 1), 1), 5: ((4, 3), 3), 7: ((0, 0), 5)}),
    ([(2, 5), (4, 6), (0, 0), (0, 0)], {1: ((0, 0), 0), 3: ((0, 0), 4), 4: ((0, 0), 4), 9: ((0, 0), 4)}),
]


@pytest.mark.parametrize(("slots", "verdicts"), UNSORTED_OFFSETS)
def test_search_in_unsorted_slots_equals_kafkas(
    slots: list[tuple[int, int]], verdicts: dict[int, tuple[tuple[int, int], int]]
) -> None:
    data = b"".join(struct.pack(">ii", *slot) for slot in slots)
    index = OffsetIndex(data, 0, as_kafka=True)
    assert {t: (tuple(index.lookup(t)), len(index.truncate_to(t)) // 8) for t in verdicts} == verdicts


# --- truncation


@pytest.mark.behaviour("I07", "I22")
@pytest.mark.parametrize(("target", "last"), [(12, 9), (10, 9), (9, 8), (5, 4), (1, None), (-3, None)])
@pytest.mark.parametrize("zero_slots", [0, 5])
def test_offset_index_is_truncated_at_an_offset(target: int, last: int | None, zero_slots: int) -> None:
    index = OffsetIndex(encode_offset_index(NINE, BASE) + bytes(8 * zero_slots), BASE)
    left = OffsetIndex(index.truncate_to(BASE + target), BASE)
    assert list(left) == [entry for entry in NINE if last is not None and entry.offset <= BASE + last]


@pytest.mark.behaviour("I13")
def test_time_index_is_truncated_at_an_offset() -> None:
    index = TimeIndex(encode_time_index(FOUR_TIMES, BASE), BASE)
    assert len(index.truncate_to(55)) == 0
    assert list(TimeIndex(index.truncate_to(56), BASE)) == FOUR_TIMES[:1]
    assert list(TimeIndex(index.truncate_to(85), BASE)) == FOUR_TIMES[:3]
    assert list(TimeIndex(index.truncate_to(86), BASE)) == FOUR_TIMES


# --- sanity


@pytest.mark.behaviour("I03", "I15")
def test_offset_index_sanity_check_equals_kafkas() -> None:
    assert OffsetIndex(b"", BASE).sanity_problem() is None
    assert OffsetIndex(encode_offset_index([OffsetIndexEntry(BASE, 0)], BASE), BASE).sanity_problem() is None
    assert OffsetIndex(encode_offset_index(NINE, BASE) + bytes(80), BASE).sanity_problem() is None
    below = OffsetIndex(struct.pack(">iiii", 1, 5, -1, 9), BASE).sanity_problem()
    assert below is not None and "less than the base offset 45" in below
    cut = OffsetIndex(encode_offset_index(NINE, BASE)[:-1], BASE).sanity_problem()
    assert cut is not None and "71 bytes is not a multiple of 8" in cut


@pytest.mark.behaviour("I03")
def test_entry_at_the_base_offset_counts() -> None:
    index = OffsetIndex(encode_offset_index([OffsetIndexEntry(BASE, 0)], BASE), BASE)
    assert list(index) == [(BASE, 0)] and index.zero_tail_slots == 0


@pytest.mark.parametrize(
    ("name", "data", "kind"),
    [
        ("offset", struct.pack(">iiii", 1, 5, -1, 9), "index-below-base"),
        ("offset", struct.pack(">iiii", 1, 5, 2, 9)[:-1], "index-bad-size"),
        ("time", struct.pack(">qiqi", 5, 1, 6, -1), "index-below-base"),
        ("time", struct.pack(">qiqi", 5, 1, 4, 2), "time-index-out-of-order"),
        ("time", struct.pack(">qiqi", 5, 1, 0, 0), "index-zero-tail"),
        ("time", struct.pack(">qiqi", 5, 1, 6, 2) + b"\1", "index-bad-size"),
    ],
)
def test_failed_sanity_check_gives_its_finding(name: str, data: bytes, kind: str, tmp_path: Path) -> None:
    index = (OffsetIndex if name == "offset" else TimeIndex)(data, BASE)
    sanity_error = index.sanity_error()
    assert sanity_error is not None
    assert sanity_error == (kind, index.sanity_problem())
    path = tmp_path / f"{BASE:020}.{'index' if name == 'offset' else 'timeindex'}"
    path.write_bytes(data)
    findings = list(dump(FileTarget(str(path)), DumpOptions(index_sanity_check=True)))
    assert [finding.id for finding in findings if isinstance(finding, Finding)] == [kind]
    assert kind in CATALOGUE
    assert path.read_bytes() == data


@pytest.mark.behaviour("I14")
def test_time_index_sanity_check_equals_kafkas() -> None:
    data = encode_time_index(FOUR_TIMES, BASE)
    assert TimeIndex(b"", BASE).sanity_problem() is None
    assert TimeIndex(data, BASE).sanity_problem() is None
    assert TimeIndex(bytes(120), BASE).sanity_problem() is None
    for bad, sign in [
        (data + bytes(12), "less than the first timestamp 10"),
        (data + struct.pack(">qi", 50, -46), "last offset -1 is less than the base offset 45"),
        (data + b"\0" * 5, "53 bytes is not a multiple of 12"),
    ]:
        problem = TimeIndex(bad, BASE).sanity_problem()
        assert problem is not None and sign in problem


# --- what a writer refuses


@pytest.mark.behaviour("I04")
@pytest.mark.parametrize("second", [52, 51])
def test_index_offsets_must_increase(second: int) -> None:
    with pytest.raises(FormatError, match="not greater than 52"):
        encode_offset_index([OffsetIndexEntry(52, 0), OffsetIndexEntry(second, 1)], BASE)


@pytest.mark.behaviour("I08")
def test_offset_must_fit_into_the_segment() -> None:
    assert can_index_offset(BASE, BASE) and can_index_offset(BASE + INT32_MAX, BASE)
    for offset in (BASE - 1, BASE + INT32_MAX + 1):
        assert not can_index_offset(offset, BASE)
        with pytest.raises(FormatError, match="too far from the base offset"):
            encode_offset_index([OffsetIndexEntry(offset, 0)], BASE)
        with pytest.raises(FormatError, match="too far from the base offset"):
            encode_time_index([TimeIndexEntry(5, offset)], BASE)
    with pytest.raises(FormatError, match="position"):
        encode_offset_index([OffsetIndexEntry(BASE, INT32_MAX + 1)], BASE)


@pytest.mark.behaviour("I05")
def test_full_index_accepts_no_more_entries() -> None:
    offsets, times = OffsetIndexBuilder(0, 24 + 7), TimeIndexBuilder(0, 36)
    for i in (1, 2, 3):
        offsets.append(i, i)
    assert offsets.is_full
    with pytest.raises(FormatError, match="full with 3 entries"):
        offsets.append(4, 4)
    assert times.maybe_append(1, 1) and times.maybe_append(2, 2)
    # the third slot is reserved for closing the segment
    assert times.is_full
    with pytest.raises(FormatError, match="full with 2 entries"):
        times.maybe_append(3, 3)
    assert times.maybe_append(3, 3, skip_full_check=True)
    assert len(offsets.to_bytes()) == 24 and len(times.to_bytes()) == 36


@pytest.mark.behaviour("I12")
def test_time_index_timestamps_must_increase() -> None:
    builder = TimeIndexBuilder(BASE)
    assert not builder.maybe_append(-1, BASE)
    assert builder.maybe_append(10, 55)
    assert not builder.maybe_append(10, 60)
    with pytest.raises(FormatError, match="offset 50 is less"):
        builder.maybe_append(20, 50)
    with pytest.raises(FormatError, match="timestamp 9 is less"):
        builder.maybe_append(9, 60)
    assert builder.entries == 1
    with pytest.raises(FormatError, match="not greater than 10"):
        encode_time_index([TimeIndexEntry(10, 55), TimeIndexEntry(10, 56)], BASE)


def test_active_indexes_are_preallocated_to_whole_entries() -> None:
    offsets, times = OffsetIndexBuilder(0), TimeIndexBuilder(0)
    offsets.append(7, 4200)
    times.maybe_append(1_700_000_000_000, 7)
    assert (len(offsets.to_bytes(preallocate=True)), len(times.to_bytes(preallocate=True))) == (
        10485760,
        10485756,
    )
    assert list(OffsetIndex(offsets.to_bytes(preallocate=True), 0)) == [(7, 4200)]
    assert list(TimeIndex(times.to_bytes(preallocate=True), 0)) == [(1_700_000_000_000, 7)]


def test_entry_with_timestamp_0_is_not_a_zero_tail() -> None:
    data = encode_time_index([TimeIndexEntry(0, BASE), TimeIndexEntry(5, BASE + 3)], BASE)
    assert list(TimeIndex(data, BASE)) == [(0, BASE), (5, BASE + 3)]
    assert list(TimeIndex(data + bytes(120), BASE)) == [(0, BASE), (5, BASE + 3)]
    assert list(TimeIndex(data[:12], BASE)) == [(0, BASE)]


# --- any bytes, and real ones


@given(st.binary(max_size=400), st.integers(0, 2**62), st.integers(-(2**63), 2**63 - 1), st.booleans())
def test_any_bytes_are_read_as_an_index(data: bytes, base: int, target: int, as_kafka: bool) -> None:
    for index in (OffsetIndex(data, base, as_kafka=as_kafka), TimeIndex(data, base, as_kafka=as_kafka)):
        assert index.entries + index.zero_tail_slots == index.slots
        assert len(list(index)) == index.entries
        assert index.lookup(target) in [*index, (base, 0), (-1, base)]
        assert len(index.truncate_to(target)) <= len(data)
        assert isinstance(index.sanity_problem(), str | None)


def dumped(path: Path, pattern: str) -> list[tuple[int, int]]:
    return [(int(a), int(b)) for a, b in re.findall(pattern, path.read_text())]


@pytest.mark.parametrize("capture", ["capture_small", "legacy_small"])
def test_captured_indexes_equal_kafkas_dump(capture: str, request: pytest.FixtureRequest) -> None:
    root: Path = request.getfixturevalue(capture)
    entries = 0
    for path in sorted((root / "data").rglob("*index")):
        expected = root / "expected" / f"{path.relative_to(root / 'data')}.txt"
        if path.suffix == ".txnindex" or not expected.exists():
            continue
        base, data = int(path.stem), path.read_bytes()
        index = OffsetIndex(data, base) if path.suffix == ".index" else TimeIndex(data, base)
        names = ("offset", "position") if path.suffix == ".index" else ("timestamp", "offset")
        printed = dumped(expected, rf"(?m)^{names[0]}: (-?\d+) {names[1]}: (-?\d+)$")
        # otherwise the tool failed on the way
        if not expected.with_suffix(".err").exists():
            assert list(map(tuple, index)) == printed, path
        assert index.sanity_problem() is None and index.zero_tail_slots == 0, path
        encoded = (
            encode_offset_index(index, base)
            if isinstance(index, OffsetIndex)
            else encode_time_index(index, base)
        )
        assert encoded == data, path
        entries += len(index)
    assert entries > 100
