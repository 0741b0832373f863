"""Rows R of the acceptance list: leftovers of cleanings, deletions and splits, and segments that have to be split."""

from __future__ import annotations

from pathlib import Path

import pytest

from kseg.segment import layout as L
from kseg.segment.encoding.batch import encode_batch
from tests.support.load_helpers import apply, data, load, log_file, partition, remove, two_segments
from tests.support.trees import content_of

FAR = L.INT32_MAX


@pytest.mark.behaviour("R10", "R22")
def test_load_removes_files_marked_for_deletion(tmp_path: Path) -> None:
    directory = two_segments(tmp_path)
    before = content_of(directory)
    for name in list(before):
        if name.startswith("0" * 20):
            (directory / f"{name}.deleted").write_bytes(before[name])
    (directory / f"{0:020d}-{0:010d}.checkpoint.deleted").write_bytes(b"kept")
    loaded = load(directory, clean=True)
    kept = f"{0:020d}-{0:010d}.checkpoint.deleted"
    assert loaded.files == {**before, kept: b"kept"}
    # they were not part of the log
    assert not loaded.repair.removed


@pytest.mark.behaviour("R17")
def test_load_drops_an_unfinished_cleaning(tmp_path: Path) -> None:
    directory = two_segments(tmp_path)
    before = content_of(directory)
    for suffix in (L.LOG_SUFFIX, L.OFFSET_INDEX_SUFFIX, L.TIME_INDEX_SUFFIX):
        log_file(directory, 0, suffix + L.CLEANED_SUFFIX).write_bytes(b"part of it")
    assert load(directory).files == before


@pytest.mark.behaviour("R18", "R25")
def test_load_drops_swap_files_above_an_unfinished_one(tmp_path: Path) -> None:
    directory = two_segments(tmp_path)
    before = content_of(directory)
    log_file(directory, 20, ".log.swap").write_bytes(before[log_file(directory, 20).name])
    log_file(directory, 20, ".index.swap").write_bytes(b"")
    log_file(directory, 0, ".log.cleaned").write_bytes(before[log_file(directory, 0).name])
    loaded = load(directory)
    assert loaded.files == before
    assert loaded.findings == {"leftover-swap", "leftover-cleaned"}


def cleaned(directory: Path) -> bytes:
    """Write a cleaned copy of segment 0, with its first three batches and the last one, as a cleaner may leave it."""
    kept = [data(offset, 2) for offset in (0, 2, 4, 18)]
    content = b"".join(map(encode_batch, kept))
    log_file(directory, 0, ".log.swap").write_bytes(content)
    for suffix in (".index.swap", ".timeindex.swap"):
        log_file(directory, 0, suffix).write_bytes(b"")
    return content


@pytest.mark.behaviour("R19", "R26")
def test_load_completes_a_finished_swap(tmp_path: Path) -> None:
    directory = two_segments(tmp_path)
    before = content_of(directory)
    content = cleaned(directory)
    loaded = load(directory)
    assert loaded.file(0, L.LOG_SUFFIX) == content
    assert loaded.segments == [0, 20]
    assert loaded.file(20, L.LOG_SUFFIX) == before[log_file(directory, 20).name]
    assert not [name for name in loaded.files if name.endswith(".swap")]
    (removed,) = loaded.repair.removed
    assert (removed.cause, removed.first_offset) == ("leftover-swap", None)


@pytest.mark.behaviour("R20", "R27")
def test_load_completes_a_swap_whose_original_is_marked_deleted(tmp_path: Path) -> None:
    directory = two_segments(tmp_path)
    content = cleaned(directory)
    for suffix in (L.LOG_SUFFIX, L.OFFSET_INDEX_SUFFIX, L.TIME_INDEX_SUFFIX):
        path = log_file(directory, 0, suffix)
        path.rename(f"{path}.deleted")
    loaded = load(directory)
    assert loaded.file(0, L.LOG_SUFFIX) == content
    assert loaded.segments == [0, 20]


@pytest.mark.behaviour("R21", "R28")
def test_load_renames_the_last_index_of_a_swap(tmp_path: Path) -> None:
    directory = two_segments(tmp_path)
    before = content_of(directory)
    path = log_file(directory, 20, L.TIME_INDEX_SUFFIX)
    path.rename(f"{path}.swap")
    assert load(directory, clean=True).files == before


