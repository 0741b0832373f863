"""The scanner accounts for every byte, distinguishes the kinds of damage, and finds every valid batch again."""

from __future__ import annotations

import random
import struct
from collections.abc import Callable
from pathlib import Path

import pytest

from fixtures import diseases, healthy
from fixtures.diseases import LOG_DISEASES, InflictedDamage
from kseg.segment import crc
from kseg.segment import header_tables as C
from kseg.segment import layout as L
from kseg.segment.encoding.legacy import encode_message
from kseg.segment.kernel.batch_walk import FULL
from kseg.segment.scanning.batches import scan
from kseg.segment.scanning.damage import Damage
from kseg.segment.scanning.scan import Scanner
from tests.support import reference_reader
from tests.support.scan_helpers import batch, file_of, message, plain_file, scanned, with_length, without

PLAIN, PLAIN_AT = plain_file()
MAGICS = [0, 1, 2]


# --- healthy files


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return healthy.log_dir(tmp_path_factory.mktemp("sound") / "data")


@pytest.mark.behaviour("F30", "F31")
def test_undamaged_logs_are_only_batches(sound: Path, capture_small: Path, legacy_small: Path) -> None:
    seen = 0
    for root in (sound, capture_small / "data", legacy_small / "data" / "1.1.1"):
        for log in root.rglob("*.log"):
            data = log.read_bytes()
            found = scanned(data, int(log.name.split(".")[0]))
            assert found.damages == []
            assert found.batches == list(reference_reader.batches(data))
            seen += len(found.batches)
    assert seen > 500


def test_empty_file_has_no_batches() -> None:
    assert list(scan(b"")) == []


@pytest.mark.parametrize("capacity", [1, 2, 16, 17, 300])
def test_table_capacity_does_not_change_the_scan(capacity: int) -> None:
    data, positions = plain_file(40)
    data = with_length(data, positions[20], 13)
    scanner = Scanner(data, capacity=capacity)
    rows = sum(0 if isinstance(block, Damage) else block.count for block in scanner.blocks())
    assert rows == 39


def test_batch_is_found_by_its_position() -> None:
    data, positions = plain_file(40)
    inflict = bytearray(data)
    inflict[positions[21] - 1] ^= 1
    for begin in (0, positions[10], positions[30], len(data)):
        scanner = Scanner(inflict, capacity=16)
        scanner.fill(begin, len(inflict))
        for number, position in enumerate(positions):
            found = scanner.find(position, len(inflict))
            if number == 20:
                assert found is None
            else:
                assert found is not None
                table, row = found
                assert table.at(C.POSITION, row) == position
            assert scanner.find(position + 1, len(inflict)) is None


def test_scanner_does_not_walk_the_same_range_twice() -> None:
    data, positions = plain_file(40)
    scanner = Scanner(data)
    walked = [scanner.fill(begin, len(data)) for begin in (0, 0, positions[5], 0)]
    assert len(set(walked)) == 1
    assert scanner.table.column(C.POSITION).tolist() == positions
    assert [block.count for block in scanner.blocks() if not isinstance(block, Damage)] == [40]
    assert scanner.fill(0, positions[3]) != FULL
    assert scanner.table.count == 3


def test_a_range_between_batches_is_scanned_alone() -> None:
    found = scanned(PLAIN, start=PLAIN_AT[2], end=PLAIN_AT[4])
    assert found.positions == PLAIN_AT[2:4]
    assert found.damages == []


# --- the four ends


@pytest.mark.behaviour("F31", "V08")
@pytest.mark.parametrize("missing", [1, 5, 20, 30, 60])
@pytest.mark.parametrize("magic", MAGICS)
def test_torn_last_batch_is_a_torn_tail(magic: int, missing: int) -> None:
    data, positions = plain_file(magic=magic)
    found = scanned(data[:-missing])
    # the whole last batch is missing: the end is clean, or the previous batch is torn
    if missing >= len(data) - positions[-1]:
        assert len(found.damages) <= 1
        return
    assert found.positions == positions[:-1]
    assert (found.only.kind, found.only.position) == ("torn-tail", positions[-1])
    assert found.only.next_offset == found.batches[-1].last_offset + 1
    assert found.only.resumed_offset is None


@pytest.mark.parametrize("left", range(1, 18))
def test_short_tail_is_torn_if_it_begins_like_the_next_offset(left: int) -> None:
    found = scanned(PLAIN[: PLAIN_AT[-1] + left])
    # leading zeros of a torn offset are indistinguishable from zeros that were never written
    assert found.only.kind == ("zero-tail" if left < 8 else "torn-tail")
    junk = scanned(PLAIN + b"\x7f" * left)
    assert junk.only.kind == "foreign-bytes"
    assert junk.positions == PLAIN_AT


