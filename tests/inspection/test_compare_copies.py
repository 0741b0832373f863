"""The verdict of `diff` on two copies of a log that differ in a known way."""

from __future__ import annotations

import random
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from kseg.inspection.copies import copy_stretches
from kseg.inspection.copies.compare_copies import compare_copies
from kseg.inspection.copies.copy_pairs import CopyPair, pair_up
from kseg.jobs.events import Advance
from kseg.segment import layout as L
from kseg.segment.encoding.batch import encode_batch
from kseg.segment.errors import UsageError
from kseg.segment.model import NewBatch, Record
from kseg.segment.partition.targets import PartitionTarget, resolve_targets
from tests.support.copies import T0, batches, both, compared, keyed, packed, records, write


def test_copies_with_other_segment_boundaries_are_the_same(tmp_path: Path) -> None:
    a = write(tmp_path / "a" / "t-0", batches(0, 100), batches(100, 300))
    b = write(tmp_path / "b" / "t-0", batches(0, 60), batches(60, 250), batches(250, 300))
    row, _ = compared(a, b)
    assert (row["verdict"], row["same_batches"], row["compared_to"]) == ("same", 30, 300)


def test_shorter_copy_is_behind(tmp_path: Path) -> None:
    row = both(tmp_path, batches(0, 300), batches(0, 240))
    assert (row["verdict"], row["a"]["log_end_offset"], row["b"]["log_end_offset"]) == ("behind", 300, 240)
    assert row["differs_at"] is None


@pytest.mark.parametrize("size", [10, 7], ids=["same batches", "other batches"])
def test_copy_with_a_gap_before_an_empty_last_segment_ends_at_its_base(tmp_path: Path, size: int) -> None:
    """The middle segment was deleted and the last one is empty, so the copy ends at the base offset of the last."""
    a = write(tmp_path / "a" / "t-0", batches(0, 100, size), batches(100, 300, size))
    b = write(tmp_path / "b" / "t-0", batches(0, 90), batches(90, 200), batches(200, 300))
    (b / f"{90:020d}.log").unlink()
    (b / f"{200:020d}.log").write_bytes(b"")
    row, _ = compared(a, b)
    assert (row["verdict"], row["compared_to"], row["b"]["log_end_offset"]) == ("missing", 200, 200)
    assert row["b"]["missing"] == [[90, 199]] and row["b"]["records_lost"] == 110


@pytest.mark.parametrize("epoch", [1, 2])
def test_first_diverging_offset_is_reported(tmp_path: Path, epoch: int) -> None:
    """As after an unclean election: a common prefix, then records of two leaders."""
    a = [*batches(0, 200), *batches(200, 240, leader_epoch=1)]
    b = [*batches(0, 200), *batches(200, 220, leader_epoch=epoch, word="other")]
    row = both(tmp_path, a, b)
    assert (row["verdict"], row["differs_at"], row["compared_to"]) == ("diverged", 200, 200)


def test_divergence_inside_a_batch_is_located(tmp_path: Path) -> None:
    changed = batches(0, 100)
    last = list(changed[5].records)
    last[3] = replace(last[3], value=b"not what it was")
    changed[5] = replace(changed[5], records=tuple(last))
    assert both(tmp_path, batches(0, 100), changed)["differs_at"] == 53


@pytest.mark.parametrize("what", ["key", "value", "timestamp_ms", "headers"])
def test_every_field_of_a_record_is_compared(tmp_path: Path, what: str) -> None:
    changed = batches(0, 30)
    other: dict[str, Any] = {"key": b"k", "value": None, "timestamp_ms": T0, "headers": ((b"h", None),)}
    of_it = list(changed[1].records)
    of_it[2] = replace(of_it[2], **{what: other[what]})
    changed[1] = replace(changed[1], records=tuple(of_it))
    assert both(tmp_path, batches(0, 30), changed)["differs_at"] == 12


