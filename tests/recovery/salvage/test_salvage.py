"""Salvage: in every case the result is a valid partition with every valid batch, and lists what was lost."""

from __future__ import annotations

import itertools
import shutil
import struct
from collections.abc import Iterator
from pathlib import Path

import pytest

from fixtures import diseases, healthy
from fixtures.diseases import batch_spans, put
from kseg.change.plan.content import Fresh
from kseg.change.plan.directory_image import DirectoryImage, steps_between
from kseg.change.plan.inputs import inputs_of
from kseg.change.plan.steps import Rename, Truncate
from kseg.recovery.policy import BrokerState, Repair
from kseg.segment.sidecar.snapshot import decode_snapshot
from tests.support import salvage_cases as cases
from tests.support.salvage_cases import CASES, LAST, MIDDLE, NEXT, log
from tests.support.salvage_helpers import (
    all_batches,
    is_valid,
    logs,
    needs_no_repair,
    offsets,
    plan,
    salvaged,
    write_repaired,
)


@pytest.fixture
def damaged(partition: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(partition, tmp_path / "metro-0"))


def kept(partition: Path, repair: Repair, place: Path) -> list[bytes]:
    return all_batches(write_repaired(repair, partition, place / "kept"))


def size_of_logs(partition: Path) -> int:
    return sum(file.stat().st_size for file in logs(partition))


# The file has other offsets than the batch had, and salvage corrects the header.
_REPAIRED = {
    "altered_base_offset",
    "altered_leader_epoch",
    "negative_offset",
    "overwritten_offset",
    "magic_3",
}


# The files contain valid batches that the healthy log does not have.
_OTHER_RECORDS = {
    "overlapping_newer_leader",
    "wrong_record_count",
    "wrong_max_timestamp",
    "undecodable_batch",
    "unknown_attributes",
}


@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
def test_salvaged_partition_is_valid_with_every_valid_batch(
    partition: Path, damaged: Path, tmp_path: Path, name: str
) -> None:
    CASES[name](damaged)
    repair, _ = salvaged(damaged, tmp_path / "result")
    stays = kept(damaged, repair, tmp_path)
    spans = [offsets(batch) for batch in stays]
    assert all(before[1] < after[0] for before, after in itertools.pairwise(spans))
    if not name.startswith("leftover"):
        assert size_of_logs(damaged) == sum(map(len, stays)) + repair.bytes_lost
    healthy_batches = set(all_batches(partition))
    if name in _REPAIRED:
        assert set(stays) == healthy_batches
    elif name not in _OTHER_RECORDS:
        assert set(stays) <= healthy_batches


@pytest.mark.evidence("batch-invalid")
@pytest.mark.parametrize("name", CASES)
def test_every_valid_batch_survives_salvage(
    partition: Path, damaged: Path, tmp_path: Path, name: str
) -> None:
    """Every batch of the original log whose bytes are still in one of the logs is kept."""
    CASES[name](damaged)
    there = b"\xff".join(file.read_bytes() for file in logs(damaged))
    stays = set(kept(damaged, plan(damaged), tmp_path))
    survivors = {batch for batch in all_batches(partition) if batch in there}
    # the newer leader's batches replace these
    if name == "overlapping_newer_leader":
        survivors -= {batch for batch in survivors if offsets(batch)[0] >= 324}
    assert survivors <= stays


def test_salvage_of_an_undamaged_partition_plans_nothing(partition: Path) -> None:
    repair = plan(partition)
    assert needs_no_repair(partition, repair)
    assert (repair.log_start_offset, repair.log_end_offset, repair.last_stable_offset) == (0, 330, 324)
    assert repair.recovery_point == 330
    assert repair.removed == ()
    assert {finding.severity for finding in repair.findings} == {"info"}


