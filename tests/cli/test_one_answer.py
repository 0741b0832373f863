"""All commands agree on damage: verify, dump, lookup and recover report the same position, length, offsets and records."""

from __future__ import annotations

import os
import random
import shutil
from pathlib import Path

import pytest

from fixtures import healthy
from fixtures.diseases import batch_spans
from kseg.cli.main import run
from kseg.segment.sidecar.index import OffsetIndex
from tests.support.answers import LEVELS, Answer, altered, common_answers
from tests.support.command_lines import Capfd
from tests.support.command_rows import rows_of
from tests.support.compact_helpers import T0, Topic, clean

CASES = int(os.environ.get("KSEG_ONE_ANSWER", "40"))
SEED = int(os.environ.get("KSEG_ONE_ANSWER_SEED", "20261122"))


@pytest.fixture(scope="module")
def partitions(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    place = tmp_path_factory.mktemp("sound")
    (place / "plain").mkdir()
    return [healthy.partition(place / "plain" / "metro-0"), compacted(place / "compacted")]


@pytest.fixture
def plain(partitions: list[Path], tmp_path: Path) -> Path:
    return shutil.copytree(partitions[0], tmp_path / "metro-0")


@pytest.fixture
def cleaned(partitions: list[Path], tmp_path: Path) -> Path:
    return shutil.copytree(partitions[1], tmp_path / "accounts-0")


def compacted(root: Path) -> Path:
    """Segments at 0, 60 and 120, most of whose batches have fewer records than offsets, with gaps between them."""
    topic = Topic(root)
    for number in range(30):
        keys = [
            f"k{at}" if number % 4 == 3 or (number + at) % 3 else f"once-{number}-{at}" for at in range(6)
        ]
        topic.send(*[(key, f"v{number}") for key in keys], producer=3)
        if number in (9, 19, 28):
            topic.roll()
    directory = topic.close()
    clean(directory, now_ms=T0, segment_bytes=1500)
    shutil.rmtree(directory / ".kseg")
    for path in directory.glob("*.deleted"):
        path.unlink()
    return directory


@pytest.mark.evidence("damage-offsets")
def test_damaged_compacted_batch_loses_its_two_records_in_every_command(cleaned: Path, capfd: Capfd) -> None:
    """The header contains its range of offsets and its number of records. A gap before it is not a loss."""
    damage, before = None, -1
    for path in sorted(cleaned.glob("*.log")):
        data = path.read_bytes()
        for position, size in batch_spans(path):
            first = int.from_bytes(data[position : position + 8], "big")
            last = first + int.from_bytes(data[position + 23 : position + 27], "big")
            count = int.from_bytes(data[position + 57 : position + 61], "big")
            if 0 < count < last - first + 1 and first > before + 1 >= 1 and damage is None:
                damage = path, position, size, first, last, count
            before = last
    assert damage is not None
    path, position, size, first, last, count = damage
    broken = bytearray(path.read_bytes())
    broken[position + size - 2] ^= 4
    path.write_bytes(bytes(broken))
    assert common_answers(cleaned, capfd) == {("bad-crc", path.name, position, size, first, last, count)}
    costs = next(row for row in rows_of(capfd, "recover", cleaned) if row["type"] == "result")["costs"]
    assert costs["salvage"]["records"] == count
    assert costs["salvage"]["offsets"] == last - first + 1


@pytest.mark.evidence("damage-offsets")
def test_altered_offset_after_damage_adds_no_lost_offsets(plain: Path, capfd: Capfd) -> None:
    """Foreign bytes precede the last batch of a segment, which claims an offset beyond the next segment, although nothing was lost
    there."""
    path = sorted(plain.glob("*.log"))[1]
    position, _ = list(batch_spans(path))[-1]
    data = bytearray(path.read_bytes())
    data[position] ^= 0x60
    data[position:position] = b"\x55" * 100
    path.write_bytes(bytes(data))
    (answer,) = common_answers(plain, capfd)
    assert answer == ("foreign-bytes", path.name, position, 100, None, None, 0)
    assert [output[:2] for output in altered(rows_of(capfd, "verify", plain))] == [
        ("altered-base-offset", path.name)
    ]
    costs = next(row for row in rows_of(capfd, "recover", plain) if row["type"] == "result")["costs"]
    assert costs["salvage"]["records"] == 0


def put(path: Path, *changes: tuple[int, bytes]) -> None:
    data = bytearray(path.read_bytes())
    for position, value in changes:
        data[position : position + len(value)] = value
    path.write_bytes(bytes(data))


def removed_from(partition: Path, capfd: Capfd) -> list[Answer]:
    """The batches that salvage removes."""
    (result,) = (row for row in rows_of(capfd, "recover", partition) if row["type"] == "result")
    return [(row["finding"], *(row[name] for name in LEVELS)) for row in result["removed"]]


@pytest.mark.evidence("damage-offsets")
@pytest.mark.parametrize("before", [1, 4])
def test_too_high_offset_does_not_move_the_range_of_later_damage(
    plain: Path, capfd: Capfd, before: int
) -> None:
    """The batch is directly before the damage, or a few batches earlier."""
    path = min(plain.glob("*.log"))
    spans = list(batch_spans(path))
    damage, size = spans[15]
    put(path, (spans[15 - before][0] + 4, b"\x10"), (damage + size - 3, b"\xee\xee\xee"))
    (answer,) = common_answers(plain, capfd)
    assert answer == ("bad-crc", path.name, damage, size, 51, 54, 4)
    (other,) = altered(rows_of(capfd, "verify", plain))
    assert other[2] == spans[15 - before][0]
    assert ("bad-crc", damage, size, 51, 54, 4) in removed_from(plain, capfd)


@pytest.mark.evidence("damage-offsets")
def test_altered_only_batch_before_damage_is_named(cleaned: Path, capfd: Capfd) -> None:
    """The damaged headers are overwritten completely."""
    path = sorted(cleaned.glob("*.log"))[1]
    spans = list(batch_spans(path))
    damage, end = spans[1][0], spans[4][0]
    put(path, (2, b"\x01"), (damage, b"\x55" * (end - damage)))
    first = int.from_bytes(path.read_bytes()[end : end + 8], "big")
    assert common_answers(cleaned, capfd) == {
        ("foreign-bytes", path.name, damage, end - damage, 66, first - 1, None)
    }
    assert [output[2:6] for output in altered(rows_of(capfd, "verify", cleaned))] == [(0, 8, 60, 65)]


@pytest.mark.evidence("damage-offsets")
def test_impossible_offsets_prove_no_other_batch_wrong(cleaned: Path, capfd: Capfd) -> None:
    """With one bit flipped, a batch between two that claim offsets beyond the next segment would fit between them as well."""
    path = min(cleaned.glob("*.log"))
    spans = list(batch_spans(path))
    data = path.read_bytes()
    one, other = spans[4][0], spans[6][0]
    put(path, (0, b"\x55" * one), (one + 7, bytes([data[one + 7] ^ 64])), (other + 6, b"\x01"))
    common_answers(cleaned, capfd)
    assert [output[2:6] for output in sorted(altered(rows_of(capfd, "verify", cleaned)))] == [
        (one, 8, 30, 35),
        (other, 8, 48, 53),
    ]


@pytest.mark.evidence("damage-offsets")
def test_batch_with_a_zeroed_offset_keeps_its_place(plain: Path, capfd: Capfd) -> None:
    """A hole of zeros ends in its header, so it claims offset 0. That offset is also lost at the start of the log, but this batch does not
    have it."""
    path = min(plain.glob("*.log"))
    spans = list(batch_spans(path))
    zeroed, width = spans[15]
    damage, size = spans[14]
    put(path, (spans[0][0] + 70, b"\x55" * 20), (damage + size - 20, bytes(28)))
    reported = common_answers(plain, capfd)
    assert ("bad-crc", path.name, damage, size, 47, 50, 4) in reported
    assert [(*output[:3], output[4]) for output in altered(rows_of(capfd, "verify", plain))] == [
        ("altered-base-offset", path.name, zeroed, 51)
    ]
    assert removed_from(plain, capfd) == [
        ("bad-crc", 0, spans[0][1], 0, 3, 4),
        ("bad-crc", damage, size, 47, 50, 4),
    ]
    sound = path.read_bytes()[zeroed + 8 : zeroed + width]
    assert run(["recover", "--apply", "--quiet", str(plain)]) == 0
    assert (51).to_bytes(8, "big") + sound in path.read_bytes()


@pytest.mark.evidence("damage-offsets")
def test_batch_in_a_hole_of_zeros_does_not_fill_another_gap(plain: Path, capfd: Capfd) -> None:
    """Its base offset was zeroed together with the batches before it, and offset 0 is lost at the start of the log."""
    first, other = sorted(plain.glob("*.log"))[::2]
    spans = list(batch_spans(first))
    put(first, (1, b"\x55" * 90))
    sound = first.read_bytes()[spans[1][0] :]
    at, _size = list(batch_spans(other))[3]
    put(other, (0, bytes(at + 8)))
    common_answers(plain, capfd)
    assert run(["recover", "--apply", "--quiet", str(plain)]) == 0
    assert first.read_bytes() == sound


@pytest.mark.evidence("damage-offsets")
def test_two_adjacent_batches_with_altered_offsets_do_not_move_to_the_log_end(
    plain: Path, capfd: Capfd
) -> None:
    """Both claim offsets of the next segment or beyond it, and the log continues below that."""
    path = min(plain.glob("*.log"))
    sound = path.read_bytes()
    spans = list(batch_spans(path))
    put(path, (spans[7][0] + 6, b"\x01"), (spans[8][0] + 6, b"\x08"))
    planned = rows_of(capfd, "recover", plain)
    claims = [(answer[2], *answer[4:6]) for answer in sorted(altered(planned))]
    offsets = [int.from_bytes(sound[at : at + 8], "big") for at, _ in spans[7:10]]
    assert claims == [(spans[at][0], offsets[at - 7], offsets[at - 6] - 1) for at in (7, 8)]
    (result,) = (row for row in planned if row["type"] == "result")
    assert (result["removed"], result["log_end_offset"]) == ([], 330)
    assert run(["recover", "--apply", "--quiet", str(plain)]) == 0
    assert path.read_bytes() == sound


@pytest.mark.evidence("damage-offsets")
def test_both_batches_with_altered_offsets_before_damage_are_named(plain: Path, capfd: Capfd) -> None:
    """They are in order with each other, and after the damage the log continues below them."""
    path = min(plain.glob("*.log"))
    spans = list(batch_spans(path))
    one, other, (damage, size) = spans[13][0], spans[14][0], spans[15]
    data = path.read_bytes()
    put(path, (one + 6, b"\x01"), (other + 6, b"\x04"), (damage + size - 3, b"\xee\xee\xee"))
    offsets = [int.from_bytes(data[at : at + 8], "big") for at, _ in spans[13:17]]
    (answer,) = common_answers(plain, capfd)
    assert answer == ("bad-crc", path.name, damage, size, offsets[2], offsets[3] - 1, 4)
    assert [each[2:6] for each in sorted(altered(rows_of(capfd, "verify", plain)))] == [
        (one, 8, offsets[0], offsets[1] - 1),
        (other, 8, offsets[1], offsets[2] - 1),
    ]


@pytest.mark.evidence("damage-offsets")
def test_lookup_skips_an_index_entry_whose_batch_claims_lower_offsets(plain: Path, capfd: Capfd) -> None:
    """The damage after it would seem to begin at these offsets."""
    path = sorted(plain.glob("*.log"))[1]
    spans = list(batch_spans(path))
    indexed = {entry.position for entry in OffsetIndex(path.with_suffix(".index").read_bytes(), 0)}
    at = max(number for number, (position, _) in enumerate(spans[:-1]) if position in indexed)
    altered_at, (damage, size) = spans[at][0], spans[at + 1]
    data = path.read_bytes()
    lowered = int.from_bytes(data[altered_at : altered_at + 8], "big") ^ 64
    first = int.from_bytes(data[damage : damage + 8], "big")
    assert lowered < first
    put(path, (altered_at, lowered.to_bytes(8, "big")), (damage + 20, b"\x55" * (size - 20)))
    (answer,) = common_answers(plain, capfd)
    assert answer[1:5] == (path.name, damage, size, first)


@pytest.mark.evidence("damage-offsets")
def test_lookup_does_not_skip_a_damaged_batch_that_claims_offsets_below_the_segment(
    plain: Path, capfd: Capfd
) -> None:
    """Nothing before the first batch contradicts its offsets but the file name."""
    path = max(plain.glob("*.log"))
    _, size = next(iter(batch_spans(path)))
    base = int(path.stem)
    put(path, (0, (base ^ 256).to_bytes(8, "big")), (size - 4, b"\x55" * 4))
    assert base ^ 256 < base
    (answer,) = common_answers(plain, capfd)
    assert answer[1:5] == (path.name, 0, size, base)


@pytest.mark.evidence("damage-offsets")
def test_removed_batch_beside_damage_counts_only_its_own_offsets(plain: Path, capfd: Capfd) -> None:
    path = min(plain.glob("*.log"))
    spans = list(batch_spans(path))
    start, _size = spans[3]
    following, width = spans[4]
    data = path.read_bytes()
    path.write_bytes(data[:start] + b"\0\0\0" + bytes.fromhex("000000000c000014") + data[following + 8 :])
    common_answers(plain, capfd)
    removed = removed_from(plain, capfd)
    assert removed == [
        ("zero-filled", start, 3, 12, 15, None),
        ("altered-base-offset", start + 3, width, 16, 19, None),
    ]


@pytest.mark.evidence("damage-offsets")
@pytest.mark.parametrize("is_gap_behind", [False, True])
def test_first_batch_keeps_the_offset_in_the_file_name_after_lost_offsets(
    cleaned: Path, capfd: Capfd, is_gap_behind: bool
) -> None:
    """The end of the segment before it is lost, so that its altered offset is one that no other batch has. No segment holds offsets below
    its name (Kafka: UnifiedLog.roll)."""
    _, shorter, path = sorted(cleaned.glob("*.log"))[:3]
    cut = list(batch_spans(shorter))[-3][0]
    shorter.write_bytes(shorter.read_bytes()[:cut] + bytes(3))
    if is_gap_behind:
        spans = list(batch_spans(path))
        data = path.read_bytes()
        path.write_bytes(data[: spans[1][0]] + data[spans[2][0] :])
    sound = path.read_bytes()
    base = int(path.stem)
    assert int.from_bytes(sound[:8], "big") == base == 120
    put(path, (7, bytes([sound[7] ^ 16])))
    (tail,) = common_answers(cleaned, capfd)
    assert tail[:4] == ("zero-tail", shorter.name, cut, 3) and tail[5] == base - 1
    (found,) = (row for row in rows_of(capfd, "recover", cleaned) if row.get("id") == "altered-base-offset")
    assert (found["probable_base_offset"], found["repaired"]) == (base, True)
    assert "the file name says that the segment begins at offset 120" in found["message"]
    assert run(["recover", "--apply", "--quiet", str(cleaned)]) == 0
    assert path.read_bytes() == sound


@pytest.mark.evidence("damage-offsets")
def test_dump_names_an_overlap_in_a_compacted_log(plain: Path, capfd: Capfd) -> None:
    """By chance there are as many records as offsets from the first to the last."""
    path = max(plain.glob("*.log"))
    position, _ = list(batch_spans(path))[-1]
    data = path.read_bytes()
    put(path, (position + 7, bytes([data[position + 7] ^ 2])))
    (output,) = altered(rows_of(capfd, "dump", path))
    assert output == ("altered-base-offset", path.name, position, 8, 327, 329, 325)


@pytest.mark.slow
@pytest.mark.evidence("damage-offsets")
@pytest.mark.parametrize("case", range(CASES))
def test_verify_dump_lookup_and_recover_agree_on_any_damage(
    case: int, partitions: list[Path], tmp_path: Path, capfd: Capfd
) -> None:
    rng = random.Random(f"{SEED}-{case}")
    source = partitions[case % 2]
    partition = tmp_path / source.name
    shutil.copytree(source, partition)
    for _ in range(rng.randint(1, 3)):
        damage_a_log(rng, partition)
    common_answers(partition, capfd)


def damage_a_log(rng: random.Random, partition: Path) -> None:
    path = rng.choice(sorted(file for file in partition.glob("*.log") if file.stat().st_size))
    data = bytearray(path.read_bytes())
    first = rng.randrange(len(data))
    match rng.randrange(5):
        case 0 | 1:
            data[first] ^= 1 << rng.randrange(8)
        case 2:
            data[first : first + rng.randrange(1, 400)] = b""
        case 3:
            last = min(len(data), first + rng.randrange(1, 400))
            data[first:last] = bytes(last - first)
        case 4:
            data[first:first] = rng.randbytes(rng.randrange(1, 200))
    path.write_bytes(bytes(data))


def alter_an_offset(rng: random.Random, partition: Path) -> None:
    path = rng.choice(sorted(file for file in partition.glob("*.log") if file.stat().st_size))
    position, _ = rng.choice(batch_spans(path))
    data = path.read_bytes()
    bit = rng.choice((*range(4, 12), 20, 31, 40, 62))
    at = position + 7 - bit // 8
    put(path, (at, bytes([data[at] ^ 1 << bit % 8])))


@pytest.mark.evidence("damage-offsets")
@pytest.mark.parametrize("case", range(CASES // 2))
def test_verify_dump_lookup_and_recover_agree_beside_altered_offsets(
    case: int, partitions: list[Path], tmp_path: Path, capfd: Capfd
) -> None:
    rng = random.Random(f"{SEED}-beside-{case}")
    source = partitions[case % 2]
    partition = tmp_path / source.name
    shutil.copytree(source, partition)
    for _ in range(rng.randint(1, 2)):
        alter_an_offset(rng, partition)
    for _ in range(rng.randint(1, 2)):
        damage_a_log(rng, partition)
    common_answers(partition, capfd)


@pytest.mark.slow
@pytest.mark.evidence("damage-offsets")
@pytest.mark.parametrize("case", range(CASES // 2))
def test_verify_dump_lookup_and_recover_name_an_altered_header(
    case: int, partitions: list[Path], tmp_path: Path, capfd: Capfd
) -> None:
    """The CRC covers neither base offset nor leader epoch, so every batch is valid although one has a wrong header."""
    rng = random.Random(f"{SEED}-altered-{case}")
    source = partitions[case % 2]
    partition = tmp_path / source.name
    shutil.copytree(source, partition)
    path = rng.choice(sorted(file for file in partition.glob("*.log") if file.stat().st_size))
    data = bytearray(path.read_bytes())
    position, _ = rng.choice(batch_spans(path))
    bit = rng.choice((*range(12), 31, 40, 62, 63, *range(64, 70), 94))
    first, width, at = (position, 8, bit) if bit < 64 else (position + 12, 4, bit - 64)
    data[first + width - 1 - at // 8] ^= 1 << at % 8
    path.write_bytes(bytes(data))
    found = altered(rows_of(capfd, "verify", partition))
    common_answers(partition, capfd)
    planned = rows_of(capfd, "recover", partition)
    assert altered(planned) >= found
    run(["dump", "--deep-iteration", str(path)])
    dumped = capfd.readouterr()
    assert all(f"{answer[0]}" in dumped.err for answer in found if answer[1] == path.name)
    assert "altered" not in dumped.out


def test_regular_log_is_not_checked_twice(capture_small: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A log of one leader epoch without gaps leaves no doubt, so its checksums are not computed again."""

    def judge(*_: object) -> None:
        raise AssertionError("there is nothing to judge")

    monkeypatch.setattr("kseg.recovery.verify.header_verdicts.check_headers", judge)
    logs = [str(path) for path in sorted((capture_small / "data").glob("metro-*-0/*.log"))]
    for words in (
        ["dump"],
        ["dump", "--print-data-log"],
        ["dump", "--json"],
        ["dump", "--from-offset", "80"],
    ):
        assert run([*words, *logs]) == 0
    assert run(["lookup", "--offset", "80", str(capture_small / "data" / "metro-none-0")]) == 0
