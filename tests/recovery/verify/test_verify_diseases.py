"""Each kind of log damage produces its findings for the damaged files, and no others."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from fixtures import diseases as D
from fixtures.diseases import InflictedDamage
from kseg.segment.findings import CATALOGUE
from tests.support.damaged_dirs import (
    HIGH_WATERMARKS,
    INNER,
    LAST,
    LIES,
    RECOVERY_POINTS,
    SHIFTED,
    Reported,
    in_log,
    new,
)
from tests.support.verify_helpers import judge

LOG_DISEASES: list[tuple[Callable[[Path], InflictedDamage], Reported, Reported]] = [
    # damage, findings in the middle of a segment (default level), further findings at the deep level
    (D.torn_tail, in_log("torn-tail"), set()),
    (D.short_tail, in_log("foreign-bytes"), set()),
    (D.zero_tail, in_log("zero-tail"), set()),
    (D.zero_block, in_log("zero-filled"), set()),
    (D.bad_crc, in_log("bad-crc"), set()),
    (D.flipped_bit, in_log("bad-crc"), set()),
    (D.bad_length_small, in_log("bad-length"), set()),
    (D.bad_length_large, in_log("bad-length"), set()),
    (D.bad_length_into_next, in_log("bad-length"), set()),
    (D.bad_magic, in_log("bad-magic"), set()),
    (D.foreign_bytes, in_log("foreign-bytes", SHIFTED), set()),
    (D.altered_base_offset, in_log("altered-base-offset"), set()),
    (D.altered_leader_epoch, in_log("altered-leader-epoch"), set()),
    (D.duplicated_batch, in_log("offset-not-monotonic", SHIFTED), set()),
    (D.swapped_batches, in_log("offset-not-monotonic"), set()),
    (D.missing_batch, in_log("offset-gap", SHIFTED), set()),
    (D.wrong_record_count, in_log("record-count-mismatch"), set()),
    (D.wrong_max_timestamp, set(), in_log("max-timestamp-mismatch")),
    (D.undecodable_batch, in_log("bad-control-record"), in_log("undecodable-batch")),
    (D.unknown_attributes, in_log("unknown-attributes"), set()),
]


def test_healthy_directory_has_no_errors_and_no_warnings(sound: Path) -> None:
    for level in ("quick", "default", "deep"):
        verdict = judge(sound, level)
        assert verdict.output("error", "warning") == set()
        assert verdict.sums["bytes_damaged"] == verdict.sums["bytes_padding"] == 0


def test_every_log_disease_is_tested() -> None:
    assert {disease for disease, _, _ in LOG_DISEASES} == set(D.LOG_DISEASES)


@pytest.mark.parametrize(
    ("disease", "expected", "deep"), LOG_DISEASES, ids=lambda case: getattr(case, "__name__", "")
)
def test_log_disease_gives_its_findings_and_no_others(
    disease: Callable[[Path], InflictedDamage], expected: Reported, deep: Reported, sound: Path, damaged: Path
) -> None:
    disease(damaged / f"{INNER}.log")
    assert new(damaged, sound)[1] == expected
    assert new(damaged, sound, "deep")[1] == expected | deep
    quick = {each for each in expected if each[1].endswith(".log") and each[0] != "bad-control-record"}
    assert new(damaged, sound, "quick")[1] == quick


@pytest.mark.evidence("batch-invalid", "torn-tail")
@pytest.mark.behaviour("V05", "V06", "V07", "V08", "F07", "F33", "F34")
@pytest.mark.parametrize(
    ("disease", "kind"),
    [
        (D.torn_tail, "torn-tail"),
        (D.short_tail, "foreign-bytes"),
        (D.zero_block, "zero-filled"),
        (D.bad_crc, "bad-crc"),
        (D.flipped_bit, "bad-crc"),
        (D.bad_length_small, "bad-length"),
        (D.bad_length_large, "bad-length"),
        (D.bad_length_into_next, "bad-length"),
        (D.bad_magic, "bad-magic"),
        (D.foreign_bytes, "foreign-bytes"),
    ],
    ids=lambda case: getattr(case, "__name__", ""),
)
def test_damage_is_reported_with_its_bytes(
    disease: Callable[[Path], InflictedDamage], kind: str, damaged: Path
) -> None:
    done = disease(damaged / f"{INNER}.log")
    verdict = judge(damaged)
    (found,) = verdict.of(kind)
    assert (found.path, found.position, found.length) == (str(done.file), done.position, done.length)
    assert verdict.sums["bytes_damaged"] >= done.length


@pytest.mark.evidence("zero-tail")
def test_zero_tail_of_a_log_counts_as_padding(sound: Path, damaged: Path) -> None:
    before = judge(sound).sums
    D.zero_tail(damaged / f"{INNER}.log", 5000)
    after = judge(damaged).sums
    assert after["bytes_padding"] == 5000
    assert after["bytes_valid"] == before["bytes_valid"]


@pytest.mark.evidence("batch-header")
def test_altered_base_offset_is_reported_with_the_original(damaged: Path) -> None:
    done = D.altered_base_offset(damaged / f"{INNER}.log", batch=5, bit=33)
    (found,) = judge(damaged).of("altered-base-offset")
    assert (found.position, found.length) == (done.position, 8)
    assert found.numbers["flipped_bit"] == 33
    assert found.numbers["probable_base_offset"] == int(found.numbers["found_base_offset"] or 0) ^ 1 << 33


@pytest.mark.parametrize(
    ("disease", "expected"),
    [
        (D.torn_tail, in_log("torn-tail", LIES, log=LAST)),
        (D.short_tail, in_log("foreign-bytes", LIES, log=LAST)),
        (D.zero_tail, in_log("zero-tail", LIES, log=LAST)),
        (D.altered_base_offset, in_log("altered-base-offset", log=LAST)),
        (D.altered_leader_epoch, in_log("altered-leader-epoch", log=LAST)),
    ],
    ids=lambda case: getattr(case, "__name__", ""),
)
def test_log_disease_in_the_last_segment_gives_its_findings(
    disease: Callable[..., InflictedDamage], expected: Reported, sound: Path, damaged: Path
) -> None:
    log = damaged / f"{LAST}.log"
    if disease in (D.altered_base_offset, D.altered_leader_epoch):
        disease(log, batch=-1)
    else:
        disease(log)
    assert new(damaged, sound)[1] == expected


def test_missing_last_batch_is_found_by_the_side_files(sound: Path, damaged: Path) -> None:
    D.missing_batch(damaged / f"{LAST}.log", batch=-1)
    assert new(damaged, sound)[1] == {
        ("time-index-offset-not-found", f"{LAST}.timeindex"),
        ("snapshot-stray", "metro-0/00000000000000000330.snapshot"),
        ("checkpoint-beyond-log", RECOVERY_POINTS),
        ("checkpoint-beyond-log", HIGH_WATERMARKS),
    }


def test_every_finding_has_a_kind_with_a_hint(damaged: Path) -> None:
    D.bad_crc(damaged / f"{INNER}.log")
    for found in judge(damaged).findings:
        assert CATALOGUE[found.id].hint.startswith("kseg ")
        assert found.message