def test_removed_bytes_are_listed_with_offsets_and_batches(damaged: Path) -> None:
    file = log(damaged)
    spans = batch_spans(file)
    diseases.torn_tail(file)
    put(file, spans[4][0] + 60, b"\xff")
    put(file, spans[5][0], bytes(spans[5][1]))
    repair = plan(damaged)
    first, both, last = (struct.unpack_from(">q", file.read_bytes(), spans[at][0])[0] for at in (4, 6, -1))
    assert [(r.cause, r.position, r.first_offset, r.last_offset, r.batches) for r in repair.removed] == [
        ("bad-crc", spans[4][0], first, both - 1, 0),
        ("torn-tail", spans[-1][0], last, 197, 0),
    ]
    assert repair.removed[0].length == spans[4][1] + spans[5][1]


def test_torn_log_is_truncated_in_place(damaged: Path) -> None:
    diseases.torn_tail(log(damaged, LAST))
    repair = plan(damaged)
    steps = steps_between(DirectoryImage.of(inputs_of(str(damaged))), repair.image, repair.why)
    assert [step.name for step in steps if isinstance(step, Truncate)] == [f"{LAST}.log"]
    assert not any(isinstance(piece, Fresh) for piece in repair.image.content(f"{LAST}.log"))
    assert repair.log_end_offset == 327
    (removed,) = repair.removed
    # known from the snapshot at the former end
    assert (removed.first_offset, removed.last_offset) == (327, 329)


def test_segment_under_a_wrong_name_is_renamed(damaged: Path) -> None:
    cases.move(damaged, MIDDLE, 5000)
    repair = plan(damaged)
    steps = steps_between(DirectoryImage.of(inputs_of(str(damaged))), repair.image, repair.why)
    renames = [step for step in steps if isinstance(step, Rename)]
    assert [(step.name, step.new_name) for step in renames] == [(f"{5000:020d}.log", f"{MIDDLE}.log")]
    assert repair.removed == ()
    assert repair.log_end_offset == 330


def test_corrected_header_field_is_the_only_new_data_of_a_log(partition: Path, damaged: Path) -> None:
    position, _ = batch_spans(log(damaged))[4]
    put(log(damaged), position, b"\x00\x00\x13\x37\x42\x42\x42\x42")
    repair = plan(damaged)
    fresh = [piece for piece in repair.image.content(f"{MIDDLE}.log") if isinstance(piece, Fresh)]
    assert [piece.data for piece in fresh] == [log(partition).read_bytes()[position : position + 17]]
    (finding,) = (found for found in repair.findings if found.id == "altered-base-offset")
    assert finding.numbers["repaired"] is True


@pytest.mark.parametrize(
    ("epoch", "stem", "winner", "rule"),
    [
        (2, LAST, "log", "leader-epoch"),
        (7, LAST, "other", "leader-epoch"),
        (5, NEXT, "log", "own-segment"),
        (5, LAST, "log", "first-copy"),
    ],
)
def test_salvage_chooses_between_copies_of_an_offset(
    partition: Path, damaged: Path, tmp_path: Path, epoch: int, stem: str, winner: str, rule: str
) -> None:
    """The last six offsets of the log have epoch 5, and other batches claim them as well."""
    other = cases.other_leader(epoch)
    cases.other_leader_wrote(epoch, stem)(damaged)
    repair = plan(damaged)
    result = b"".join(kept(damaged, repair, tmp_path))
    assert (other in result) == (winner == "other")
    resolved = [found for found in repair.findings if found.id == "overlap-resolved"]
    assert {found.numbers["rule"] for found in resolved} == {rule}
    assert sum(removed.batches for removed in repair.removed) == 2
    assert all(removed.first_offset is None for removed in repair.removed)
    assert (result == b"".join(all_batches(partition))) == (winner == "log")


