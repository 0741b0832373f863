"""Rows R of the acceptance list: what a broker's load makes of a log, its indexes and its leader epochs.

test_swap_files covers the leftovers of interrupted operations."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from fixtures.healthy import T0
from kseg.segment import layout as L
from kseg.segment.encoding.batch import encode_batch
from kseg.segment.model import NewBatch, Record
from kseg.segment.sidecar.leader_epochs import EpochHistory
from tests.support.load_helpers import (
    Loaded,
    damage,
    data,
    load,
    log_file,
    one_each,
    partition,
    remove,
    two_segments,
)
from tests.support.trees import content_of


def assert_lookups_lead_home(loaded: Loaded, base_offset: int) -> None:
    """Every offset is found at or after the position that its index lookup returns, and every index entry points to its batch."""
    index = loaded.offset_index(base_offset)
    starts = {
        batch.position: batch
        for batch in loaded.batches()
        if batch.position or batch.base_offset == base_offset
    }
    assert len(index) > 0
    for entry in index:
        assert starts[entry.position].last_offset == entry.offset
    for offset in range(base_offset, base_offset + 10):
        assert index.lookup(offset).offset <= offset


@pytest.mark.behaviour("R01")
def test_load_truncates_garbage_after_the_active_segment(tmp_path: Path) -> None:
    directory = two_segments(tmp_path)
    before = content_of(directory)
    with log_file(directory, 20).open("ab") as file:
        file.write(os.urandom(300))
    loaded = load(directory)
    assert loaded.repair.log_end_offset == 32
    assert loaded.files == before
    (removed,) = loaded.repair.removed
    assert (removed.file, removed.length, removed.batches) == (log_file(directory, 20).name, 300, 0)
    assert removed.position == len(before[log_file(directory, 20).name])


@pytest.mark.behaviour("R02")
@pytest.mark.parametrize("broken", [0, 3, 11])
def test_load_truncates_a_segment_at_its_first_bad_batch(tmp_path: Path, broken: int) -> None:
    directory = two_segments(tmp_path)
    size = len(encode_batch(data(20)))
    damage(log_file(directory, 20), broken * size + 70)
    loaded = load(directory)
    assert len(loaded.file(20, L.LOG_SUFFIX)) == broken * size
    assert loaded.repair.log_end_offset == 20 + broken
    (removed,) = loaded.repair.removed
    assert (removed.position, removed.length) == (broken * size, (12 - broken) * size)
    # the valid batches after the damage
    assert removed.batches == 11 - broken
    assert removed.cause == "bad-crc"
    assert loaded.findings == {"bad-crc"}


@pytest.mark.behaviour("R03")
@pytest.mark.parametrize("recovery_point", [32, 0])
def test_load_keeps_a_clean_log_unchanged(tmp_path: Path, recovery_point: int) -> None:
    directory = two_segments(tmp_path)
    loaded = load(directory, recovery_point=recovery_point)
    assert loaded.files == content_of(directory)
    assert not loaded.repair.why
    assert loaded.repair.log_end_offset == 32
    assert len(loaded.offset_index(0)) > 0


@pytest.mark.behaviour("R04")
@pytest.mark.parametrize("clean", [True, False])
def test_load_rebuilds_missing_indexes(tmp_path: Path, clean: bool) -> None:
    directory = two_segments(tmp_path)
    before = content_of(directory)
    remove(directory, L.OFFSET_INDEX_SUFFIX, L.TIME_INDEX_SUFFIX)
    loaded = load(directory, clean=clean)
    assert loaded.files == before
    assert_lookups_lead_home(loaded, 0)
    assert loaded.time_index(20).lookup(T0 + 31_000).offset == 31


@pytest.mark.behaviour("R05")
@pytest.mark.parametrize("clean", [True, False])
def test_time_index_of_magic_0_messages_is_empty(tmp_path: Path, clean: bool) -> None:
    old = [NewBatch(records=(Record(at, -1, b"k", b"v" * 90),), magic=L.MAGIC_V0) for at in range(9)]
    directory = partition(tmp_path, {0: old})
    remove(directory, L.TIME_INDEX_SUFFIX)
    loaded = load(directory, clean=clean)
    assert loaded.file(0, L.TIME_INDEX_SUFFIX) == b""
    assert loaded.repair.log_end_offset == 9


@pytest.mark.behaviour("R06")
def test_load_rebuilds_zero_length_indexes(tmp_path: Path) -> None:
    directory = two_segments(tmp_path)
    before = content_of(directory)
    for base in (0, 20):
        for suffix in (L.OFFSET_INDEX_SUFFIX, L.TIME_INDEX_SUFFIX):
            log_file(directory, base, suffix).write_bytes(b"  0  ")
    assert load(directory).files == before


@pytest.mark.behaviour("R07", "R08")
@pytest.mark.parametrize("suffix", [L.OFFSET_INDEX_SUFFIX, L.TIME_INDEX_SUFFIX])
def test_recovery_does_not_trust_an_index(tmp_path: Path, suffix: str) -> None:
    directory = two_segments(tmp_path)
    before = content_of(directory)
    path = log_file(directory, 0, suffix)
    path.write_bytes(os.urandom(path.stat().st_size))
    assert load(directory).files == before
    # a load after a clean shutdown trusts it
    believed = load(directory, clean=True)
    assert believed.file(0, suffix) == path.read_bytes()


@pytest.mark.behaviour("R09")
def test_load_removes_indexes_without_a_log(tmp_path: Path) -> None:
    directory = two_segments(tmp_path)
    before = content_of(directory)
    for base, suffix in ((5, L.OFFSET_INDEX_SUFFIX), (99, L.TIME_INDEX_SUFFIX), (7, L.TXN_INDEX_SUFFIX)):
        log_file(directory, base, suffix).write_bytes(b"")
    loaded = load(directory, clean=True)
    assert loaded.files == before
    assert "orphan-index" in loaded.findings
    assert set(loaded.repair.why) == {
        log_file(directory, *of).name for of in ((5, ".index"), (99, ".timeindex"), (7, ".txnindex"))
    }


@pytest.mark.behaviour("R11")
def test_load_keeps_an_empty_active_segment(tmp_path: Path) -> None:
    directory = partition(tmp_path, {0: [data(0, 5)], 5: []})
    loaded = load(directory)
    assert loaded.segments == [0, 5]
    assert loaded.repair.log_end_offset == 5


@pytest.mark.behaviour("R12")
@pytest.mark.parametrize("log_start", [0, 500])
def test_load_creates_one_segment_in_an_empty_directory(tmp_path: Path, log_start: int) -> None:
    (tmp_path / "metro-0").mkdir()
    loaded = load(tmp_path / "metro-0", log_start=log_start)
    assert loaded.segments == [log_start]
    assert (loaded.repair.log_start_offset, loaded.repair.log_end_offset) == (log_start, log_start)
    assert loaded.file(log_start, L.OFFSET_INDEX_SUFFIX) == loaded.file(log_start, L.TIME_INDEX_SUFFIX) == b""


@pytest.mark.behaviour("R13")
def test_log_that_ends_below_its_start_is_replaced_by_an_empty_one(tmp_path: Path) -> None:
    directory = partition(tmp_path, {**one_each(5), 5: []})
    log_file(directory, 1).write_bytes(b"asdf")
    loaded = load(directory, log_start=4)
    assert loaded.segments == [4]
    assert loaded.file(4, L.LOG_SUFFIX) == b""
    assert loaded.names(L.OFFSET_INDEX_SUFFIX) == loaded.names(L.TIME_INDEX_SUFFIX) == [4]
    assert (loaded.repair.log_start_offset, loaded.repair.log_end_offset) == (4, 4)
    assert "log-start-beyond-end" in loaded.findings
    assert {removed.file for removed in loaded.repair.removed} == {
        log_file(directory, base).name for base in range(5)
    }


@pytest.mark.behaviour("R14")
def test_no_snapshot_of_a_replaced_log_is_left(tmp_path: Path) -> None:
    directory = partition(tmp_path, one_each(10))
    log_file(directory, 1).write_bytes(b"asdf")
    loaded = load(directory, log_start=4)
    assert loaded.segments == [4]
    assert loaded.snapshots == []


@pytest.mark.behaviour("R15")
def test_clean_start_scans_nothing(tmp_path: Path) -> None:
    directory = two_segments(tmp_path)
    damage(log_file(directory, 0), 100)
    loaded = load(directory, clean=True)
    assert loaded.files == content_of(directory)
    assert loaded.repair.log_end_offset == loaded.repair.recovery_point == 32


@pytest.mark.behaviour("R32")
def test_load_trims_a_preallocated_segment(tmp_path: Path) -> None:
    directory = two_segments(tmp_path)
    before = content_of(directory)
    for suffix, size in ((L.LOG_SUFFIX, 9000), (L.OFFSET_INDEX_SUFFIX, 4000), (L.TIME_INDEX_SUFFIX, 3996)):
        path = log_file(directory, 20, suffix)
        path.write_bytes(path.read_bytes().ljust(size, b"\0"))
    loaded = load(directory, recovery_point=32)
    assert loaded.files == before
    assert loaded.repair.removed[0].cause == "segment-preallocated"


@pytest.mark.behaviour("R16")
def test_load_scans_only_segments_from_the_recovery_point_on(tmp_path: Path) -> None:
    directory = two_segments(tmp_path)
    damage(log_file(directory, 0), 100)
    damage(log_file(directory, 20), 100)
    loaded = load(directory, recovery_point=25)
    assert loaded.file(0, L.LOG_SUFFIX) == log_file(directory, 0).read_bytes()
    assert loaded.repair.log_end_offset == loaded.repair.recovery_point == 20


@pytest.mark.behaviour("R37", "R38")
def test_load_rebuilds_leader_epochs_from_the_batches(tmp_path: Path) -> None:
    batches = [data(at, epoch=epoch) for at, epoch in ((104, 0), (105, 0), (106, 1), (107, 1), (110, 2))]
    directory = partition(tmp_path, {104: batches})
    (directory / "leader-epoch-checkpoint").unlink()
    loaded = load(directory)
    assert loaded.epochs == [(0, 104), (1, 106), (2, 110)]
    assert "leader-epoch-file-missing" in loaded.findings


@pytest.mark.behaviour("R39", "R41", "R42")
def test_load_truncates_epochs_outside_the_log(tmp_path: Path) -> None:
    directory = partition(
        tmp_path, {base: [data(base, epoch=epoch)] for base, epoch in ((6, 2), (7, 2), (8, 3), (11, 4))}
    )
    assert load(directory).epochs == [(2, 6), (3, 8), (4, 11)]
    lengths = []
    for base in (11, 8, 7):
        log_file(directory, base).unlink()
        lengths.append(len(load(directory).epochs))
    assert lengths == [2, 1, 1]
    (directory / "leader-epoch-checkpoint").write_text("0\n3\n2 6\n3 8\n4 11\n")
    directory = two_segments(tmp_path / "other")
    (directory / "leader-epoch-checkpoint").write_text("0\n3\n2 6\n3 8\n4 11\n")
    assert load(directory, clean=True, log_start=9).epochs == [(3, 9), (4, 11)]
    assert load(directory, clean=True, log_start=500).epochs == []


@pytest.mark.behaviour("R40")
@pytest.mark.parametrize(
    ("known", "added", "expected"),
    [
        ([(2, 9)], (2, 11), [(2, 9)]),
        ([(2, 9)], (3, 9), [(3, 9)]),
        ([(2, 6)], (3, 5), [(3, 5)]),
        ([(1, 5), (2, 6)], (1, 7), [(1, 7)]),
    ],
)
def test_assigned_epoch_removes_contradicting_entries(
    known: list[tuple[int, int]], added: tuple[int, int], expected: list[tuple[int, int]]
) -> None:
    history = EpochHistory(known)
    history.assign(*added)
    assert list(history.entries) == expected


@pytest.mark.behaviour("R43")
def test_log_start_is_at_least_the_first_segment(tmp_path: Path) -> None:
    directory = partition(tmp_path, {5: [data(5)], 6: [data(6)]})
    assert load(directory, clean=True).repair.log_start_offset == 5
    assert load(directory, clean=True, log_start=6).repair.log_start_offset == 6


@pytest.mark.behaviour("R44")
def test_log_end_is_after_the_last_batch(tmp_path: Path) -> None:
    assert load(partition(tmp_path / "a", {7: []}), clean=True).repair.log_end_offset == 7
    directory = partition(tmp_path / "b", {7: [data(7, 3), data(20, 2)]})
    assert load(directory, clean=True).repair.log_end_offset == 22


def test_damage_removes_later_segments_only_if_the_index_exists(tmp_path: Path) -> None:
    """Fact sheet §6.3b: a segment that is recovered because its index is missing is truncated, and the later segments survive."""
    directory = two_segments(tmp_path)
    damage(log_file(directory, 0), 700)
    cut = load(directory)
    assert cut.segments == [0]
    whole = next(removed for removed in cut.repair.removed if removed.file == log_file(directory, 20).name)
    assert (whole.batches, whole.first_offset, whole.last_offset) == (12, 20, 31)
    log_file(directory, 0, L.OFFSET_INDEX_SUFFIX).unlink()
    hole = load(directory)
    assert hole.segments == [0, 20]
    assert hole.repair.log_end_offset == 32
    assert hole.file(0, L.LOG_SUFFIX) == cut.file(0, L.LOG_SUFFIX)


def test_offsets_out_of_order_empty_the_segment(tmp_path: Path) -> None:
    directory = partition(
        tmp_path, {0: [data(0, 2, size=90), data(2, 2, size=300)], 30: [data(30, size=300)]}
    )
    low = encode_batch(data(1, size=400))
    with log_file(directory, 0).open("ab") as file:
        file.write(low)
    loaded = load(directory)
    assert loaded.segments == [0]
    assert loaded.file(0, L.LOG_SUFFIX) == b""
    assert loaded.repair.log_end_offset == 0
    assert "offset-not-monotonic" in loaded.findings
    log_file(directory, 0, L.OFFSET_INDEX_SUFFIX).unlink()
    load_failure = load(directory).repair.load_failure
    assert load_failure is not None
    assert load_failure.kafka_exception == "InvalidOffsetException"


def test_failed_load_leaves_the_directory_unchanged(tmp_path: Path) -> None:
    directory = two_segments(tmp_path)
    log_file(directory, 20).write_bytes(log_file(directory, 20).read_bytes() + bytes(40))
    loaded = load(directory, clean=True)
    assert loaded.repair.load_failure is not None
    assert loaded.repair.load_failure.kafka_exception == "CorruptRecordException"
    assert loaded.files == content_of(directory)
    assert not loaded.repair.why


def test_rebuild_derives_all_side_files_from_the_log_alone(tmp_path: Path) -> None:
    directory = two_segments(tmp_path)
    before = content_of(directory)
    for name in before:
        if not name.endswith(".log"):
            (directory / name).write_bytes(b"nonsense")
    loaded = load(directory, clean=True, rebuild=True)
    assert loaded.repair.load_failure is None
    assert loaded.files == before
    assert not loaded.findings
    assert loaded.repair.why[log_file(directory, 20, L.OFFSET_INDEX_SUFFIX).name] == "rebuilt from the log"


def test_directory_marked_for_deletion_is_not_recovered(tmp_path: Path) -> None:
    directory = two_segments(tmp_path)
    damage(log_file(directory, 0), 100)
    doomed = directory.rename(tmp_path / f"metro-0.{'ab' * 16}-delete")
    loaded = load(doomed)
    assert loaded.file(0, L.LOG_SUFFIX) == log_file(doomed, 0).read_bytes()
    assert loaded.segments == [0, 20]
    assert loaded.repair.log_end_offset == 0


def test_log_end_after_the_greatest_offset_overflows_below_the_start(tmp_path: Path) -> None:
    """The CRC does not cover the base offset. The offset after the greatest one overflows as a Java long, so the log ends below its
    start."""
    directory = partition(tmp_path, {0: [data(0), data(1)]})
    path = log_file(directory, 0)
    content = bytearray(path.read_bytes())
    at = len(encode_batch(data(0)))
    content[at : at + 8] = (2**63 - 1).to_bytes(8, "big")
    path.write_bytes(content)
    loaded = load(directory, clean=True)
    assert loaded.segments == [0]
    assert (loaded.file(0, L.LOG_SUFFIX), loaded.repair.log_end_offset) == (b"", 0)
    assert "log-start-beyond-end" in loaded.findings
