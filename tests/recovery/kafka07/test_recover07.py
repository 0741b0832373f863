"""`recover` on 0.7 partitions: the results of Kafka 0.7.1 and Jafka for the same damage, and what salvage keeps beyond them."""

from __future__ import annotations

import json
import random
import zlib
from pathlib import Path

import pytest

from kseg.change.plan.directory_image import DirectoryImage
from kseg.change.plan.inputs import inputs_of
from kseg.recovery.kafka07.filler import MIN_BYTES, filler, is_skipped_by_consumers
from kseg.recovery.kafka07.recover07 import recover07
from kseg.recovery.kafka07.salvage07 import MAX_FILLED_BYTES
from kseg.recovery.policy import BrokerState, Policy, Repair
from kseg.recovery.repair.rows import cost_row
from kseg.recovery.verify.options import VerifyOptions
from kseg.recovery.verify.verify import verify
from kseg.segment.findings import CATALOGUE, Finding
from kseg.segment.kafka07.encoding07 import encode_message
from kseg.segment.kafka07.messages07 import Entry07, entry_at, messages, walk
from kseg.segment.partition.targets import PartitionTarget
from tests.support.encoders import encode_set
from tests.support.plain_execution import contents, make, steps
from tests.support.trees import copy_tree

KILLED = BrokerState()


def recovered(directory: Path, policy: Policy, around: BrokerState = KILLED) -> Repair:
    return recover07(str(directory), inputs_of(str(directory)), policy, around)


def files(directory: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in directory.iterdir()}


def kafka_names(directory: Path) -> list[Path]:
    return sorted(directory.glob("*.kafka"))


def valid_messages(directory: Path) -> dict[int, tuple[int, int]]:
    """offset → (size, CRC) of every valid entry in a directory, without the fillers that kseg writes."""
    found = {}
    for path in kafka_names(directory):
        data = path.read_bytes()
        for item in walk(data):
            if isinstance(item, Entry07) and item.crc_valid:
                entry = data[item.position : item.end_position]
                if entry != filler(len(entry)) or not is_skipped_by_consumers(len(entry)):
                    found[int(path.stem) + item.position] = (item.size_bytes, zlib.crc32(entry))
    return found


def errors(directory: Path) -> list[Finding]:
    events = verify(PartitionTarget(str(directory), None), VerifyOptions(now_ms=0, level="deep"))
    return [e for e in events if isinstance(e, Finding) and CATALOGUE[e.id].severity == "error"]


def salvaged(directory: Path, target: Path) -> tuple[Repair, Path]:
    """The result of salvage, which must be valid, account for every byte, and need no second repair."""
    repair = recovered(directory, Policy.SALVAGE)
    made = make(repair, directory, target)
    assert not errors(made)
    again = recovered(made, Policy.SALVAGE)
    assert again.image == DirectoryImage.of(inputs_of(str(made))) and not again.findings
    touched = steps(repair, DirectoryImage.of(inputs_of(str(directory))))
    assert len(touched) == len(set(touched)) and set(touched) == set(repair.why)
    kept = valid_messages(directory)
    swallowed = sum(removed.batches for removed in repair.removed)
    found = valid_messages(made)
    assert sum(offset not in found or found[offset] != entry for offset, entry in kept.items()) <= swallowed
    return repair, made


# --- policy kafka: the captures


@pytest.mark.parametrize("kind", ["torn", "zeros", "flip", "garbage"])
def test_policy_kafka_leaves_0_7_logs_like_jafka(ancient_small: Path, kind: str) -> None:
    found = ancient_small / kind / "taps-0"
    repair = recovered(found, Policy.KAFKA)
    left = files(ancient_small / f"{kind}.recovered" / "taps-0")
    assert contents(repair.image, found) == left
    last = max(left)
    assert repair.log_end_offset == int(last.split(".")[0]) + len(left[last])
    assert repair.findings and len(repair.removed) == 1
    removed = repair.removed[0]
    # nothing was ever written to the zeros
    assert (removed.first_offset is None) == (kind == "zeros")
    assert (removed.position, removed.length) == (
        len(left[last]),
        (found / last).stat().st_size - len(left[last]),
    )


def test_policy_kafka_leaves_0_7_logs_like_kafka_0_7_1(legacy_small: Path) -> None:
    """Every 0.7 directory of the capture, damaged or not, compared with the result of 0.7.1's own classes."""
    lines = (legacy_small / "recovered07.jsonl").read_text().splitlines()
    assert len(lines) == 18
    for line in map(json.loads, lines):
        found = legacy_small / "data" / "0.7" / line["state"] / line["dir"]
        repair = recovered(found, Policy.KAFKA)
        if "error" in line:
            assert repair.load_failure is not None
            assert repair.load_failure.kafka_exception == line["error"].split(":")[0].split(".")[-1]
            assert contents(repair.image, found) == files(found)
            continue
        assert repair.load_failure is None and repair.log_end_offset == line["end"], line["dir"]
        left = files(legacy_small / "recovered" / "0.7" / line["state"] / line["dir"])
        assert contents(repair.image, found) == left, line["dir"]


