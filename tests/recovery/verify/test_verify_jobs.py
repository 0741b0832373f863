"""One log verified by several processes gives the findings, totals and progress of one process."""

from __future__ import annotations

import os
import random
from pathlib import Path

import pytest

from fixtures import healthy
from kseg.cli.main import run
from kseg.jobs import part_worker
from kseg.jobs.events import Advance, Event
from kseg.recovery.verify import parallel_scan
from kseg.recovery.verify.options import LEVELS, VerifyOptions
from kseg.recovery.verify.verify import verify
from kseg.segment import crc
from kseg.segment.findings import Finding
from kseg.segment.model import Batch
from kseg.segment.partition.targets import Expansion, resolve_targets
from kseg.segment.scanning.batches import scan
from tests.support.trees import unchanged
from tests.support.verify_helpers import NOW_MS


@pytest.fixture(autouse=True)
def small_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parallel_scan, "LEAST_SHARED_BYTES", 1)
    monkeypatch.setattr(parallel_scan, "LEAST_LOG_BYTES", 1)
    monkeypatch.setattr(parallel_scan, "MIN_PART_BYTES", 128)
    monkeypatch.setattr(parallel_scan, "MAX_PART_BYTES", 512)
    monkeypatch.setattr(part_worker.PartWorker, "is_ready", lambda _worker: True)
    # can_fork refuses because of the test runner's threads, which hold no locks of ours
    monkeypatch.setattr(parallel_scan, "can_fork", lambda: True)


@pytest.fixture
def forks(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """An entry for each process that was forked."""
    counted: list[int] = []
    fork = os.fork

    def counting() -> int:
        counted.append(1)
        return fork()

    monkeypatch.setattr(os, "fork", counting)
    return counted


@pytest.fixture(scope="module")
def damage_logs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A data directory in whose logs bytes were altered, removed and inserted."""
    root = healthy.log_dir(tmp_path_factory.mktemp("damaged") / "data")
    dice = random.Random(3)
    for log in sorted(root.rglob("*.log"))[1:]:
        data = bytearray(log.read_bytes())
        for _ in range(len(data) // 4096):
            at = dice.randrange(len(data))
            match dice.randrange(3):
                case 0:
                    data[at] ^= 1 << dice.randrange(8)
                case 1:
                    del data[at : at + dice.randrange(2000)]
                case _:
                    data[at:at] = dice.randbytes(dice.randrange(2000))
        log.write_bytes(data)
    return root


@pytest.fixture(scope="module")
def odd_records(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A data directory in which every third batch has an altered body or header and a valid checksum."""
    root = healthy.log_dir(tmp_path_factory.mktemp("odd") / "data")
    dice = random.Random(5)
    for log in root.rglob("*.log"):
        data = bytearray(log.read_bytes())
        for found in [*scan(bytes(data))][::3]:
            assert isinstance(found, Batch)
            start, end = found.position, found.end_position
            at = dice.choice([start + 3, start + 30, dice.randrange(start + 21, end)])
            data[at] ^= 1 << dice.randrange(8)
            data[start + 17 : start + 21] = crc.crc32c(data[start + 21 : end]).to_bytes(4, "big")
        log.write_bytes(data)
    return root


def output(root: Path, level: str, jobs: int) -> tuple[list[Event], int]:
    """All events except progress, in order, and the number of bytes that progress reported."""
    events = [
        event
        for target in resolve_targets([str(root)], expand=Expansion.VERIFY)
        for event in verify(target, VerifyOptions(level=level, now_ms=NOW_MS, jobs=jobs))
    ]
    done = sum(event.bytes_done for event in events if isinstance(event, Advance))
    return [event for event in events if not isinstance(event, Advance)], done


@pytest.mark.parametrize("level", LEVELS)
def test_verify_with_jobs_gives_the_findings_of_one_process(
    damage_logs: Path, level: str, forks: list[int]
) -> None:
    with unchanged(damage_logs):
        alone = output(damage_logs, level, 1)
        assert not forks
        assert output(damage_logs, level, 3) == alone
    assert len(forks) >= 2


def test_verify_deep_with_jobs_gives_the_findings_of_one_process(odd_records: Path, forks: list[int]) -> None:
    """The order of header and record findings within a log depends on where tables end."""
    alone, done = output(odd_records, "deep", 1)
    found = {event.id for event in alone if isinstance(event, Finding)}
    assert {"undecodable-batch", "altered-base-offset", "max-timestamp-mismatch"} <= found
    for jobs in (2, 3):
        together, done_together = output(odd_records, "deep", jobs)
        assert sorted(map(repr, together)) == sorted(map(repr, alone))
        assert done_together == done
    assert len(forks) >= 2


@pytest.mark.parametrize(("jobs", "expected"), [("1", 0), ("2", 1), ("3", 2)])
def test_jobs_option_applies_to_a_single_log(
    damage_logs: Path, jobs: str, expected: int, forks: list[int]
) -> None:
    log = max(damage_logs.rglob("*.log"), key=lambda path: path.stat().st_size)
    with unchanged(damage_logs):
        run(["verify", "--quick", "--quiet", "--jobs", jobs, str(log)])
    assert len(forks) == expected