def test_first_of_equal_copies_is_kept(damaged: Path) -> None:
    cases.duplicated_tail(damaged)
    end = sum(size for _, size in batch_spans(log(damaged, LAST))[:-3])
    repair = plan(damaged)
    (removed,) = repair.removed
    assert (removed.position, removed.batches, removed.first_offset) == (end, 3, None)
    assert removed.length == log(damaged, LAST).stat().st_size - end
    (resolved,) = (found for found in repair.findings if found.id == "overlap-resolved")
    assert resolved.numbers["rule"] == "equal-copy"
    assert repair.image.size_bytes(f"{LAST}.log") == end


def confidences(repair: Repair) -> Iterator[tuple[object, object]]:
    for finding in repair.findings:
        if "confidence" in finding.numbers:
            yield finding.numbers["confidence"], finding.numbers["evidence"]


def test_confidence_in_a_consistent_batch_after_damage_is_high(damaged: Path) -> None:
    diseases.bad_crc(log(damaged), 4)
    assert list(confidences(plan(damaged))) == [("high", "checksum length offset epoch")]


def test_confidence_in_a_batch_between_two_damaged_ones(damaged: Path) -> None:
    """A batch between two damaged ones fits neither of them, and its epoch is below the previous one."""
    file = log(damaged, NEXT)
    diseases.altered_leader_epoch(file, 3, epoch=1)
    diseases.bad_crc(file, 2)
    diseases.bad_crc(file, 4)
    first, second = confidences(plan(damaged))
    assert first == ("low", "checksum offset")
    assert second == ("high", "checksum length offset epoch")


def test_unwritten_last_blocks_lose_the_known_log_end(damaged: Path, tmp_path: Path) -> None:
    cases.cut_at(LAST, 3)(damaged)
    repair = plan(damaged)
    end = repair.log_end_offset
    (finding,) = (found for found in repair.findings if found.id == "lost-tail")
    assert (finding.first_offset, finding.last_offset) == (end, 329)
    (removed,) = repair.removed
    assert (removed.length, removed.first_offset, removed.last_offset) == (0, end, 329)
    assert f"{330:020d}.snapshot" not in repair.image


def test_checkpointed_log_end_proves_lost_records(damaged: Path) -> None:
    cases.cut_at(LAST, 1)(damaged)
    (damaged / f"{330:020d}.snapshot").unlink()
    for suffix in ("index", "timeindex"):
        (damaged / f"{LAST}.{suffix}").unlink()
    assert not [found for found in plan(damaged).findings if found.id == "lost-tail"]
    around = BrokerState(recovery_point=330)
    repair = plan(damaged, broker_state=around)
    (finding,) = (found for found in repair.findings if found.id == "lost-tail")
    assert (finding.first_offset, finding.last_offset) == (327, 329)
    assert repair.recovery_point == 327


def test_segment_of_only_damage_is_emptied(damaged: Path) -> None:
    cases.all_noise(damaged)
    repair = plan(damaged)
    assert repair.image.content(f"{MIDDLE}.log") == ()
    (removed,) = repair.removed
    assert (removed.first_offset, removed.last_offset) == (102, 197)


def test_log_end_stays_known_if_the_last_segment_is_lost(damaged: Path) -> None:
    cases.last_all_zeros(damaged)
    assert plan(damaged).log_end_offset == 297


def test_log_start_beyond_the_damaged_end_becomes_the_end(damaged: Path) -> None:
    diseases.torn_tail(log(damaged, LAST))
    repair = plan(damaged, broker_state=BrokerState(is_clean=True, log_start_offset=329))
    assert (repair.log_start_offset, repair.log_end_offset) == (327, 327)


def test_transactions_whose_markers_are_lost_are_named(damaged: Path) -> None:
    """The markers in one segment are damaged, and the transactions continue in the next."""
    cases.lost_marker(damaged)
    named = {
        (found.numbers["producer_id"], found.first_offset)
        for found in plan(damaged).findings
        if found.id == "transaction-end-lost"
    }
    assert named == {(4000, 109), (4001, 112)}


