"""Gaps between two copies of a log: what a cleaning explains, and what is lost."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from kseg.inspection.copies.gap_causes import GapJudge
from kseg.segment import layout as L
from kseg.segment.model import NewBatch, Record
from tests.support.copies import batches, compared, keyed, packed, write


def thinned(found: list[NewBatch], lots: random.Random) -> list[NewBatch]:
    """Batches as the cleaner leaves them: with their offset ranges and fewer records, and some removed completely."""
    left = []
    for batch in found:
        kept = tuple(record for record in batch.records if lots.random() < 0.5)
        if kept:
            first, last = batch.records[0].offset, batch.records[-1].offset
            left.append(replace(batch, records=kept, base_offset=first, last_offset=last))
    return left


def checkpoint(folder: Path, name: str, partition: str, offset: int) -> None:
    topic, _, number = partition.rpartition("-")
    (folder / name).write_text(f"0\n1\n{topic} {number} {offset}\n")


@pytest.mark.parametrize(
    ("cleaned_a", "cleaned_b", "verdict"),
    [(None, None, "compacted"), (0, 200, "compacted"), (200, 0, "compacted"), (0, 0, "missing")],
)
def test_gaps_explained_by_a_cleaning_are_compacted(
    tmp_path: Path, cleaned_a: int | None, cleaned_b: int | None, verdict: str
) -> None:
    whole = batches(0, 200)
    left = [*thinned(whole[:15], random.Random(3)), *whole[15:]]
    a, b = write(tmp_path / "a" / "t-0", whole, base=0), write(tmp_path / "b" / "t-0", left, base=0)
    for path, offset in ((a, cleaned_a), (b, cleaned_b)):
        if offset is not None:
            checkpoint(path.parent, "cleaner-offset-checkpoint", "t-0", offset)
    row, _ = compared(a, b, log_dirs=True)
    held = sum(len(batch.records) for batch in left)
    assert (row["verdict"], row["b"]["records_missing"], row["differs_at"]) == (verdict, 200 - held, None)
    assert row["a"]["records_missing"] == 0


def gaps(tmp_path: Path, whole: Sequence[Record], left: Sequence[Record], **fields: Any) -> dict[str, Any]:
    """The `diff` row for a copy with all of these records and one with fewer, without a checkpoint of the cleaner."""
    a = write(tmp_path / "a" / "t-0", packed(whole, **fields), base=0)
    b = write(tmp_path / "b" / "t-0", packed(left, **fields), base=0)
    row, findings = compared(a, b)
    mirrored, _ = compared(b, a)
    assert findings == [] and mirrored["a"]["missing"] == row["b"]["missing"]
    end = left[-1].offset // 4 * 4 + 4
    assert row["b"]["records_missing"] == sum(each.offset < end for each in whole) - len(left)
    return row


@pytest.mark.parametrize("codec", [L.NONE, L.LZ4])
def test_gap_without_a_later_record_of_its_key_is_a_loss(tmp_path: Path, codec: int) -> None:
    whole = [keyed(at, b"k%d" % (at % 5)) for at in range(40)]
    last_of_each = [record for record in whole if record.offset >= 35]
    cleaned = [record for record in whole[:20] if record.offset % 3] + whole[20:]
    row = gaps(tmp_path / "cleaned", whole, cleaned, codec=codec)
    assert (row["verdict"], row["b"]["missing"], row["b"]["records_lost"]) == ("compacted", [], 0)
    row = gaps(
        tmp_path / "lost",
        whole,
        [*whole[:8], *whole[12:33], *last_of_each[:2], *last_of_each[3:]],
        codec=codec,
    )
    assert (row["verdict"], row["b"]["missing"], row["b"]["records_lost"]) == ("missing", [[37, 37]], 1)
    assert row["b"]["cleaned"] == [[8, 11], [33, 34]]


def test_later_record_explains_a_gap_only_in_the_same_copy(tmp_path: Path) -> None:
    """The other copy has the later record beyond the end of this one, so no cleaning of this copy can have seen it."""
    whole = [keyed(at, b"k%d" % (at if at < 8 else at - 8)) for at in range(16)]
    row = gaps(tmp_path, whole, [record for record in whole[:8] if record.offset != 2])
    assert (row["verdict"], row["b"]["missing"]) == ("missing", [[2, 2]])


def test_deleted_key_counts_as_cleaned(tmp_path: Path) -> None:
    """Value and tombstone are gone. The tombstone does not explain the loss of a later value."""
    whole = [keyed(at, b"k%d" % at) for at in range(20)]
    whole[3], whole[9] = keyed(3, b"gone"), keyed(9, b"gone", None)
    left = [record for record in whole if record.key != b"gone"]
    row = gaps(tmp_path / "gone", whole, left)
    assert (row["verdict"], row["b"]["cleaned"]) == ("compacted", [[3, 3], [9, 9]])
    whole[12] = keyed(12, b"gone")
    row = gaps(tmp_path / "back", whole, [record for record in whole if record.key != b"gone"])
    assert (row["verdict"], row["b"]["missing"], row["b"]["cleaned"]) == (
        "missing",
        [[12, 12]],
        [[3, 3], [9, 9]],
    )


def test_missing_keyless_records_are_cleaned_only_in_a_cleaned_copy(tmp_path: Path) -> None:
    whole = [keyed(at, None if at in (5, 6) else b"k") for at in range(12)]
    left = [record for record in whole if record.key is not None]
    assert gaps(tmp_path / "alone", whole, left)["b"]["missing"] == [[5, 6]]
    a, b = tmp_path / "alone" / "a" / "t-0", tmp_path / "alone" / "b" / "t-0"
    checkpoint(b.parent, "cleaner-offset-checkpoint", "t-0", 12)
    row, _ = compared(a, b, log_dirs=True)
    assert (row["verdict"], row["b"]["missing"]) == ("compacted", [])


def test_full_key_map_is_restarted_with_the_same_result(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lots = random.Random(5)
    whole = [
        keyed(at, b"k%d" % lots.randrange(300), None if lots.random() < 0.2 else b"v") for at in range(2000)
    ]
    newest = {record.key: record.offset for record in whole}
    left = [record for record in whole if record.offset == newest[record.key] or lots.random() < 0.2]
    lost = {record.offset for record in left if record.value is not None and record.offset % 41 == 0}
    left = [record for record in left if record.offset not in lost]
    row = gaps(tmp_path / "one", whole, left)
    monkeypatch.setattr("kseg.inspection.copies.compare_copies.GapJudge", partial(GapJudge, map_slots=40))
    again = gaps(tmp_path / "several", whole, left)
    keys_left = {record.key: record.offset for record in left}
    tombstones = {each.key: each.offset for each in whole if each.value is None and each not in left}
    unexplained = {
        each.offset
        for each in whole
        if each not in left
        and max(keys_left.get(each.key, -1), tombstones.get(each.key, -1) + 1) <= each.offset
    }
    found = {at for first, last in row["b"]["missing"] for at in range(first, last + 1)}
    assert found == unexplained and any(whole[at].offset == newest[whole[at].key] for at in found)
    for side in ("cleaned", "missing", "records_lost"):
        assert row["b"][side] == again["b"][side]
