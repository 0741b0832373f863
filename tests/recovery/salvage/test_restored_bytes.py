"""Salvage restores batches whose original bytes are known: wrong lengths always, flipped bits on request."""

from __future__ import annotations

import random
import shutil
from collections.abc import Iterable
from pathlib import Path

import pytest

from fixtures import diseases
from fixtures.diseases import batch_spans
from kseg.change.apply.scratch_file import ScratchFile
from kseg.recovery.policy import Repair
from kseg.recovery.salvage import image_reader
from kseg.segment.errors import Refused
from tests.support.salvage_cases import LAST, MIDDLE, log
from tests.support.salvage_helpers import logs, plan, salvaged

RESTORED = "batch-restored"
FIRST = "0" * 20
SEGMENTS = (FIRST, MIDDLE, LAST)


@pytest.fixture
def damaged(partition: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(partition, tmp_path / "metro-0"))


def invert(file: Path, bits: Iterable[int]) -> None:
    data = bytearray(file.read_bytes())
    for bit in bits:
        data[bit // 8] ^= 1 << bit % 8
    file.write_bytes(data)


def contents(directory: Path) -> dict[str, bytes]:
    return {file.name: file.read_bytes() for file in sorted(directory.iterdir())}


def restored(repair: Repair) -> list[tuple[str, int | None, int | None]]:
    return [
        (Path(each.path).name, each.position, each.length) for each in repair.findings if each.id == RESTORED
    ]


@pytest.mark.evidence("batch-invalid")
@pytest.mark.parametrize("seed", range(12))
def test_repair_bits_restores_any_flipped_bit(
    partition: Path, damaged: Path, tmp_path: Path, seed: int
) -> None:
    """For any bit that the checksum covers, in any segment, the directory becomes what it was, side files included."""
    chance = random.Random(seed)
    file = log(damaged, chance.choice(SEGMENTS))
    position, length = chance.choice(batch_spans(file))
    invert(file, [8 * position + chance.randrange(8 * 17, 8 * length)])
    repair, _ = salvaged(damaged, tmp_path / "result", repair_bits=True)
    assert contents(tmp_path / "result" / damaged.name) == contents(partition)
    assert repair.removed == ()
    assert restored(repair) == [(file.name, position, length)]
    assert "bad-crc" in {finding.id for finding in repair.findings}
    assert repair.why == {file.name: "inverted bits are corrected"}


def test_flipped_bit_without_repair_bits_is_removed_and_named(damaged: Path, tmp_path: Path) -> None:
    file = log(damaged)
    position, length = batch_spans(file)[3]
    invert(file, [8 * (position + 70) + 5])
    repair, _ = salvaged(damaged, tmp_path / "result")
    assert [(each.cause, each.position, each.length) for each in repair.removed] == [
        ("bad-crc", position, length)
    ]
    (finding,) = (each for each in repair.findings if each.id == "bad-crc")
    assert (
        f"the batch is valid with bit 5 of the byte at position {position + 70} inverted; --repair-bits restores it"
        in finding.message
    )
    assert finding.numbers["flipped_position"] == position + 70 and finding.numbers["flipped_bit"] == 5


@pytest.mark.evidence("batch-invalid")
@pytest.mark.parametrize("size_field", [0, 14, 49, 200, 2**31 - 1])
@pytest.mark.parametrize("number", [0, 4, -1])
def test_wrong_batch_length_is_restored(
    partition: Path, damaged: Path, tmp_path: Path, size_field: int, number: int
) -> None:
    """With the true length the content matches its checksum, as it does when a base offset or magic byte is corrected."""
    file = log(damaged)
    position, length = batch_spans(file)[number]
    diseases.put(file, position + 8, size_field.to_bytes(4, "big"))
    repair, _ = salvaged(damaged, tmp_path / "result")
    assert contents(tmp_path / "result" / damaged.name) == contents(partition)
    assert repair.removed == () and restored(repair) == [(file.name, position, length)]


def test_repair_bits_restores_damage_in_many_places(partition: Path, damaged: Path, tmp_path: Path) -> None:
    """Adjacent batches, another segment, the last byte of a log, a length; and besides a batch with two flipped bits, and a torn end."""
    first, middle, last = (log(damaged, name) for name in SEGMENTS)
    spans = batch_spans(first)
    ends = [8 * (position + length) for position, length in spans]
    invert(first, [ends[1] - 1, ends[2] - 30, ends[3] - 200, ends[-1] - 8])
    spans_of_middle = batch_spans(middle)
    two_bits = spans_of_middle[2]
    invert(middle, [8 * sum(two_bits) - 3, 8 * sum(two_bits) - 99])
    diseases.put(middle, spans_of_middle[5][0] + 8, bytes(4))
    diseases.torn_tail(last)
    repair, _ = salvaged(damaged, tmp_path / "result", repair_bits=True)
    result = tmp_path / "result" / damaged.name
    assert log(result, FIRST).read_bytes() == log(partition, FIRST).read_bytes()
    whole, (position, length) = log(partition, MIDDLE).read_bytes(), two_bits
    assert log(result, MIDDLE).read_bytes() == whole[:position] + whole[position + length :]
    assert [(each.file, each.position, each.cause) for each in repair.removed] == [
        (middle.name, position, "bad-crc"),
        (last.name, batch_spans(log(partition, LAST))[-1][0], "torn-tail"),
    ]
    assert sum(file.stat().st_size for file in logs(damaged)) == repair.bytes_lost + sum(
        file.stat().st_size for file in logs(result)
    )
    assert restored(repair) == [
        (first.name, spans[1][0], sum(spans[3]) - spans[1][0]),
        (first.name, *spans[-1]),
        (middle.name, *spans_of_middle[5]),
    ]


@pytest.mark.parametrize("with_bit", [False, True], ids=["length", "bit"])
def test_salvage_without_room_to_assemble_a_log_refuses_only_repair_bits(
    damaged: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, with_bit: bool
) -> None:
    """An explicit request is refused; otherwise salvage does what it can without the space."""
    monkeypatch.setattr(image_reader, "_MAX_IN_MEMORY_BYTES", 0)
    monkeypatch.setattr(ScratchFile, "write", _no_room)
    file = log(damaged)
    position, length = batch_spans(file)[3]
    if with_bit:
        invert(file, [8 * (position + 70)])
        with pytest.raises(Refused, match="no room"):
            plan(damaged, repair_bits=True)
    else:
        diseases.put(file, position + 8, bytes(4))
        repair = plan(damaged)
        assert [(each.cause, each.position, each.length) for each in repair.removed] == [
            ("bad-length", position, length)
        ]


def _no_room(*_: object) -> None:
    raise Refused("no room")
