"""Leftovers of interrupted cleanings, splits and deletions, and logs that a broker cannot have as one segment."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from fixtures import diseases, side_diseases
from fixtures.diseases import batch_spans, put
from kseg.recovery.salvage import segment_layout
from kseg.recovery.salvage.logs import FoundLog, Logs
from kseg.recovery.salvage.valid_runs import ValidRunCollector
from kseg.segment.encoding.batch import encode_batch
from kseg.segment.model import NewBatch, Record
from kseg.segment.scanning.scan import Scanner
from tests.support.salvage_cases import MIDDLE, NEXT, log
from tests.support.salvage_helpers import all_batches, batches, logs, offsets, plan, salvaged, write_repaired


@pytest.fixture
def damaged(partition: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(partition, tmp_path / "metro-0"))


def cleaned(source: Path, target: Path) -> bytes:
    """A log as a cleaner could leave it: every second batch."""
    spans = batch_spans(source)
    data = source.read_bytes()
    kept = b"".join(data[at : at + size] for at, size in spans[::2])
    target.write_bytes(kept)
    return kept


@pytest.mark.evidence("swap-file")
def test_salvage_completes_a_finished_swap(damaged: Path, tmp_path: Path) -> None:
    kept = cleaned(log(damaged), damaged / f"{MIDDLE}.log.swap")
    repair, _ = salvaged(damaged, tmp_path / "result")
    result = tmp_path / "result" / "metro-0"
    assert log(result).read_bytes() == kept
    assert not list(result.glob("*.swap"))
    replaced = [entry for entry in repair.removed if entry.cause == "leftover-swap"]
    assert [(entry.file, entry.first_offset) for entry in replaced] == [(f"{MIDDLE}.log", None)]


def test_salvage_completes_a_swap_that_the_cleaner_emptied(damaged: Path, tmp_path: Path) -> None:
    """The broker was killed after it renamed the old segment and before the new, empty one got its name."""
    first = f"{0:020}"
    for suffix in (".log", ".index", ".timeindex"):
        (damaged / f"{first}{suffix}").unlink()
        (damaged / f"{first}{suffix}.swap").write_bytes(b"")
    (damaged / f"{first}.txnindex").unlink(missing_ok=True)
    before = all_batches(damaged)
    repair, _ = salvaged(damaged, tmp_path / "result")
    result = tmp_path / "result" / "metro-0"
    assert (result / f"{first}.log").read_bytes() == b""
    assert all_batches(result) == before and repair.removed == ()
    assert not list(result.glob("*.swap"))


def test_swap_without_a_valid_batch_replaces_nothing(damaged: Path, tmp_path: Path) -> None:
    (damaged / f"{MIDDLE}.log.swap").write_bytes(b"\xff" * 100)
    before = all_batches(damaged)
    repair, _ = salvaged(damaged, tmp_path / "result")
    assert all_batches(tmp_path / "result" / "metro-0") == before and repair.removed == ()


def test_salvage_reports_a_log_that_the_cleaner_emptied(damaged: Path, tmp_path: Path) -> None:
    """An empty replacement is as valid as any other. The list of removed files names the segment that it replaces."""
    (damaged / f"{MIDDLE}.log.swap").write_bytes(b"")
    size = log(damaged).stat().st_size
    repair, _ = salvaged(damaged, tmp_path / "result")
    assert [(entry.file, entry.length) for entry in repair.removed] == [(f"{MIDDLE}.log", size)]


def test_swap_replaces_all_segments_in_its_offset_range(damaged: Path, tmp_path: Path) -> None:
    """A replacement extends to its last offset, and segments that start within that range are replaced."""
    both = log(damaged).read_bytes() + log(damaged, NEXT).read_bytes()
    (damaged / f"{MIDDLE}.log.swap").write_bytes(both)
    before = all_batches(damaged)
    salvaged(damaged, tmp_path / "result")
    result = tmp_path / "result" / "metro-0"
    assert [file.stem for file in logs(result)] == ["0" * 20, MIDDLE, "00000000000000000297"]
    assert all_batches(result) == before


@pytest.mark.evidence("cleaned-file", "swap-file")
def test_salvage_drops_an_unfinished_swap(partition: Path, damaged: Path, tmp_path: Path) -> None:
    """A `.cleaned` file with a lower offset shows that the split was not finished (fact sheet §6.2, step 2)."""
    cleaned(log(damaged), damaged / f"{MIDDLE}.log.swap")
    (damaged / f"{0:020d}.index.cleaned").write_bytes(b"")
    repair, _ = salvaged(damaged, tmp_path / "result")
    assert all_batches(tmp_path / "result" / "metro-0") == all_batches(partition)
    assert not [name for name in repair.image if name.endswith((".swap", ".cleaned"))]


@pytest.mark.evidence("swap-file")
def test_damaged_swap_is_dropped_for_the_original_segment(
    partition: Path, damaged: Path, tmp_path: Path
) -> None:
    swap = damaged / f"{MIDDLE}.log.swap"
    cleaned(log(damaged), swap)
    put(swap, 100, b"\xff" * 50)
    salvaged(damaged, tmp_path / "result")
    assert all_batches(tmp_path / "result" / "metro-0") == all_batches(partition)


@pytest.mark.evidence("swap-file")
@pytest.mark.parametrize("stem", ["0" * 20, MIDDLE, NEXT])
def test_swap_of_another_partition_replaces_nothing(
    partition: Path, damaged: Path, tmp_path: Path, stem: str
) -> None:
    """The batches of the replacement are valid, but none is in the segments that it would replace, and a cleaning creates no new
    batches."""
    content = b"".join(
        encode_batch(NewBatch(records=tuple(Record(at + n, 1_690_000_000_000, b"x", b"y") for n in range(5))))
        for at in range(0, 300, 5)
    )
    (damaged / f"{stem}.log.swap").write_bytes(content)
    repair, _ = salvaged(damaged, tmp_path / "result")
    assert all_batches(tmp_path / "result" / "metro-0") == all_batches(partition)
    assert repair.removed == ()
    (reported,) = [finding for finding in repair.findings if finding.id == "leftover-swap"]
    assert reported.path.endswith(".log.swap") and " is removed" in reported.message


def test_log_without_time_indexes_gets_all_or_none(tmp_path: Path) -> None:
    """Brokers before 0.10 wrote no time indexes. If one segment is repaired, a second salvage finds nothing to add."""
    old = tmp_path / "old-0"
    old.mkdir()
    for base in (0, 20, 40):
        content = [
            encode_batch(NewBatch(records=(Record(base + at, -1, b"k", b"v%d" % at),), magic=0))
            for at in range(20)
        ]
        if base == 20:
            content[7] = content[7][:-1] + b"\xff"
        (old / f"{base:020d}.log").write_bytes(b"".join(content))
        (old / f"{base:020d}.index").write_bytes(b"")
    repair, _ = salvaged(old, tmp_path / "result")
    result = tmp_path / "result" / "old-0"
    assert len(list(result.glob("*.timeindex"))) in (0, 3)
    assert [Path(removed.file).stem for removed in repair.removed] == [f"{20:020d}"]


@pytest.mark.parametrize("is_finished", [True, False])
def test_swap_without_its_original_segment_is_kept(damaged: Path, tmp_path: Path, is_finished: bool) -> None:
    kept = cleaned(log(damaged), damaged / f"{MIDDLE}.log.swap")
    put(damaged / f"{MIDDLE}.log.swap", len(kept), b"\x01" * 20)
    side_diseases.segment_gap(log(damaged))
    (damaged / f"{MIDDLE}.log.swap").write_bytes(kept + b"\x01" * 20)
    if not is_finished:
        (damaged / f"{0:020d}.index.cleaned").write_bytes(b"")
    salvaged(damaged, tmp_path / "result")
    assert log(tmp_path / "result" / "metro-0").read_bytes() == kept


@pytest.mark.evidence("deleted-file")
def test_files_marked_deleted_stay_and_an_only_copy_is_named(damaged: Path) -> None:
    """A broker's recovery has truncated the log and left `.deleted` files. A repair keeps them as well."""
    last = logs(damaged)[-1]
    last.rename(last.with_name(last.name + ".deleted"))
    side_diseases.leftover_deleted(log(damaged))
    marked = {file.name for file in damaged.glob("*.deleted")}
    diseases.bad_crc(logs(damaged)[0])
    repair = plan(damaged)
    assert repair.removed
    assert {name for name in repair.image if name.endswith(".deleted")} == marked
    assert {removed.file for removed in repair.removed}.isdisjoint(marked)
    reported = {Path(found.path).name: found for found in repair.findings if found.id == "leftover-deleted"}
    assert reported[f"{last.name}.deleted"].numbers["only_copy"] is True
    assert (reported[f"{last.name}.deleted"].first_offset, reported[f"{last.name}.deleted"].last_offset) == (
        297,
        329,
    )
    assert "--unmark" in reported[f"{last.name}.deleted"].message
    assert reported[f"{MIDDLE}.log.deleted"].numbers["only_copy"] is False
    assert repair.log_end_offset == 297


