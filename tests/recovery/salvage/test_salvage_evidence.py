"""Adjacent batches, other segments and leader epochs confirm a batch, so salvage keeps it at its own offsets."""

from __future__ import annotations

import random
import shutil
import struct
from pathlib import Path

import pytest

from fixtures.diseases import batch_spans, put
from kseg.recovery.policy import BrokerState
from kseg.segment.encoding.batch import encode_batch
from kseg.segment.model import NewBatch, Record
from tests.support.salvage_cases import LAST, MIDDLE, NEXT, log
from tests.support.salvage_helpers import all_batches, logs, salvaged


@pytest.fixture
def damaged(partition: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(partition, tmp_path / "metro-0"))


def flip(file: Path, number: int, *bits: int) -> None:
    """Flip bits in the base offset of a batch, which is given by its number in the file."""
    position, _ = batch_spans(file)[number]
    (found,) = struct.unpack_from(">Q", file.read_bytes(), position)
    for bit in bits:
        found ^= 1 << bit
    put(file, position, struct.pack(">Q", found))


def is_whole(partition: Path, result: Path) -> bool:
    """Whether all logs have their content from before the damage."""
    wanted = {file.name: file.read_bytes() for file in logs(partition)}
    return {file.name: file.read_bytes() for file in logs(result)} == wanted


@pytest.mark.parametrize("stem", [MIDDLE, NEXT, LAST])
@pytest.mark.parametrize("bits", [(39, 39), (39, 41), (30, 39), (62, 62, 62)])
@pytest.mark.parametrize("first", [0, 4, -1])
def test_adjacent_batches_with_impossible_offsets_are_corrected(
    partition: Path, damaged: Path, tmp_path: Path, stem: str, bits: tuple[int, ...], first: int
) -> None:
    """Two or three adjacent batches have offsets that are impossible in this partition: one bit was flipped in each."""
    file = log(damaged, stem)
    number = first if first >= 0 else len(batch_spans(file)) - len(bits)
    for at, bit in enumerate(bits):
        flip(file, number + at, bit)
    repair, _ = salvaged(damaged, tmp_path / "result")
    assert repair.log_end_offset == 330
    assert repair.removed == ()
    assert is_whole(partition, tmp_path / "result" / "metro-0")


def test_overwritten_offsets_that_fill_their_gap_exactly_are_corrected(
    partition: Path, damaged: Path, tmp_path: Path
) -> None:
    """Two base offsets are overwritten completely, and the gap between the batches around them has exactly the right number of offsets."""
    file = log(damaged)
    for number, noise in ((4, 0x0000133742424242), (5, 0x00013398AB000017)):
        put(file, batch_spans(file)[number][0], struct.pack(">Q", noise))
    salvaged(damaged, tmp_path / "result")
    assert is_whole(partition, tmp_path / "result" / "metro-0")


def test_distant_batches_of_a_compacted_log_are_kept(partition: Path, damaged: Path, tmp_path: Path) -> None:
    """A compacted log may have any gap, and nothing contradicts these offsets."""
    far = 330 + (1 << 33) + 12_345
    content = b"".join(
        encode_batch(NewBatch(records=(Record(far + at, 1_700_000_330_000, b"k", b"v"),), leader_epoch=5))
        for at in range(3)
    )
    file = log(damaged, LAST)
    put(file, file.stat().st_size, content)
    repair, _ = salvaged(damaged, tmp_path / "result")
    assert repair.log_end_offset == far + 3
    assert b"".join(all_batches(tmp_path / "result" / "metro-0")).endswith(content)


def foreign(epoch: int, first: int = 0, count: int = 10) -> bytes:
    """Batches of another partition."""
    return b"".join(
        encode_batch(
            NewBatch(
                records=tuple(
                    Record(first + 4 * at + n, 1_690_000_000_000, b"x", b"foreign") for n in range(4)
                ),
                leader_epoch=epoch,
            )
        )
        for at in range(count)
    )