def test_producer_fields_are_compared(tmp_path: Path) -> None:
    a = batches(0, 30, producer_id=7, producer_epoch=0, base_sequence=0)
    row = both(tmp_path, a, batches(0, 30, producer_id=8, producer_epoch=0, base_sequence=0))
    assert (row["verdict"], row["differs_at"]) == ("diverged", 0)


def test_different_leader_epochs_are_reported_as_epochs(tmp_path: Path) -> None:
    b = [*batches(0, 50), *batches(50, 100, leader_epoch=4)]
    row = both(tmp_path, batches(0, 100), b)
    assert (row["verdict"], row["epochs_differ_at"], row["differs_at"]) == ("epochs", 50, None)
    assert row["same_batches"] == 10


@pytest.mark.parametrize("codec", [L.GZIP, L.LZ4, L.ZSTD, L.SNAPPY])
@pytest.mark.parametrize("size", [10, 7, 1000])
def test_same_records_in_other_batches_are_repacked(tmp_path: Path, codec: int, size: int) -> None:
    row = both(tmp_path, batches(0, 300), batches(0, 300, size, codec=codec))
    assert (row["verdict"], row["repacked_batches"], row["same_batches"]) == ("repacked", 30, 0)


def test_repacked_shorter_copy_is_behind(tmp_path: Path) -> None:
    row = both(tmp_path, batches(0, 300, 10), batches(0, 285, 7, codec=L.LZ4))
    assert (row["verdict"], row["a"]["records_missing"], row["b"]["records_missing"]) == ("behind", 0, 0)


def test_repacked_batches_without_common_ends_are_compared(tmp_path: Path) -> None:
    shifted = [*batches(0, 5), *batches(5, 300, 10)]
    row = both(tmp_path, batches(0, 305), [*shifted, *batches(300, 305, 5)])
    assert (row["verdict"], row["a"]["records_missing"], row["b"]["records_missing"]) == ("repacked", 0, 0)
    changed = list(shifted)
    of_it = list(changed[20].records)
    changed[20] = replace(changed[20], records=(*of_it[:-1], replace(of_it[-1], value=b"x")))
    shutil.rmtree(tmp_path)
    assert both(tmp_path, batches(0, 305), changed)["differs_at"] == of_it[-1].offset


def test_copy_that_begins_later_is_trimmed(tmp_path: Path) -> None:
    a = write(tmp_path / "a" / "t-0", batches(0, 100), batches(100, 200))
    b = write(tmp_path / "b" / "t-0", batches(100, 200))
    row, _ = compared(a, b)
    assert (row["verdict"], row["compared_from"], row["same_batches"]) == ("trimmed", 100, 10)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(12))
