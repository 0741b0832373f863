"""Findings that no other test covers by name: each is provoked by hand, reported in the right place, and gone after the repair."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest

from fixtures import healthy
from kseg.cli.main import run
from kseg.segment.crc import crc32c
from kseg.segment.encoding.batch import encode_batch
from kseg.segment.model import NewBatch, Record
from tests.support.command_rows import rows_of
from tests.support.salvage_cases import MIDDLE
from tests.support.salvage_helpers import salvaged
from tests.support.verify_helpers import judge

RECORDS_POSITION = 61
T0 = 1_700_000_000_000


def with_offset_deltas(*deltas: int) -> bytes:
    """A batch whose records have these offset deltas, while its header is that of consecutive ones."""
    records = tuple(Record(at, T0, None, b"v") for at in range(len(deltas)))
    data, position = bytearray(encode_batch(NewBatch(records=records))), RECORDS_POSITION
    for delta in deltas:
        size = data[position] >> 1  # a zigzag varint of one byte
        data[position + 3] = delta << 1  # after length, attributes and timestamp delta
        position += 1 + size
    assert position == len(data)
    struct.pack_into(">I", data, 17, crc32c(data[21:]))
    return bytes(data)


@pytest.mark.parametrize(
    ("deltas", "kind", "offset"),
    [
        ((0, 1, 7), "offset-outside-batch", 7),
        ((0, 2, 1), "offset-not-increasing-in-batch", 1),
        ((0, 1, 1), "offset-not-increasing-in-batch", 1),
    ],
)
def test_wrong_record_offsets_are_found(
    tmp_path: Path, deltas: tuple[int, ...], kind: str, offset: int
) -> None:
    log = tmp_path / f"{0:020d}.log"
    content = with_offset_deltas(*deltas)
    log.write_bytes(content)
    (found,) = judge(log, "deep").findings
    assert (found.id, found.position, found.length, found.first_offset) == (kind, 0, len(content), offset)
    # only a level that reads records notices
    assert judge(log).findings == ()


def test_unsorted_transaction_index_is_found_and_repaired(tmp_path: Path) -> None:
    """Kafka appends entries in the order of their last offsets and rejects others."""
    partition = healthy.partition(tmp_path / "metro-0")
    index = partition / f"{MIDDLE}.txnindex"
    sound = index.read_bytes()
    assert sound
    index.write_bytes(sound + sound[:34])
    found = judge(partition).of("txn-index-not-sorted")
    assert [(each.position, each.path) for each in found] == [(len(sound), str(index))]
    salvaged(partition, tmp_path / "result")
    assert (tmp_path / "result" / "metro-0" / index.name).read_bytes() == sound


@pytest.fixture
def log_dir(tmp_path: Path) -> Path:
    return healthy.log_dir(tmp_path / "data")


def test_checkpoint_entry_below_the_log_is_found(log_dir: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """The first segment, which contained the checkpointed offset, is missing; it may have been deleted since. `recover` raises the offset
    only if it writes the file for another reason."""
    for file in (log_dir / "metro-0").glob("0" * 20 + ".*"):
        file.unlink()
    checkpoint = log_dir / "cleaner-offset-checkpoint"
    checkpoint.write_text("0\n1\nmetro 0 50\n")
    (found,) = judge(log_dir).of("checkpoint-below-log")
    assert (found.path, found.first_offset, found.severity) == (str(checkpoint), 50, "info")
    assert not [row for row in rows_of(capfd, "recover", log_dir) if row["type"] == "step"]
    checkpoint.write_text("0\n2\nmetro 0 50\nmetro 1 99999\n")
    for command in (("recover",), ("recover", "--apply")):
        reported = [
            row for row in rows_of(capfd, *command, log_dir) if row.get("id") == "checkpoint-below-log"
        ]
        assert {(row["path"], row["first_offset"]) for row in reported} == {(str(checkpoint), 50)}
    assert judge(log_dir).of("checkpoint-below-log") == []


@pytest.mark.parametrize(("noted", "is_outside"), [(331, True), (330, False), (50, True), (102, False)])
def test_first_dirty_offset_outside_the_log_is_found(
    log_dir: Path, capfd: pytest.CaptureFixture[str], noted: int, is_outside: bool
) -> None:
    """The log has offsets 102 to 329 (Kafka: LogCleanerManager.cleanableOffsets resets the checkpoint)."""
    for file in (log_dir / "metro-0").glob("0" * 20 + ".*"):
        file.unlink()
    (log_dir / "cleaner-offset-checkpoint").write_text(f"0\n1\nmetro 0 {noted}\n")
    run(
        [
            "compact",
            "--cleanup-policy",
            "compact",
            "--first-dirty-offset",
            "checkpoint",
            str(log_dir / "metro-0"),
        ]
    )
    reported = [line for line in "".join(capfd.readouterr()).splitlines() if "dirty-offset-reset" in line]
    assert [f"the first dirty offset {noted} is outside the log" in line for line in reported] == [
        True
    ] * is_outside