@pytest.mark.behaviour("R23")
def test_load_splits_a_segment_with_an_offset_overflow(tmp_path: Path) -> None:
    directory = partition(tmp_path, {0: [data(0), data(1)], FAR + 1: [data(FAR + 1)]})
    whole = joined(directory, 0, FAR + 1)
    # without recovery, nothing checks for the overflow
    assert load(directory, clean=True).segments == [0]
    loaded = load(directory)
    assert loaded.segments == [0, FAR + 1]
    assert loaded.file(0, L.LOG_SUFFIX) + loaded.file(FAR + 1, L.LOG_SUFFIX) == whole
    assert "offset-overflow" in loaded.findings
    assert not loaded.repair.removed
    apply(directory, loaded)
    # and it is not split again
    assert load(directory).files == loaded.files


def joined(directory: Path, *bases: int) -> bytes:
    """Join the logs of some segments into one, without side files."""
    content = b"".join(log_file(directory, base).read_bytes() for base in bases)
    for base in bases[1:]:
        log_file(directory, base).unlink()
    log_file(directory, bases[0]).write_bytes(content)
    remove(
        directory,
        *(f"{base:020d}{suffix}" for base in bases for suffix in (".index", ".timeindex", ".snapshot")),
    )
    log_file(directory, bases[0], L.OFFSET_INDEX_SUFFIX).write_bytes(b"")
    log_file(directory, bases[0], L.TIME_INDEX_SUFFIX).write_bytes(b"")
    return content


@pytest.mark.behaviour("R24")
def test_load_repeats_an_unfinished_split(tmp_path: Path) -> None:
    directory = partition(tmp_path, {0: [data(0), data(1)], FAR + 1: [data(FAR + 1)]})
    joined(directory, 0, FAR + 1)
    expected = load(directory).files
    for base in (0, FAR + 1):
        log_file(directory, base, ".log.cleaned").write_bytes(b"")
    assert load(directory).files == expected


@pytest.mark.behaviour("R29", "R30", "R31")
@pytest.mark.parametrize("first", [FAR + 2, FAR - 1], ids=["base too far", "only the last offset too far"])
def test_split_gives_a_segment_far_above_its_base_a_new_base(tmp_path: Path, first: int) -> None:
    directory = partition(tmp_path, {first: [data(first, 4)]})
    for suffix in (L.LOG_SUFFIX, L.OFFSET_INDEX_SUFFIX, L.TIME_INDEX_SUFFIX):
        log_file(directory, first, suffix).rename(log_file(directory, 0, suffix))
    remove(directory, L.SNAPSHOT_SUFFIX)
    loaded = load(directory)
    assert loaded.segments == [first]
    assert loaded.repair.log_end_offset == first + 4
    assert loaded.repair.log_start_offset == first


def test_missing_index_of_a_swap_is_created_preallocated_and_trusted(tmp_path: Path) -> None:
    """A broker opens a `.log.swap` before it renames it. That creates the index, which the broker then trusts."""
    directory = two_segments(tmp_path)
    cleaned(directory)
    log_file(directory, 0, ".index.swap").unlink()
    loaded = load(directory, clean=True)
    assert loaded.file(0, L.OFFSET_INDEX_SUFFIX) == bytes(4000)


def test_split_during_recovery_leaves_the_old_log_beside_the_new_one(
    tmp_path: Path,
) -> None:
    """A segment without an index is recovered before it is added to the log, so the split does not delete it. By then it has an index and
    is trusted (Kafka: LogLoader.loadSegmentFiles, LocalLog.replaceSegments)."""
    directory = partition(tmp_path, {FAR + 2: [data(FAR + 2, 4)]})
    log_file(directory, FAR + 2).rename(log_file(directory, 0))
    remove(directory, L.OFFSET_INDEX_SUFFIX, L.TIME_INDEX_SUFFIX, L.SNAPSHOT_SUFFIX)
    loaded = load(directory, clean=True)
    assert loaded.segments == [0, FAR + 2]
    assert loaded.file(0, L.LOG_SUFFIX) == loaded.file(FAR + 2, L.LOG_SUFFIX)
    # recovery meets the overflow again, now with the segment in the log
    assert load(directory).segments == [FAR + 2]


def test_empty_swap_empties_its_segment(tmp_path: Path) -> None:
    directory = two_segments(tmp_path)
    log_file(directory, 20, ".log.swap").write_bytes(b"")
    loaded = load(directory)
    assert loaded.segments == [0, 20]
    assert loaded.repair.log_end_offset == 20
    assert [removed.file for removed in loaded.repair.removed] == [log_file(directory, 20).name]