def test_diff_by_several_processes_equals_that_of_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    """Equal and different batches, gaps, damage or a divergence. The copies are divided by their indexes."""
    monkeypatch.setattr("kseg.inspection.copies.copy_stretches.STRETCH_BYTES", 2000)
    lots = random.Random(seed)
    whole = [keyed(at, b"k%d" % lots.randrange(60), b"v" * lots.randrange(60)) for at in range(1200)]
    a = packed(whole, lots.choice((1, 5, 8)), codec=lots.choice((0, 3)))
    kept = [each for each in whole if seed % 3 or lots.random() < 0.6]
    if seed == 4:
        kept[700] = replace(kept[700], value=b"other")
    b = packed(kept[: lots.choice((len(kept), 900))], lots.choice((1, 5, 6)), codec=lots.choice((0, 4)))
    for name, copy in (("a", a), ("b", b)):
        folder, cut = tmp_path / name / "t-0", len(copy) // 2
        write(folder, copy[:cut], base=0)
        (folder / f"{copy[cut].base_offset:020d}.log").write_bytes(b"".join(map(encode_batch, copy[cut:])))
        index_by_batches(folder)
    if seed % 4 == 3:
        log = max((tmp_path / "b" / "t-0").glob("*.log"))
        data = bytearray(log.read_bytes())
        data[len(data) // 2] ^= 1
        log.write_bytes(data)
    targets = [PartitionTarget(str(tmp_path / name / "t-0")) for name in "ab"]
    found = [
        [
            event
            for event in compare_copies(CopyPair("t-0", targets[0], targets[1], jobs=jobs), None)
            if not isinstance(event, Advance)
        ]
        for jobs in (1, 3)
    ]
    assert found[0] == found[1]
    assert len(copy_stretches._stretches((targets[0], targets[1]), 0)) > 3


def index_by_batches(folder: Path) -> None:
    """An offset index with an entry about every 300 bytes."""
    for log in folder.glob("*.log"):
        data, at, indexed, entries = log.read_bytes(), 0, 0, b""
        while at < len(data):
            if at - indexed >= 300:
                base, last = (
                    int.from_bytes(data[at : at + 8], "big"),
                    int.from_bytes(data[at + 23 : at + 27], "big"),
                )
                entries += (base + last - int(log.stem)).to_bytes(4, "big") + at.to_bytes(4, "big")
                indexed = at
            at += 12 + int.from_bytes(data[at + 8 : at + 12], "big")
        log.with_suffix(".index").write_bytes(entries)


def test_damaged_batch_is_not_a_divergence(tmp_path: Path) -> None:
    for at in (30, 500, 4000):
        a = write(tmp_path / str(at) / "a" / "t-0", batches(0, 300))
        b = write(tmp_path / str(at) / "b" / "t-0", batches(0, 300))
        log = b / f"{0:020d}.log"
        data = bytearray(log.read_bytes())
        data[at] ^= 1
        log.write_bytes(data)
        row, findings = compared(a, b)
        assert (row["verdict"], row["differs_at"], row["same_batches"]) == ("damaged", None, 29)
        assert findings and row["b"]["records_missing"] == 10 and row["b"]["damaged"]


def test_altered_base_offset_is_damage_not_divergence(tmp_path: Path) -> None:
    """The CRC does not cover the base offset."""
    a, b = write(tmp_path / "a" / "t-0", batches(0, 300)), write(tmp_path / "b" / "t-0", batches(0, 300))
    log = b / f"{0:020d}.log"
    data = bytearray(log.read_bytes())
    second = len(encode_batch(batches(0, 10)[0]))
    data[second + 6] ^= 0x10
    log.write_bytes(data)
    row, findings = compared(a, b)
    assert (row["verdict"], row["differs_at"], findings) == ("damaged", None, ["altered-base-offset"])
    assert row["b"]["damaged"] == [[10, 19]]


def test_leader_epoch_checkpoints_are_compared(tmp_path: Path) -> None:
    a, b = write(tmp_path / "a" / "t-0", batches(0, 300)), write(tmp_path / "b" / "t-0", batches(0, 300))
    (a / "leader-epoch-checkpoint").write_text("0\n2\n0 0\n3 100\n")
    (b / "leader-epoch-checkpoint").write_text("0\n3\n0 0\n3 100\n4 170\n")
    row, _ = compared(a, b)
    assert (row["verdict"], row["epoch_caches_differ_at"]) == ("epochs", 170)


@pytest.mark.parametrize("seed", range(40))
def test_changed_record_in_repacked_batches_is_located_exactly(tmp_path: Path, seed: int) -> None:
    """One record is changed and all records are batched differently, but the reported offset is exact."""
    lots = random.Random(seed)
    end = lots.randrange(20, 400)
    at = lots.randrange(end)
    plain = list(records(0, end))
    changed = [*plain[:at], replace(plain[at], value=b"changed"), *plain[at + 1 :]]

    def packed(found: list[Record]) -> list[NewBatch]:
        left, made = list(found), []
        while left:
            size = lots.choice((1, 3, 10, 50))
            made.append(NewBatch(records=tuple(left[:size]), codec=lots.choice((0, 3, 4)), leader_epoch=0))
            del left[:size]
        return made

    assert both(tmp_path / "changed", packed(plain), packed(changed))["differs_at"] == at
    assert both(tmp_path / "same", packed(plain), packed(plain))["verdict"] in ("same", "repacked")


# --- pairs


def test_partitions_are_paired_by_name(tmp_path: Path) -> None:
    for path in ("a/t-0", "a/t-10", "a/t-2", "b/t-0", "b/t-10", "b/u-0"):
        write(tmp_path / path, batches(0, 20))
    paths = [str(tmp_path / "a"), str(tmp_path / "b")]
    pairs = pair_up(paths, resolve_targets(paths), is_narrowed=False)
    assert [(pair.name, pair.a is None, pair.b is None) for pair in pairs] == [
        ("t-0", False, False),
        ("t-2", False, True),
        ("t-10", False, False),
        ("u-0", True, False),
    ]


def test_two_given_directories_are_paired_whatever_their_names(tmp_path: Path) -> None:
    paths = [str(write(tmp_path / name, batches(0, 20))) for name in ("t-0", "old-7")]
    (pair,) = pair_up(paths, resolve_targets(paths), is_narrowed=False)
    assert pair.name == "t-0"


def test_incomparable_paths_are_refused(tmp_path: Path) -> None:
    outer = tmp_path / "a"
    write(outer / "t-0", batches(0, 20))
    write(tmp_path / "x" / "one" / "t-0", batches(0, 20))
    write(tmp_path / "x" / "two" / "t-0", batches(0, 20))
    (tmp_path / "link").symlink_to(outer)
    for other, words in (
        (outer, "same directory"),
        (tmp_path / "link", "same directory"),
        (outer / "t-0", "is inside the other"),
        (tmp_path / "x", "holds t-0 twice"),
    ):
        paths = [str(outer), str(other)]
        with pytest.raises(UsageError, match=words):
            pair_up(paths, resolve_targets(paths), is_narrowed=False)


def test_partition_is_compared_with_the_one_of_its_name(tmp_path: Path) -> None:
    for path in ("a/t-0", "b/t-0", "b/t-1", "b/u-0"):
        write(tmp_path / path, batches(0, 20))
    for paths in (("a/t-0", "b"), ("b", "a/t-0")):
        both_paths = [str(tmp_path / path) for path in paths]
        (pair,) = pair_up(both_paths, resolve_targets(both_paths), is_narrowed=False, jobs=2)
        assert [target.path for target in pair.targets] == [
            str(tmp_path / path)
            for path in (("a/t-0", "b/t-0") if paths[0] == "a/t-0" else ("b/t-0", "a/t-0"))
        ]
        assert pair.jobs == 2
    shutil.rmtree(tmp_path / "b" / "t-0")
    left = [str(tmp_path / "a/t-0"), str(tmp_path / "b")]
    with pytest.raises(UsageError, match="has no t-0"):
        pair_up(left, resolve_targets(left), is_narrowed=False)


@pytest.mark.parametrize("seed", range(150))
def test_flipped_bit_is_neither_the_same_nor_a_divergence(tmp_path: Path, seed: int) -> None:
    """A flipped bit in bytes that the CRC covers, in a length, an offset or a leader epoch."""
    lots = random.Random(seed)
    a = write(tmp_path / "a" / "t-0", batches(0, 60), batches(60, 120, codec=L.LZ4))
    b = write(tmp_path / "b" / "t-0", batches(0, 60), batches(60, 120, codec=L.LZ4))
    log = lots.choice(sorted(b.glob("*.log")))
    data = bytearray(log.read_bytes())
    starts = [0]
    while starts[-1] < len(data):
        at = starts[-1]
        starts.append(at + 12 + int.from_bytes(data[at + 8 : at + 12], "big"))
    at = lots.choice(starts[:-1]) + lots.randrange(21) if seed % 2 else lots.randrange(len(data))
    data[at] ^= 1 << lots.randrange(8)
    log.write_bytes(data)
    for first, second in ((a, b), (b, a)):
        row, _ = compared(first, second)
        assert row["verdict"] not in ("same", "repacked", "diverged"), (log.name, at)