@pytest.mark.evidence("deleted-file")
def test_files_marked_deleted_are_no_reason_for_a_repair(damaged: Path) -> None:
    """A broker that is stopped cleanly leaves these files, and deletes them at its next start."""
    side_diseases.leftover_deleted(log(damaged))
    marked = {file.name for file in damaged.glob("*.deleted")}
    repair = plan(damaged)
    assert marked and {name for name in repair.image if name.endswith(".deleted")} == marked
    assert not repair.why and not repair.removed
    assert {finding.severity for finding in repair.findings if finding.id == "leftover-deleted"} == {"info"}


def test_deleted_metadata_snapshot_is_not_a_leftover(damaged: Path) -> None:
    name = f"{5:020d}-{1:010d}.checkpoint.deleted"
    (damaged / name).write_bytes(b"")
    assert name in plan(damaged).image


def test_misnamed_segment_files_get_kafkas_names(damaged: Path, tmp_path: Path) -> None:
    log(damaged).rename(damaged / "102.log")
    (damaged / f"{MIDDLE}.index").rename(damaged / "102.index")
    salvaged(damaged, tmp_path / "result")
    result = tmp_path / "result" / "metro-0"
    assert not (result / "102.log").exists()
    assert not (result / "102.index").exists()
    assert log(result).exists()