@pytest.mark.parametrize("has_epoch_file", [True, False])
@pytest.mark.parametrize("first", [0, 110, 200])
def test_foreign_tail_with_a_higher_epoch_is_removed(
    partition: Path, damaged: Path, tmp_path: Path, first: int, has_epoch_file: bool
) -> None:
    """Batches of a later leader are usually kept. But leader epochs never decrease, and the following batches and the leader-epoch
    checkpoint have lower ones."""
    file = log(damaged, LAST)
    put(file, file.stat().st_size, foreign(9, first))
    if not has_epoch_file:
        (damaged / "leader-epoch-checkpoint").unlink()
    salvaged(damaged, tmp_path / "result")
    assert is_whole(partition, tmp_path / "result" / "metro-0")


@pytest.mark.parametrize(
    "noise", [b"\xff\x13\x37\x42\x42\x42\x42\x42", b"\x70" * 8, b"\x00\x00\x00\x13\x37\x00\x00\x01"]
)
def test_overwritten_base_offset_inside_damage_is_corrected(
    partition: Path, damaged: Path, tmp_path: Path, noise: bytes
) -> None:
    """The batch follows bytes that are not a batch, so the search for the next batch skips it. It has exactly the offsets that are missing
    there."""
    file = log(damaged)
    position, _ = batch_spans(file)[7]
    data = file.read_bytes()
    garbage = random.Random(7).randbytes(44)
    file.write_bytes(data[:position] + garbage + noise + data[position + 8 :])
    repair, _ = salvaged(damaged, tmp_path / "result")
    assert is_whole(partition, tmp_path / "result" / "metro-0")
    assert repair.bytes_lost == len(garbage)
    output = [finding for finding in repair.findings if finding.id == "altered-base-offset"]
    assert [finding.numbers["repaired"] for finding in output] == [True]


def test_ambiguous_offset_inside_damage_is_not_guessed(damaged: Path, tmp_path: Path) -> None:
    """If more offsets are missing than the batch has, its position among them is unknown."""
    file = log(damaged)
    spans = batch_spans(file)
    put(file, spans[6][0], bytes([7]) * (spans[6][1]) + b"\xff" * 8)
    repair, _ = salvaged(damaged, tmp_path / "result")
    assert sum(removed.length for removed in repair.removed) == spans[6][1] + spans[7][1]


def test_batches_below_a_too_high_segment_name_are_kept(
    partition: Path, damaged: Path, tmp_path: Path
) -> None:
    """The first batch is damaged, and the following ones are below the base offset in the name. After the next damage, the log continues
    where they end."""
    first = log(damaged, "0" * 20)
    spans = batch_spans(first)
    for number in (0, 18):
        put(first, spans[number][0] + 70, b"\xee\xee")
    first.rename(first.with_name(f"{41:020d}.log"))
    salvaged(damaged, tmp_path / "result", broker_state=BrokerState(is_clean=True))
    wanted = [batch for number, batch in enumerate(all_batches(partition)) if number not in (0, 18)]
    assert all_batches(tmp_path / "result" / "metro-0") == wanted


def test_foreign_batches_after_the_log_end_do_not_remove_an_epoch(damaged: Path, tmp_path: Path) -> None:
    """A leader was elected at the log end and has not written yet. The bytes after it start at offset 0 again, which looks like the log
    end."""
    checkpoint = damaged / "leader-epoch-checkpoint"
    *head, count, entries = checkpoint.read_text().split("\n", 2)
    checkpoint.write_text("\n".join([*head, str(int(count) + 1), f"{entries.rstrip()}\n6 330\n"]))
    kept = checkpoint.read_bytes()
    foreign = NewBatch(records=(Record(0, 1_700_000_000_000, b"k", b"v"),), leader_epoch=0)
    with log(damaged, LAST).open("ab") as stream:
        stream.write(encode_batch(foreign))
    repair, _ = salvaged(damaged, tmp_path / "result")
    assert repair.log_end_offset == 330
    assert (tmp_path / "result" / "metro-0" / "leader-epoch-checkpoint").read_bytes() == kept