@pytest.mark.behaviour("F32", "F36", "V06")
@pytest.mark.parametrize("zeros", [1, 2, 4, 5, 6, 17, 18, 4096, 200_000])
@pytest.mark.parametrize("magic", MAGICS)
def test_zeros_at_the_end_are_a_zero_tail(magic: int, zeros: int) -> None:
    data, positions = plain_file(magic=magic)
    found = scanned(data + bytes(zeros))
    assert found.positions == positions
    assert (found.only.kind, found.only.position, found.only.length) == ("zero-tail", len(data), zeros)


def test_file_of_zeros_is_a_zero_tail() -> None:
    found = scanned(bytes(100_000))
    assert (found.only.kind, found.only.length) == ("zero-tail", 100_000)
    assert found.only.next_offset is None


# --- single damages, by hand


@pytest.mark.parametrize("magic", MAGICS)
def test_zeros_between_batches_are_zero_filled(magic: int) -> None:
    data, positions = plain_file(magic=magic)
    start, stop = positions[2], positions[4]
    found = scanned(data[:start] + bytes(stop - start) + data[stop:])
    assert found.positions == without(positions, 2, 3)
    assert (found.only.kind, found.only.position, found.only.length) == ("zero-filled", start, stop - start)
    assert found.only.resumed_offset == (8 if magic == 2 else 4)


@pytest.mark.behaviour("F09", "F22", "V05")
@pytest.mark.parametrize("magic", MAGICS)
@pytest.mark.parametrize("number", [0, 2, 5])
def test_wrong_checksum_affects_only_its_batch(magic: int, number: int) -> None:
    data, positions = plain_file(magic=magic)
    start, stop = positions[number], [*positions[1:], len(data)][number]
    for at in range(start + (L.ATTRIBUTES_POSITION if magic == 2 else L.MAGIC_POSITION + 1), stop):
        inflict = bytearray(data)
        inflict[at] ^= 1 << (at % 8)
        found = scanned(inflict)
        assert found.positions == without(positions, number)
        assert found.only.kind == "bad-crc"
        assert (found.only.position, found.only.length) == (start, stop - start)
        assert found.only.claimed_offset == number * (2 if magic == 2 else 1)


@pytest.mark.behaviour("F10", "F11")
def test_checksum_does_not_cover_offset_and_epoch() -> None:
    for at in (7, 12, 15):
        inflict = bytearray(PLAIN)
        inflict[PLAIN_AT[3] + at] ^= 1
        assert scanned(inflict).damages == []


@pytest.mark.behaviour("F07", "F33")
@pytest.mark.parametrize("magic", MAGICS)
@pytest.mark.parametrize("size_field", [-(2**31), -1, 0, 1, 13, 14, 20, 2**31 - 13, 2**31 - 1])
@pytest.mark.parametrize("number", [0, 2, 5])
def test_wrong_length_is_recognized(magic: int, size_field: int, number: int) -> None:
    data, positions = plain_file(magic=magic)
    ends = [*positions[1:], len(data)]
    found = scanned(with_length(data, positions[number], size_field))
    assert found.positions == without(positions, number)
    assert (found.only.kind, found.only.position) == ("bad-length", positions[number])
    assert found.only.length == found.only.intact_length_bytes == ends[number] - positions[number]


@pytest.mark.parametrize("magic", MAGICS)
def test_every_wrong_length_leads_back_to_the_next_batch(magic: int) -> None:
    """Lengths that end inside the batch's own body, inside other batches, exactly after several batches, and exactly at the end."""
    data, positions = plain_file(magic=magic)
    true_size = positions[3] - positions[2]
    for size_bytes in range(12, len(data) - positions[2] + 40):
        if size_bytes == true_size:
            continue
        found = scanned(with_length(data, positions[2], size_bytes - 12))
        assert found.positions == without(positions, 2)
        assert found.only.kind == "bad-length"
        assert found.only.intact_length_bytes == true_size


def test_length_into_zeros_of_the_last_batch_is_not_confirmed() -> None:
    data, positions = file_of([batch(0), batch(2), encode_message(0, 4, -1, 0, None, b"")])
    assert data.endswith(bytes(4))
    for zeros in range(1, 5):
        found = scanned(with_length(data, positions[1], len(data) - zeros - positions[1] - 12))
        assert found.positions == [positions[0], positions[2]]
        assert found.only.kind == "bad-length"


