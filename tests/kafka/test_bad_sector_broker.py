"""A real broker on a data directory with bad sectors: what ends its start, what takes the data directory offline, and what its consumers
receive, compared with the forecast of `verify` and the cost from `recover` for such a partition.

Needs root, for ext4 on a loop device (`tests.support.bad_sectors`). Each case starts a broker, which takes seconds of processor time, so
the gate runs half of them.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.kafka.broker import CLIENT_LIMIT_S, Broker, BrokerFailed
from tests.kafka.conftest import require_kafka
from tests.kafka.starting import PlainBroker, foretold, observed
from tests.support.bad_sectors import DyingDisk, dying_disk, require
from tests.support.forked_programs import run_kseg

pytestmark = [pytest.mark.kafka, pytest.mark.slow]

RECORDS, BATCH = 60, 6
FIRST, LAST = f"{0:020}", f"{36:020}"
FAULT = "java.lang.InternalError: a fault occurred in a recent unsafe memory access"


class Case(NamedTuple):
    """spoiled: unreadable blocks of 4 KiB by file name. is_clean: whether the broker was stopped cleanly before. outcome: of the start.
    logged: what the broker logs during the start."""

    spoiled: Mapping[str, Sequence[int]]
    is_clean: bool
    outcome: str
    logged: str = "Input/output error"


CASES = {
    "a log below the recovery point": Case({f"aaa-0/{FIRST}.log": [3]}, True, "starts", ""),
    "the last log after a clean stop": Case({f"aaa-0/{LAST}.log": [5]}, True, "starts", ""),
    "a log that is recovered": Case({f"aaa-0/{FIRST}.log": [3]}, False, "does-not-start"),
    "the first block of a log that is recovered": Case({f"aaa-0/{LAST}.log": [0]}, False, "does-not-start"),
    "an offset index": Case({f"aaa-0/{FIRST}.index": [0]}, True, "starts", ""),
    "a time index": Case({f"aaa-0/{FIRST}.timeindex": [0]}, True, "starts", ""),
    "the last offset index": Case({f"aaa-0/{LAST}.index": [0]}, True, "does-not-start", FAULT),
    "the last time index": Case({f"aaa-0/{LAST}.timeindex": [0]}, True, "does-not-start", FAULT),
    "the time index of a log that is recovered": Case(
        {f"aaa-0/{FIRST}.timeindex": [0]}, False, "does-not-start", FAULT
    ),
    "partition.metadata": Case({"aaa-0/partition.metadata": [0]}, True, "does-not-start"),
    "leader-epoch-checkpoint": Case({"aaa-0/leader-epoch-checkpoint": [0]}, True, "does-not-start"),
    "recovery points": Case({"recovery-point-offset-checkpoint": [0]}, True, "does-not-start"),
}


# one for each outcome of a start and each kind of file
IN_THE_GATE = (
    "the last log after a clean stop",
    "a log that is recovered",
    "an offset index",
    "the last time index",
    "partition.metadata",
    "recovery points",
)


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two topics with one partition of two segments each, after a clean stop."""
    require_kafka()
    require()
    with Broker(tmp_path_factory.mktemp("sound")) as broker:
        for topic in ("aaa", "bbb"):
            broker.create_topic(topic, internal_segment_bytes="60000")
        producer = broker.producer()
        for topic in ("aaa", "bbb"):
            for number in range(RECORDS):
                producer.produce(topic, b"%d " % number + os.urandom(1500), partition=0)
                if number % BATCH == BATCH - 1:
                    producer.flush(CLIENT_LIMIT_S)
    return broker.data


@pytest.fixture
def disk(sound: Path, tmp_path: Path) -> Iterator[DyingDisk]:
    with dying_disk(tmp_path) as disk:
        shutil.copytree(sound, disk.root / "data")
        yield disk


def damage(disk: DyingDisk, case: Case) -> Path:
    data = disk.root / "data"
    if not case.is_clean:
        (data / ".kafka_cleanshutdown").unlink()
        points = data / "recovery-point-offset-checkpoint"
        points.write_text(re.sub(r"(?m)^(aaa|bbb) 0 \d+$", r"\1 0 0", points.read_text()))
    disk.spoil({f"data/{name}": blocks for name, blocks in case.spoiled.items()})
    return data


@pytest.mark.evidence("unreadable-bytes", "unreadable-partition")
@pytest.mark.parametrize("name", CASES if os.environ.get("KSEG_BROKER_STARTS") == "all" else IN_THE_GATE)
def test_forecast_of_a_start_on_bad_sectors_matches_the_broker(
    disk: DyingDisk, tmp_path: Path, name: str
) -> None:
    case = CASES[name]
    data = damage(disk, case)
    reported = foretold([data])
    seen = observed(tmp_path, [data])
    assert seen.outcome == case.outcome, seen.log[-3000:]
    assert case.logged in seen.log
    assert reported.node["outcome"] == case.outcome


def kseg(*words: object) -> subprocess.CompletedProcess[str]:
    """Run kseg in a separate process, because a process remembers by inode what it found unreadable."""
    return run_kseg(*words)


@pytest.mark.evidence("unreadable-bytes", "unreadable-partition")
@pytest.mark.parametrize("segment", [FIRST, LAST])
def test_consumers_stop_at_a_bad_sector_and_continue_after_a_repair(
    disk: DyingDisk, tmp_path: Path, segment: str
) -> None:
    """The log dir does not go offline, but the fetch fails, while other partitions are served. `recover` refuses at first. With
    --accept-unreadable it keeps all records except those around the bad sector."""
    data = damage(disk, Case({f"aaa-0/{segment}.log": [3]}, True, "starts"))
    broker = PlainBroker(tmp_path / "before", data)
    with broker:
        began = time.monotonic()
        assert len(broker.consume("bbb")) == RECORDS
        # from the time that it takes to consume a topic of the same size
        patience_s = 5 + 5 * (time.monotonic() - began)
        with pytest.raises(BrokerFailed, match="did not reach the end"):
            broker.consume("aaa", limit_s=patience_s)
        assert broker.is_running()
    refused = kseg("recover", "--apply", data)
    assert refused.returncode in (4, 5) and "--accept-unreadable" in refused.stderr
    repaired = kseg("recover", "--apply", "--accept-unreadable", "--mark-clean", data)
    assert repaired.returncode == 0, repaired.stderr
    with PlainBroker(tmp_path / "after", data) as broker:
        left = [record.offset for record in broker.consume("aaa")]
        assert len(broker.consume("bbb")) == RECORDS
    lost = sorted(set(range(RECORDS)) - set(left))
    assert 0 < len(lost) <= 2 * BATCH and lost == [*range(lost[0], lost[-1] + 1)]


@pytest.mark.evidence("read-only")
@pytest.mark.parametrize("is_clean", [True, False])
def test_forecast_of_a_start_on_a_read_only_disk_matches_the_broker(
    disk: DyingDisk, tmp_path: Path, is_clean: bool
) -> None:
    data = damage(disk, Case({}, is_clean, ""))
    disk.make_read_only()
    reported = foretold([data])
    seen = observed(tmp_path, [data])
    assert seen.outcome == reported.node["outcome"] == "does-not-start"
    assert "Read-only file system" in seen.log and reported.node["exception"] in seen.log
    assert reported.node["once_writable"]["outcome"] == "starts"
