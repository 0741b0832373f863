"""Replicas of a partition that are damaged in several places, of which one is in none of them: after the steps of `doctor`, a real broker
serves every other record.

Takes fifteen seconds of processor time: three nodes are started twice.
"""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from kseg.cli.main import run
from tests.kafka.conftest import require_kafka
from tests.kafka.two_replicas import BROKERS, CONTROLLER, TwoReplicas
from tests.support.command_rows import of_type, rows_of

pytestmark = pytest.mark.kafka

ORDERS, BATCHES, RECORDS = "orders", 20, 10


def _spoil(data: Path, *numbers: int, is_flipped: bool = False) -> list[range]:
    """Damage the last records of batches, numbered from 0, and return their offsets. is_flipped: invert one bit instead."""
    (log,) = (data / f"{ORDERS}-0").glob("*.log")
    content, ends = bytearray(log.read_bytes()), [0]
    while ends[-1] < len(content):
        ends.append(ends[-1] + 12 + int.from_bytes(content[ends[-1] + 8 : ends[-1] + 12]))
    spoilt = []
    for number in numbers:
        header, end = content[ends[number] :], ends[number + 1]
        base = int.from_bytes(header[:8])
        spoilt.append(range(base, base + int.from_bytes(header[23:27]) + 1))
        content[end - 10 : end] = bytes(
            [content[end - 10] ^ 1, *content[end - 9 : end]] if is_flipped else 10
        )
    log.write_bytes(content)
    return spoilt


def _steps(capfd: pytest.CaptureFixture[str], paths: list[Path]) -> list[str]:
    rows = rows_of(capfd, "doctor", *paths, status=1)
    return [row["command"] for row in of_type(rows, "step") if row["due"]]


def _follow_steps(capfd: pytest.CaptureFixture[str], paths: list[Path]) -> None:
    """Type in the steps, and those that follow from them."""
    for _ in range(2):
        for step in _steps(capfd, paths):
            if not step.startswith("kseg doctor"):
                typed = re.sub(r"\bkseg (?=dump|append|recover)", f"{sys.executable} -m kseg ", step)
                subprocess.run(typed, shell=True, check=True, stdout=subprocess.DEVNULL)
        if run(["verify", *map(str, paths)]) == 0:
            return
    raise AssertionError("still damaged")


@contextmanager
def _replicated(root: Path) -> Iterator[TwoReplicas]:
    """A running cluster that has the batches on both brokers."""
    require_kafka()
    cluster = TwoReplicas(root)
    cluster.start()
    try:
        cluster.create_topic(ORDERS)
        cluster.await_in_sync(ORDERS)
        for _ in range(BATCHES):
            cluster.produce(ORDERS, RECORDS)
        yield cluster
    finally:
        cluster.abandon()


@pytest.mark.evidence("damaged-replica")
@pytest.mark.parametrize("leader", BROKERS)
def test_steps_keep_what_any_replica_has(
    leader: int, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """Batch 12 is in neither replica; it is in the middle of what the first one lacks, and at the end of what the second one lacks."""
    with _replicated(tmp_path / "cluster") as cluster:
        cluster.stop(*{*BROKERS} - {leader}, leader)
        _spoil(cluster.data(1), 3, 11, 12, 13)
        _, lost = _spoil(cluster.data(2), 6, 12)
        paths = [cluster.data(node_id) for node_id in BROKERS]
        _follow_steps(capfd, paths)
        cluster.prepare()
        cluster.begin(CONTROLLER, leader)
        cluster.await_leader(ORDERS, leader)
        cluster.begin(*{*BROKERS} - {leader})
        cluster.await_in_sync(ORDERS)
        consumed = [each.offset for each in cluster.nodes[leader].consume(ORDERS)]
        assert consumed == [offset for offset in range(BATCHES * RECORDS) if offset not in lost]


@pytest.mark.evidence("damaged-replica")
@pytest.mark.parametrize("flipped", BROKERS)
def test_steps_give_up_nothing_that_a_repair_restores(
    flipped: int, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """Batch 12 is damaged in both replicas, in one of them by one bit, and batch 3 in one."""
    with _replicated(tmp_path / "cluster") as cluster:
        cluster.stop(2, 1)
    _spoil(cluster.data(1), 3)
    for node_id in BROKERS:
        _spoil(cluster.data(node_id), 12, is_flipped=node_id == flipped)
    paths = [cluster.data(node_id) for node_id in BROKERS]
    _follow_steps(capfd, paths)
    for path in paths:
        rows = rows_of(capfd, "dump", "--deep-iteration", path / f"{ORDERS}-0" / f"{0:020d}.log", status=0)
        assert [row["offset"] for row in of_type(rows, "record")] == [*range(BATCHES * RECORDS)]