def test_damage_in_earlier_0_7_files_stays_and_is_counted(legacy_small: Path) -> None:
    """crc-2 has a flipped payload bit in the first file, but a broker reads only the last one."""
    found = legacy_small / "data" / "0.7" / "2-hurt" / "crc-2"
    loaded, salvaged = recovered(found, Policy.KAFKA), recovered(found, Policy.SALVAGE)
    assert not loaded.removed and salvaged.bytes_lost > 0
    assert cost_row(loaded, salvaged.removed)["damaged_bytes_left"] == salvaged.bytes_lost
    assert cost_row(salvaged, salvaged.removed)["damaged_bytes_left"] == 0


def test_policy_kafka_trusts_a_clean_stop_of_0_7(ancient_small: Path) -> None:
    found = ancient_small / "garbage" / "taps-0"
    repair = recovered(found, Policy.KAFKA, BrokerState(is_clean=True))
    assert contents(repair.image, found) == files(found) and not repair.findings


def test_0_7_file_name_that_is_not_a_number_fails_the_load(tmp_path: Path) -> None:
    (tmp_path / "first.kafka").write_bytes(encode_message(b"x"))
    repair = recovered(tmp_path, Policy.KAFKA)
    assert repair.load_failure is not None and repair.load_failure.kafka_exception == "NumberFormatException"
    assert recovered(tmp_path, Policy.SALVAGE).load_failure is None


# --- fillers


@pytest.mark.parametrize("length", [*range(MIN_BYTES, 200), 65_535, 65_566, 65_567, 131_102, 200_000])
def test_filler_has_the_requested_length_and_no_content(length: int) -> None:
    data = filler(length)
    assert len(data) == length
    entries = list(walk(data))
    assert all(isinstance(entry, Entry07) and entry.crc_valid for entry in entries)
    view = memoryview(data)
    given = [
        bytes(m.payload) for entry in entries if isinstance(entry, Entry07) for m in messages(view, entry)
    ]
    if is_skipped_by_consumers(length):
        assert given == []
        assert all(isinstance(e, Entry07) and e.size_bytes < 100_000 for e in entries)
    else:
        assert len(given) == 1 and not any(given[0]) and length < 30


# --- policy salvage


def test_salvage_of_an_undamaged_0_7_log_plans_nothing(ancient_small: Path, legacy_small: Path) -> None:
    for found in [ancient_small / "taps-0", *sorted((legacy_small / "data/0.7/1-written").iterdir())]:
        repair = recovered(found, Policy.SALVAGE)
        assert repair.image == DirectoryImage.of(inputs_of(str(found)))
        assert not repair.findings and not repair.removed and not repair.doubt


@pytest.mark.parametrize("kind", ["torn", "zeros", "flip", "garbage"])
def test_salvage_keeps_0_7_messages_after_damage(ancient_small: Path, tmp_path: Path, kind: str) -> None:
    found = ancient_small / kind / "taps-0"
    _, made = salvaged(found, tmp_path / "made")
    original = valid_messages(ancient_small / "taps-0")
    lost = original.keys() - valid_messages(made).keys()
    assert len(lost) == {"torn": 1, "zeros": 0, "flip": 1, "garbage": 0}[kind]
    assert valid_messages(made).items() <= original.items()


def test_salvage_keeps_all_messages_of_damaged_kafka_0_7_1_logs(legacy_small: Path, tmp_path: Path) -> None:
    for found in sorted((legacy_small / "data" / "0.7" / "2-hurt").iterdir()):
        if found.name == "attr-0":  # its checksum is valid; the reader has to deal with what it cannot read
            assert not recovered(found, Policy.SALVAGE).removed
        else:
            salvaged(found, tmp_path / found.name)


def test_wrong_magic_byte_is_corrected(legacy_small: Path, tmp_path: Path) -> None:
    """The checksum does not cover the magic byte, so the message is known to be intact."""
    repair, made = salvaged(legacy_small / "data" / "0.7" / "2-hurt" / "magic-0", tmp_path / "made")
    assert not repair.removed
    assert files(made) == files(legacy_small / "data" / "0.7" / "1-written" / "lamp.none-0")