@pytest.mark.behaviour("F34", "V07")
@pytest.mark.parametrize("magic", [0, 1, 0x80, 0x83, 0xFF])
def test_wrong_magic_is_named_if_the_rest_is_valid(magic: int) -> None:
    inflict = bytearray(PLAIN)
    inflict[PLAIN_AT[2] + L.MAGIC_POSITION] = magic
    found = scanned(inflict)
    assert found.positions == without(PLAIN_AT, 2)
    assert found.only.kind == "bad-magic"
    assert found.only.length == PLAIN_AT[3] - PLAIN_AT[2]


@pytest.mark.parametrize("magic", [3, 77, 127])
def test_high_magic_is_read_as_magic_2_like_kafka(magic: int) -> None:
    inflict = bytearray(PLAIN)
    inflict[PLAIN_AT[2] + L.MAGIC_POSITION] = magic
    found = scanned(inflict)
    assert found.damages == []
    assert found.batches[2].magic == magic


@pytest.mark.behaviour("V06")
@pytest.mark.parametrize("number", [0, 3, 6])
@pytest.mark.parametrize("junk", [b"x", b"GET / HTTP/1.1\r\n\r\n", bytes(range(1, 256)) * 5])
def test_foreign_bytes_between_batches_are_found(number: int, junk: bytes) -> None:
    at = [*PLAIN_AT, len(PLAIN)][number]
    found = scanned(PLAIN[:at] + junk + PLAIN[at:])
    assert found.positions == [p if p < at else p + len(junk) for p in PLAIN_AT]
    assert (found.only.kind, found.only.position, found.only.length) == ("foreign-bytes", at, len(junk))


@pytest.mark.behaviour("F23")
def test_entry_too_small_for_any_message_is_damage() -> None:
    small = struct.pack(">qiIb", 12, 5, 0, 0)
    found = scanned(PLAIN + small)
    assert found.positions == PLAIN_AT
    assert found.only.length == len(small)


# --- every disease


KINDS = {
    **dict.fromkeys(("bad_length_small", "bad_length_large", "bad_length_into_next"), "bad-length"),
    **dict.fromkeys(("short_tail", "foreign_bytes"), "foreign-bytes"),
    "torn_tail": "torn-tail",
    "zero_tail": "zero-tail",
    "zero_block": "zero-filled",
    "bad_crc": "bad-crc",
    "flipped_bit": "bad-crc",
    "bad_magic": "bad-magic",
}
"""The diseases of bytes; the others leave every checksum right and are no business of the scanner."""


@pytest.mark.parametrize("partition", ["metro-0", "gates.old-0"])
@pytest.mark.parametrize("damaged_by", LOG_DISEASES, ids=lambda function: function.__name__)
def test_scan_finds_the_damage_of_each_log_disease(
    damaged_by: Callable[[Path], InflictedDamage], partition: str, sound: Path, tmp_path: Path
) -> None:
    log = max((sound / partition).glob("*.log"), key=lambda file: file.stat().st_size)
    copy = tmp_path / log.name
    copy.write_bytes(log.read_bytes())
    if partition == "gates.old-0" and damaged_by.__name__ in LEGACY_SHY:
        pytest.skip("a disease of magic 2")
    inflict = damaged_by(copy)
    found = scanned(copy.read_bytes(), int(log.stem))
    if inflict.disease not in KINDS:
        assert found.damages == []
        return
    damage = found.only
    assert damage.kind == KINDS[inflict.disease]
    assert (damage.position, damage.length) == (inflict.position, inflict.length)
    lost = 0 if inflict.disease in ("short_tail", "zero_tail", "foreign_bytes") else 1
    assert len(found.batches) == len(diseases.batch_spans(log)) - lost


LEGACY_SHY = {
    "bad_magic",
    "altered_leader_epoch",
    "wrong_record_count",
    "wrong_max_timestamp",
    "undecodable_batch",
    "unknown_attributes",
}


# --- batches inside of batches


def test_batch_inside_a_value_is_ignored_while_the_outer_one_is_complete() -> None:
    inner = batch(100)
    data, positions = file_of([batch(0), batch(2, 1, inner * 3), batch(3), batch(4, 1, inner), batch(200)])
    assert scanned(data).positions == positions
    # nor if the outer batch is damaged, as long as what follows confirms its length
    inflict = bytearray(data)
    inflict[positions[1] + 65] ^= 1
    found = scanned(inflict)
    assert found.positions == without(positions, 1)
    assert found.only.kind == "bad-crc"