def test_transaction_at_the_lost_log_end_is_reported(damaged: Path) -> None:
    cases.cut_at(LAST, 1)(damaged)
    (found,) = (found for found in plan(damaged).findings if found.id == "transaction-end-lost")
    assert (found.numbers["producer_id"], found.first_offset) == (4000, 324)


@pytest.mark.evidence("no-snapshot")
def test_salvage_writes_a_missing_producer_snapshot(damaged: Path, tmp_path: Path) -> None:
    """A broker that is killed before its first roll has written no snapshot, and after a clean stop it does not replay the log (Kafka:
    UnifiedLog.rebuildProducerState), so read_committed consumers would receive an open transaction."""
    there = decode_snapshot((damaged / "00000000000000000330.snapshot").read_bytes())
    (opened,) = (entry for entry in there if entry.current_txn_first_offset == 324)
    for file in damaged.glob("*.snapshot"):
        file.unlink()
    repair = plan(damaged)
    assert not needs_no_repair(damaged, repair)
    result = write_repaired(repair, damaged, tmp_path / "result")
    assert {file.name for file in result.iterdir()} - {file.name for file in damaged.iterdir()} == {
        "00000000000000000330.snapshot"
    }
    found = decode_snapshot((result / "00000000000000000330.snapshot").read_bytes())
    # a load drops expired producers as it goes, and with them its knowledge of those that return
    assert {entry.producer_id for entry in found} <= {entry.producer_id for entry in there}
    (open_still,) = (entry for entry in found if entry.current_txn_first_offset == 324)
    assert open_still._replace(coordinator_epoch=opened.coordinator_epoch) == opened
    assert needs_no_repair(result, plan(result))


def test_salvage_of_old_formats(tmp_path: Path) -> None:
    old = healthy.mixed_partition(tmp_path / "gates.old-0")
    healthy_batches = all_batches(old)
    for file in logs(old):
        diseases.altered_base_offset(file, 7, bit=41)
        diseases.bad_crc(file, 2)
        spans = batch_spans(file)
        put(file, spans[4][0], bytes(spans[4][1]))
    repair, _ = salvaged(old, tmp_path / "result")
    stays = kept(old, repair, tmp_path)
    assert set(stays) < set(healthy_batches)
    assert len(stays) == len(healthy_batches) - 2 * len(logs(old))
    assert all(map(is_valid, stays))


def test_rebuild_writes_all_side_files_again(partition: Path, tmp_path: Path) -> None:
    bare = Path(shutil.copytree(partition, tmp_path / "metro-0"))
    for file in bare.iterdir():
        if file.suffix not in (".log", ".metadata"):
            file.unlink()
    whole = write_repaired(plan(partition, rebuild=True), partition, tmp_path / "whole")
    from_logs = write_repaired(plan(bare, rebuild=True), bare, tmp_path / "from_logs")
    read = {file.name: file.read_bytes() for file in whole.iterdir()}
    assert read == {file.name: file.read_bytes() for file in from_logs.iterdir()}
    assert {f"{MIDDLE}.index", f"{NEXT}.snapshot", "leader-epoch-checkpoint"} <= set(read)


def test_segment_killed_before_its_first_batch_is_completed(capture_small: Path, tmp_path: Path) -> None:
    """A broker that is killed while it rolls for the first time has created the log, but neither its indexes nor a snapshot. With a
    clean-shutdown marker, the next start would recover a segment without an index; a clean stop creates empty indexes."""
    fares = Path(shutil.copytree(capture_small / "data" / "fares-0", tmp_path / "fares-0"))
    (fares / "00000000000000000117.log").touch()
    for snapshot in fares.glob("*.snapshot"):
        snapshot.unlink()
    repair, _ = salvaged(fares, tmp_path / "after", broker_state=BrokerState(is_clean=False))
    assert {f"00000000000000000117{end}" for end in (".index", ".timeindex", ".snapshot")} <= set(repair.why)
    assert (tmp_path / "after" / "fares-0" / "00000000000000000117.index").read_bytes() == b""