def test_missing_0_7_file_is_bridged(legacy_small: Path, tmp_path: Path) -> None:
    """A broker does not load the directory. After the repair, consumers can continue after the gap."""
    found = legacy_small / "data" / "0.7" / "2-hurt" / "gap-0"
    assert recovered(found, Policy.KAFKA).load_failure is not None
    repair, made = salvaged(found, tmp_path / "made")
    assert recovered(made, Policy.KAFKA).load_failure is None
    assert not repair.removed, "no byte that was there is gone"
    assert valid_messages(made) == valid_messages(found)
    assert [f.id for f in repair.findings] == ["ancient-gap", "ancient-gap"]


def inflict(place: Path, *parts: bytes, base: int = 0) -> Path:
    """Write the parts as consecutive files, and return the directory."""
    place.mkdir(exist_ok=True)
    for part in parts:
        (place / f"{base:020}.kafka").write_bytes(part)
        base += len(part)
    return place


def test_damage_in_an_earlier_0_7_file_keeps_offsets_continuous(tmp_path: Path) -> None:
    one, two, three = (encode_message(bytes([n]) * 60) for n in range(3))
    bad = bytearray(three)
    bad[-1] ^= 1
    found = inflict(tmp_path / "a-0", one + bytes(bad), two + three)
    repair, made = salvaged(found, tmp_path / "made")
    assert files(made)[f"{0:020}.kafka"] == one + filler(len(bad))
    assert repair.log_end_offset == len(one) * 4
    assert [(r.position, r.length, r.first_offset) for r in repair.removed] == [(70, 70, 70)]
    assert "consumers skip it" in repair.findings[0].message


def test_damage_too_small_to_fill_removes_a_neighbour_and_says_so(tmp_path: Path) -> None:
    one, two = encode_message(b"1" * 50), encode_message(b"2" * 40)
    repair, made = salvaged(inflict(tmp_path / "a-0", one + b"\xff\xff\xff" + two + two), tmp_path / "made")
    assert files(made)[f"{0:020}.kafka"] == filler(len(one) + 3) + two + two
    assert repair.removed[0].batches == 1
    assert "including 1 valid next to them" in repair.findings[0].message
    repair, made = salvaged(inflict(tmp_path / "b-0", b"\xff\xff\xff" + two + one), tmp_path / "made-b")
    assert files(made)[f"{0:020}.kafka"] == filler(3 + len(two)) + one


def test_damaged_small_message_becomes_zeros(tmp_path: Path) -> None:
    small, other = encode_message(b"hello"), encode_message(b"o" * 50)
    bad = small[:-1] + b"!"
    repair, made = salvaged(inflict(tmp_path / "a-0", other + bad + other), tmp_path / "made")
    assert files(made)[f"{0:020}.kafka"] == other + encode_message(bytes(5)) + other
    assert "consumers receive zeros" in repair.findings[0].message


def test_0_7_file_that_overlaps_the_next_is_truncated(tmp_path: Path) -> None:
    one, two = encode_message(b"1" * 50), encode_message(b"2" * 50)
    place = inflict(tmp_path / "a-0", one + two)
    inflict(place, two + one, base=len(one))
    inflict(place, two, base=3 * len(one))
    repair, made = salvaged(place, tmp_path / "made")
    assert files(made) == {
        f"{0:020}.kafka": one,
        f"{60:020}.kafka": two + one,
        f"{180:020}.kafka": two,
    }
    removed = repair.removed[0]
    assert (removed.position, removed.length, removed.first_offset, removed.batches) == (60, 60, None, 1)


def test_gap_too_large_to_fill_is_reported_and_left(tmp_path: Path) -> None:
    place = inflict(tmp_path / "a-0", encode_message(b"1" * 50))
    inflict(place, encode_message(b"2" * 50), base=MAX_FILLED_BYTES + 1000)
    repair = recovered(place, Policy.SALVAGE)
    assert contents(repair.image, place) == files(place)
    assert "more than kseg overwrites" in repair.doubt


def test_single_0_7_file_still_ends_where_the_next_begins(tmp_path: Path) -> None:
    """If the target is a single segment, the files beside it do not change, and it must still end where the next one begins."""
    one, two = encode_message(b"1" * 50), encode_message(b"2" * 50)
    torn = inflict(tmp_path / "a-0", one + two)
    inflict(torn, two, base=120)
    (torn / f"{0:020}.kafka").write_bytes((one + two)[:-3])
    inputs = tuple(file for file in inputs_of(str(torn)) if file.name == f"{0:020}.kafka")
    repair = recover07(str(torn), inputs, Policy.SALVAGE, KILLED)
    assert contents(repair.image, torn) == {f"{0:020}.kafka": one + filler(60)}
    alone = recover07(str(torn), inputs, Policy.KAFKA, KILLED)
    # the broker would not load the directory
    assert alone.load_failure is not None


