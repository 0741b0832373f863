"""One flipped bit in any header field produces the right finding about the right batch, with the original value.

The CRC does not cover base offset, length, leader epoch and magic. Cases that cannot be decided by order alone are listed.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from pathlib import Path

import pytest

from fixtures.diseases import batch_spans
from kseg.change.append.partition_writer import PartitionWriter, RollRules
from kseg.recovery.verify.options import VerifyOptions
from kseg.recovery.verify.verify import verify
from kseg.segment.findings import Finding
from kseg.segment.model import NewBatch, Record
from kseg.segment.partition.targets import PartitionTarget

pytestmark = pytest.mark.slow

T0 = 1_700_000_000_000
OPTIONS = VerifyOptions(now_ms=1_800_000_000_000)
FIELDS = {  # position in the header, bits, kind
    "base_offset": (0, 64, "altered-base-offset"),
    "length": (8, 32, "bad-length"),
    "leader_epoch": (12, 32, "altered-leader-epoch"),
    "magic": (16, 8, "bad-magic"),
    "crc": (17, 32, "bad-crc"),
    "attributes": (21, 16, "bad-crc"),
    "last_offset_delta": (23, 32, "bad-crc"),
    "producer_id": (43, 64, "bad-crc"),
    "base_sequence": (53, 32, "bad-crc"),
    "record_count": (57, 32, "bad-crc"),
}


def batches(width: int, producer_id: int, gaps: bool = False) -> Iterator[NewBatch]:
    """Thirty batches of two leader epochs. `gaps` leaves gaps like a compaction."""
    offset = 0
    for at in range(30):
        records = tuple(
            Record(offset + k, T0 + offset + k, b"key %d" % k, b"value %d" % offset) for k in range(width)
        )
        yield NewBatch(
            records=records,
            leader_epoch=3 if at < 11 else 4,
            producer_id=producer_id,
            producer_epoch=-1 if producer_id < 0 else 0,
            base_sequence=-1 if producer_id < 0 else at * width,
        )
        offset += width + (at * 7 % 5 if gaps else 0)


def partition(directory: Path, width: int, producer_id: int, bare: bool = False, gaps: bool = False) -> Path:
    with PartitionWriter(directory, rules=RollRules(segment_bytes=1500, index_interval_bytes=300)) as writer:
        for batch in batches(width, producer_id, gaps):
            writer.append(batch)
    if bare:
        for file in directory.iterdir():
            if file.suffix != ".log":
                file.unlink()
    return directory


def found(directory: Path) -> list[Finding]:
    return [event for event in verify(PartitionTarget(str(directory)), OPTIONS) if isinstance(event, Finding)]


def flips(log: Path, batch: int, field: str, every: int = 1) -> Iterator[tuple[int, int]]:
    """Flip one bit after another, and restore it; yields the bit's number and the original value of the field."""
    at, bits, _ = FIELDS[field]
    position, _ = batch_spans(log)[batch]
    data = log.read_bytes()
    true = int.from_bytes(data[position + at : position + at + bits // 8], "big", signed=True)
    for bit in range(0, bits, every):
        damaged = bytearray(data)
        damaged[position + at + bits // 8 - 1 - bit // 8] ^= 1 << bit % 8
        log.write_bytes(damaged)
        yield bit, true
    log.write_bytes(data)


def corners(directory: Path) -> Iterator[tuple[Path, int]]:
    """First, second, middle and last batch of the first, an inner and the last segment."""
    logs = sorted(directory.glob("*.log"))
    assert len(logs) >= 2
    for log in dict.fromkeys((logs[0], logs[1], logs[-1])):
        count = len(batch_spans(log))
        for batch in (0, 1, count // 2, count - 1):
            yield log, batch


@pytest.mark.evidence("batch-header")
@pytest.mark.parametrize("field", FIELDS)
@pytest.mark.parametrize(
    ("width", "producer_id"), [(4, 7), (4, -1), (1, -1)], ids=["idempotent", "plain", "single"]
)
def test_every_flipped_header_bit_is_found_with_the_original_value(
    width: int, producer_id: int, field: str, tmp_path: Path
) -> None:
    directory = partition(tmp_path / "topic-0", width, producer_id)
    assert found(directory) == []
    at, _, kind = FIELDS[field]
    every = 5 if at >= 17 else 1 if producer_id >= 0 else 3
    for log, batch in corners(directory):
        position, _ = batch_spans(log)[batch]
        for bit, true in flips(log, batch, field, every):
            output = found(directory)
            context = f"{log.name}, batch {batch}, bit {bit}: {[(f.id, f.message) for f in output]}"
            assert [f.id for f in output] == [kind], context
            assert output[0].path == str(log), context
            offset_in_header = 12 if kind == "altered-leader-epoch" else 0
            assert output[0].position == position + offset_in_header, context
            if kind == "altered-base-offset":
                assert output[0].numbers["probable_base_offset"] == true, context
                assert output[0].numbers["flipped_bit"] == bit, context
            if kind == "altered-leader-epoch":
                assert output[0].numbers["probable_epoch"] == true, context


@pytest.mark.parametrize("producer_id", [7, -1])
def test_flipped_base_offset_is_found_without_side_files(producer_id: int, tmp_path: Path) -> None:
    """The adjacent batches alone are enough to identify the batch and its offset, wherever it is."""
    directory = partition(tmp_path / "topic-0", 4, producer_id, bare=True)
    usual = {(f.id, f.path) for f in found(directory)}
    for log, batch in corners(directory):
        position, _ = batch_spans(log)[batch]
        for bit, true in flips(log, batch, "base_offset", 2):
            (output,) = [f for f in found(directory) if (f.id, f.path) not in usual]
            assert (output.id, output.path, output.position) == ("altered-base-offset", str(log), position), (
                bit
            )
            assert output.numbers["probable_base_offset"] == true, bit


def test_flipped_leader_epoch_is_found_without_the_checkpoint(tmp_path: Path) -> None:
    """A higher epoch in the last batch and a lower one in the first may be legal. Everything else is found."""
    directory = partition(tmp_path / "topic-0", 4, -1, bare=True)
    usual = {(f.id, f.path) for f in found(directory)}
    logs = sorted(directory.glob("*.log"))
    for log, batch in corners(directory):
        position, _ = batch_spans(log)[batch]
        is_first = (log, batch) == (logs[0], 0)
        is_last = log == logs[-1] and batch == len(batch_spans(log)) - 1
        for bit, true in flips(log, batch, "leader_epoch"):
            output = [f for f in found(directory) if (f.id, f.path) not in usual]
            if not output:
                assert (is_first and true ^ 1 << bit < true) or (is_last and 1 << bit <= 1024), bit
                continue
            assert [(f.id, f.path, f.position) for f in output] == [
                ("altered-leader-epoch", str(log), position + 12)
            ]
            assert output[0].numbers["probable_epoch"] == true, bit


@pytest.mark.behaviour("V01")
def test_legal_gaps_are_not_reported_and_indexes_settle_ties(tmp_path: Path) -> None:
    """In a log full of gaps, a flipped offset may be within a gap, or make the adjacent batch look wrong. That must stay rare."""
    directory = partition(tmp_path / "topic-0", 4, -1, gaps=True)
    assert {f.severity for f in found(directory)} <= {"info"}
    exact = wrong = flipped = 0
    for log, batch in corners(directory):
        position, _ = batch_spans(log)[batch]
        for _, true in flips(log, batch, "base_offset"):
            altered = [f for f in found(directory) if f.id == "altered-base-offset"]
            flipped += 1
            wrong += any((f.path, f.position) != (str(log), position) for f in altered)
            exact += [f.numbers["probable_base_offset"] for f in altered] == [true]
    assert exact / flipped > 0.95
    assert wrong / flipped < 0.01


def test_increased_leader_epoch_is_not_reported(tmp_path: Path) -> None:
    directory = tmp_path / "topic-0"
    with PartitionWriter(directory) as writer:
        for at, epoch in enumerate((0, 0, 1, 4, 5, 5, 1029, 1030)):
            writer.append(NewBatch(records=(Record(at, T0 + at, None, b"v"),), leader_epoch=epoch))
    assert found(directory) == []


def test_real_decrease_of_the_leader_epoch_is_only_a_warning(tmp_path: Path) -> None:
    directory = partition(tmp_path / "topic-0", 4, -1, bare=True)
    log = sorted(directory.glob("*.log"))[1]
    data = bytearray(log.read_bytes())
    for position, _ in batch_spans(log)[4:]:
        data[position + 12 : position + 16] = struct.pack(">i", 1)
    log.write_bytes(data)
    kinds = {f.id for f in found(directory) if "missing" not in f.id}
    assert kinds == {"leader-epoch-decreases"}