def far_away(partition: Path, *positions: int) -> Path:
    """A partition of one segment with batches at these offsets."""
    partition.mkdir()
    data = b"".join(
        encode_batch(
            NewBatch(records=(Record(at, 1_700_000_000_000 + at, b"k", b"v"), Record(at + 1, 0, b"k", b"w")))
        )
        for at in positions
    )
    (partition / f"{positions[0]:020d}.log").write_bytes(data)
    return partition


def test_segment_with_an_offset_overflow_is_split(tmp_path: Path) -> None:
    far = far_away(tmp_path / "far-0", 0, 10, 2**31 + 5, 2**31 + 9, 2**33)
    repair, _ = salvaged(far, tmp_path / "result")
    result = tmp_path / "result" / "far-0"
    assert [int(file.stem) for file in logs(result)] == [0, 2**31 + 5, 2**33]
    assert all_batches(result) == [batch for _, batch in batches(logs(far)[0])]
    assert repair.removed == ()


def test_too_large_segment_is_split_between_batches(tmp_path: Path, damaged: Path) -> None:
    file = log(damaged)
    found = FoundLog(file.name, file.name, str(file), 102, file.stat().st_size)
    collector = ValidRunCollector(0, found, None)
    for block in Scanner(file.read_bytes(), 102).blocks():
        assert not hasattr(block, "kind")
        list(collector.take(block, 0, block.count))
    with Logs([found]) as opened:
        parts = segment_layout.arrange(opened, collector.valid_runs, [], max_bytes=1000)
    assert all(part.size_bytes <= 1000 for part in parts)
    assert sum(part.size_bytes for part in parts) == file.stat().st_size
    firsts = {offsets(batch)[0] for _, batch in batches(file)}
    assert parts[0].base_offset == 102
    assert {part.base_offset for part in parts} <= firsts
    assert [part.origin for part in parts] == [0] + [None] * (len(parts) - 1)


def test_offsets_lost_between_damaged_segments_are_reported(damaged: Path, tmp_path: Path) -> None:
    diseases.torn_tail(log(damaged))
    side_diseases.segment_gap(log(damaged, NEXT))
    repair = plan(damaged)
    (removed,) = repair.removed
    # the torn header tells what its batch contained; the missing segment after it is a gap, not damage
    assert (removed.first_offset, removed.last_offset) == (195, 197)
    assert all_batches(write_repaired(repair, damaged, tmp_path / "out"))