def test_batch_inside_a_value_counts_if_only_it_is_left_and_its_offset_fits() -> None:
    def inflict(inner_offset: int) -> tuple[bytes, int]:
        inner = batch(inner_offset)
        data, positions = file_of([batch(10), batch(12, 1, inner), batch(50)])
        return data[: positions[1]] + b"\xee" * 20 + data[positions[1] + 20 :], data.index(inner)

    data, inner_at = inflict(inner_offset=30)
    assert inner_at in scanned(data).positions
    # below the end of the valid batches, so it is an old copy from elsewhere
    data, inner_at = inflict(inner_offset=3)
    assert inner_at not in scanned(data).positions


def test_messages_inside_a_damaged_wrapper_are_found() -> None:
    """A wrapper of magic 0 contains complete messages with absolute offsets. They are used if nothing else is left."""
    inner = batch(7, 1, b"inner", magic=0)
    frame = bytes.fromhex("04224d1860401a") + struct.pack("<I", len(inner) | 1 << 31) + inner + bytes(4)
    stored = encode_message(0, 7, -1, L.LZ4, None, frame)
    data, positions = file_of([batch(0, 1, magic=0), stored, batch(8, 1, magic=0)])
    assert scanned(data).positions == positions
    found = scanned(with_length(data, positions[1], 0))
    assert found.positions == [positions[0], data.index(inner), positions[2]]


def test_any_batch_of_the_segment_is_trusted_if_no_offset_fits() -> None:
    """A batch with a huge offset before the damage must not hide all batches that follow."""
    data, positions = file_of([batch(2**30), b"\xee" * 50, batch(2), batch(4)])
    found = scanned(data)
    assert found.positions == [positions[0], positions[2], positions[3]]


def test_two_separate_damages_are_found() -> None:
    data, positions = plain_file(10)
    inflict = bytearray(with_length(data, positions[7], 0))
    inflict[positions[2] + 70] ^= 4
    found = scanned(inflict)
    assert found.positions == without(positions, 2, 7)
    assert [damage.kind for damage in found.damages] == ["bad-crc", "bad-length"]


@pytest.mark.parametrize("again_from", [0, 3])
def test_repeated_scan_finds_the_same(again_from: int) -> None:
    """A dump compares both indexes with the log, using a scanner that has already scanned it."""

    def walked(scanner: Scanner, start: int) -> list[object]:
        return [
            block if isinstance(block, Damage) else block.column(C.POSITION).tolist()
            for block in scanner.blocks(start)
        ]

    data, positions = plain_file(100)
    inflict = bytearray(data)
    inflict[positions[5] : positions[6]] = bytes(positions[6] - positions[5])
    scanner = Scanner(inflict)
    whole = walked(scanner, 0)
    assert [block.position for block in whole if isinstance(block, Damage)] == [positions[5]]
    start = positions[again_from]
    assert walked(scanner, start) == walked(Scanner(inflict), start)


def test_adjacent_damaged_batches_are_accounted_for() -> None:
    inflict = bytearray(PLAIN)
    for number in (2, 3):
        inflict[PLAIN_AT[number] + 70] ^= 4
    found = scanned(inflict)
    assert found.positions == without(PLAIN_AT, 2, 3)
    assert sum(damage.length for damage in found.damages) == PLAIN_AT[4] - PLAIN_AT[2]


def test_large_batches_are_checked_like_small_ones() -> None:
    noise = random.Random(1).randbytes(200_000)
    data, positions = file_of([batch(0, 1, noise), batch(1, 1, noise[:900]), batch(2, 1, noise, magic=1)])
    assert scanned(data).positions == positions
    for number, position in enumerate(positions):
        inflict = bytearray(data)
        inflict[position + 500] ^= 1
        assert scanned(inflict).positions == without(positions, number)


def test_message_with_a_wrong_checksum_is_not_a_batch() -> None:
    found = scanned(message(0) * 3)
    assert found.batches == []
    sound = bytearray(message(0))
    sound[12:16] = crc.crc32(sound[16:]).to_bytes(4, "big")
    assert scanned(sound).positions == [0]


@pytest.mark.parametrize("shift", [-20, 0, 20])
@pytest.mark.parametrize("first", [9, 25, 27])
def test_batches_after_a_reused_block_are_found_although_its_offsets_are_higher(
    shift: int, first: int
) -> None:
    """A block that belonged to another log, from another position in it, over some of 30 batches."""
    data, positions = file_of([batch(number, 1, b"own") for number in range(30)])
    others, _ = file_of([batch(number, 1, b"the other log") for number in range(first, first + 3)])
    start = positions[6] + shift
    inflict = data[:start] + others + data[start + len(others) :]
    left = [position for position in positions if inflict[position:].startswith(data[position:][:70])]
    assert len(left) >= 25
    assert {*left} <= {*scanned(inflict).positions}