def test_compressed_0_7_sets_are_salvaged_like_messages(tmp_path: Path) -> None:
    sets = [encode_set([b"a%d" % n, b"b" * 90], codec) for n in range(3) for codec in (1, 2)]
    bad = bytearray(b"".join(sets))
    bad[len(sets[0]) + 20] ^= 0x10
    found = inflict(tmp_path / "a-0", bytes(bad))
    repair, made = salvaged(found, tmp_path / "made")
    data = memoryview(files(made)[f"{0:020}.kafka"])
    entries = [entry for entry in walk(data) if isinstance(entry, Entry07)]
    assert len(entries) == 6 and len(repair.removed) == 1
    read = [[bytes(m.payload) for m in messages(data, entry)] for entry in entries]
    assert read == [[] if n == 1 else [b"a%d" % (n // 2), b"b" * 90] for n in range(6)]


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(120))
def test_salvage_of_0_7_keeps_valid_messages_after_random_damage(
    ancient_small: Path, tmp_path: Path, seed: int
) -> None:
    """After flipped bits, zeros, garbage, truncation and missing files, the valid messages are kept, each file ends where the next begins,
    and verify finds nothing."""
    rng = random.Random(seed)
    found = copy_tree(ancient_small / "taps-0", tmp_path / "found")
    names = kafka_names(found)
    for _ in range(rng.randint(1, 6)):
        path = rng.choice(names)
        data = bytearray(path.read_bytes())
        if not data:
            continue
        at, length = rng.randrange(len(data)), rng.choice([1, 3, 12, 40, 500])
        match rng.randrange(4):
            case 0:
                data[at] ^= 1 << rng.randrange(8)
            case 1:
                data[at : at + length] = bytes(len(data[at : at + length]))
            case 2:
                data[at : at + length] = rng.randbytes(len(data[at : at + length]))
            case _:
                del data[len(data) - min(length, len(data)) :]
        path.write_bytes(data)
    if rng.random() < 0.2:
        rng.choice(names[1:]).unlink()
    repair, made = salvaged(found, tmp_path / "made")
    again = recovered(made, Policy.KAFKA)
    assert again.load_failure is None and contents(again.image, made) == files(made)
    before = sum(path.stat().st_size for path in kafka_names(found))
    kept = sum(
        piece.length
        for name in repair.image
        for piece in repair.image.content(name)
        if hasattr(piece, "name")
    )
    restored = sum(f.message.startswith("the magic byte") for f in repair.findings)
    assert kept + repair.bytes_lost + restored == before


def test_recover_of_hostile_0_7_files_raises_nothing(tmp_path: Path) -> None:
    rng = random.Random(7)
    for number in range(60):
        place = tmp_path / f"{number}-0"
        place.mkdir()
        for base in rng.sample([0, 1, 5, 90, 2**63 - 1, 400], rng.randint(1, 4)):
            size = rng.choice([0, 1, 4, 5, 9, 10, 60, 500])
            data = rng.randbytes(size) if rng.random() < 0.5 else bytes(size)
            (place / f"{base:020}.kafka").write_bytes(data)
        for policy in Policy:
            repair = recovered(place, policy)
            contents(repair.image, place)


def test_entry_too_small_for_its_magic_is_damage(tmp_path: Path) -> None:
    """A size field of 5 bytes is too small for a magic 1 message with its attributes."""
    data = b"\x00\x00\x00\x05\x01" + bytes(4)
    assert entry_at(memoryview(data), 0, len(data)) == "too-small-for-magic"
    place = inflict(tmp_path / "a-0", encode_message(b"x" * 30) + data)
    assert recovered(place, Policy.KAFKA).load_failure is not None
    _, made = salvaged(place, tmp_path / "made")
    assert files(made)[f"{0:020}.kafka"] == encode_message(b"x" * 30)


def test_finding_stays_within_the_end_of_its_0_7_file(ancient_small: Path, tmp_path: Path) -> None:
    """The offsets of the missing part are lost as well, but its bytes are not in the file, so no finding refers to them."""
    found = copy_tree(ancient_small / "taps-0", tmp_path / "taps-0")
    file = kafka_names(found)[1]
    size, base = file.stat().st_size, int(file.stem)
    with file.open("r+b") as stream:
        stream.truncate(size - 500)
    repair, _ = salvaged(found, tmp_path / "out" / "taps-0")
    (damage,) = (finding for finding in repair.findings if finding.position is not None)
    assert damage.position is not None and damage.length is not None
    assert damage.position + damage.length == size - 500
    assert damage.last_offset == base + size - 1
