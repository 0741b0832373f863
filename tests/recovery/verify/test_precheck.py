"""With prevalidated ranges `verify` reports the same as without them, and does not read them again."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from fixtures import diseases, healthy
from kseg.change.append.partition_writer import PartitionWriter
from kseg.jobs.events import Advance, Event
from kseg.recovery.verify.options import VerifyOptions
from kseg.recovery.verify.verify import verify
from kseg.segment import unreadable
from kseg.segment.kernel import bad_pages
from kseg.segment.model import NewBatch, Record
from kseg.segment.partition.targets import FileTarget, PartitionTarget
from kseg.segment.scanning import crc_verdicts
from kseg.segment.scanning.prevalidated import ValidatedSpans

PART_BYTES = 1500


@pytest.fixture(autouse=True)
def other_disks_forgotten() -> None:
    """Forget bad sectors before each test: a process remembers them by inode, and inodes are reused."""
    if bad_pages.count():
        bad_pages.forget()
        unreadable.begin()


def reported(target: FileTarget | PartitionTarget, options: VerifyOptions) -> list[Event]:
    return [event for event in verify(target, options) if not isinstance(event, Advance)]


def claims_of(target: FileTarget | PartitionTarget, options: VerifyOptions) -> list[ValidatedSpans]:
    return [verify.claim(part, options) for part in verify.parts(target, options, PART_BYTES)]


def with_validated(target: FileTarget | PartitionTarget, options: VerifyOptions) -> list[Event]:
    return reported(target, verify.with_validated(options, claims_of(target, options)))


@pytest.fixture(params=["quick", "default", "deep"])
def options(request: pytest.FixtureRequest) -> VerifyOptions:
    return VerifyOptions(level=request.param, now_ms=healthy.T0)


@pytest.fixture
def partition(sound: Path, tmp_path: Path) -> Path:
    copied: Path = shutil.copytree(sound / "metro-0", tmp_path / "metro-0")
    return copied


@pytest.mark.parametrize(
    "disease", [None, *diseases.LOG_DISEASES], ids=lambda each: getattr(each, "__name__", "none")
)
def test_prevalidated_ranges_do_not_change_the_findings(
    partition: Path, disease: Callable[[Path], diseases.InflictedDamage] | None, options: VerifyOptions
) -> None:
    for log in sorted(partition.glob("*.log"))[:2]:
        if disease is not None:
            disease(log)
    targets: list[FileTarget | PartitionTarget] = [PartitionTarget(str(partition))]
    targets += (FileTarget(str(log)) for log in partition.glob("*.log"))
    for target in targets:
        assert with_validated(target, options) == reported(target, options)


def test_prevalidated_ranges_of_old_formats_do_not_change_the_findings(
    sound: Path, options: VerifyOptions
) -> None:
    target = PartitionTarget(str(sound / "gates.old-0"))
    assert with_validated(target, options) == reported(target, options)


@pytest.fixture
def plain(tmp_path: Path) -> Path:
    """A log of many plain batches."""
    with PartitionWriter(tmp_path / "orders-0") as writer:
        for first in range(0, 500, 5):
            writer.append(
                NewBatch(records=tuple(Record(n, 10 + n, b"k", bytes(2000)) for n in range(first, first + 5)))
            )
    return tmp_path / "orders-0"


def test_prevalidated_ranges_are_not_read_again(
    plain: Path, options: VerifyOptions, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = PartitionTarget(str(plain))
    claims = [verify.claim(part, options) for part in verify.parts(target, options, 100_000)]
    (log,) = plain.glob("*.log")
    assert len(claims) == round(log.stat().st_size / 100_000)
    assert claims[0].spans[0][0] == 0
    assert sum(stop - start for claim in claims for start, stop in claim.spans) == log.stat().st_size

    def refuse(*_given: object) -> int:
        raise AssertionError("somebody looks again")

    alone = reported(target, options)
    monkeypatch.setattr(crc_verdicts.CrcVerifier, "verify", refuse)
    monkeypatch.setattr("kseg.recovery.verify.records_check.valid_until", refuse)
    assert reported(target, verify.with_validated(options, claims)) == alone


def test_file_changed_since_prevalidation_is_read_again(plain: Path, options: VerifyOptions) -> None:
    target = PartitionTarget(str(plain))
    claims = claims_of(target, options)
    (log,) = plain.glob("*.log")
    diseases.bad_crc(log)
    os.utime(log, ns=(0, 0))
    assert reported(target, verify.with_validated(options, claims)) == reported(target, options)
    assert "bad-crc" in {getattr(event, "id", None) for event in reported(target, options)}


def test_shallow_claims_do_not_cover_records(plain: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    target, deep = PartitionTarget(str(plain)), VerifyOptions(level="deep", now_ms=healthy.T0)
    (log,) = plain.glob("*.log")
    diseases.undecodable_batch(log)
    shallow = claims_of(target, VerifyOptions(level="default", now_ms=healthy.T0))
    assert all(not claim.with_records for claim in shallow)
    assert reported(target, verify.with_validated(deep, shallow)) == reported(target, deep)


def test_deleted_log_has_no_parts(tmp_path: Path) -> None:
    target = FileTarget(str(tmp_path / f"{0:020d}.log"))
    assert verify.parts(target, VerifyOptions(now_ms=healthy.T0), PART_BYTES) == []


def test_walk_entering_a_validated_range_midway_does_not_trust_it(plain: Path) -> None:
    """After a wrong length, the walk may enter a validated range in the middle, where it sees other batches."""
    (log,) = plain.glob("*.log")
    inner = log.read_bytes()[: diseases.batch_spans(log)[0][1]]
    options = VerifyOptions(now_ms=healthy.T0)
    target = PartitionTarget(str(plain))
    claims = claims_of(target, options)
    start = diseases.batch_spans(log)[3][0]
    diseases.put(log, start + 8, (61 + 500).to_bytes(4, "big"))  # batch 3 now ends inside itself …
    diseases.put(log, start + 12 + 61 + 500, inner)  # … where another one seems to begin
    status = log.stat()
    forged = [
        ValidatedSpans(each.path, status.st_size, status.st_mtime_ns // 1_000_000, each.spans, False)
        for each in claims
    ]
    beyond = [
        ValidatedSpans(
            each.path, each.size_bytes, each.mtime_ms, tuple(s for s in each.spans if s[0] > start), False
        )
        for each in forged
    ]
    assert reported(target, verify.with_validated(options, beyond)) == reported(target, options)
