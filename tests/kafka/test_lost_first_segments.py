"""A broker has lost the first segments of a log, and another one still has them: what a start without the steps of `doctor` deletes there,
and what is kept with them.

Takes fifteen seconds of processor time: three nodes are started three times.
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.kafka.conftest import require_kafka
from tests.kafka.two_replicas import BROKERS, CONTROLLER, TwoReplicas
from tests.support.command_rows import of_type, rows_of
from tests.support.trees import copy_tree

pytestmark = pytest.mark.kafka

ORDERS, COUNT = "orders", 600


def _segments(data: Path) -> list[int]:
    return sorted(int(path.stem) for path in (data / f"{ORDERS}-0").glob("*.log"))


def _lose_first(data: Path) -> int:
    """Remove the first two segments, and return the base offset of the next one."""
    first, second, left, *_ = _segments(data)
    for base in (first, second):
        for path in (data / f"{ORDERS}-0").glob(f"{base:020d}.*"):
            path.unlink()
    return left


def _start_and_consume(cluster: TwoReplicas, leader: int) -> int:
    """The number of records that a consumer receives from this leader."""
    cluster.prepare()
    cluster.begin(CONTROLLER, leader)
    cluster.await_leader(ORDERS, leader)
    cluster.begin(*{*BROKERS} - {leader})
    cluster.await_in_sync(ORDERS)
    return cluster.consume(ORDERS)


@pytest.mark.evidence("epochs-below-log")
def test_steps_for_lost_first_segments_are_due_where_another_replica_has_them(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    require_kafka()
    cluster = TwoReplicas(tmp_path / "cluster")
    cluster.start()
    try:
        cluster.create_topic(ORDERS, **{"internal.segment.bytes": "4000"})
        cluster.await_in_sync(ORDERS)
        for _ in range(3):
            cluster.produce(ORDERS, COUNT // 3)
        cluster.stop(2, 1)  # the first one leads next
        left = _lose_first(cluster.data(1))
        without = TwoReplicas(copy_tree(tmp_path / "cluster", tmp_path / "without"))
        paths = [cluster.data(node_id) for node_id in BROKERS]
        rows = rows_of(capfd, "doctor", *paths, status=1)
        assert {row["id"] for row in of_type(rows, "finding")} == {"log-start-gap", "log-dirs-mixed"}
        steps = [row["command"] for row in of_type(rows, "step") if row["due"]]
        for step in steps:
            if not step.startswith("kseg doctor"):
                typed = re.sub(r"\bkseg (?=dump|append)", f"{sys.executable} -m kseg ", step)
                subprocess.run(typed, shell=True, check=True, stdout=subprocess.DEVNULL)
        rows = rows_of(capfd, "verify", *paths, status=0)
        assert {row["id"] for row in of_type(rows, "finding")} == {"log-dirs-mixed"}
        assert _start_and_consume(cluster, 1) == COUNT
    finally:
        cluster.abandon()
    try:
        assert _segments(without.data(2))[0] == 0
        assert _start_and_consume(without, 1) == COUNT - left
        without.nodes[2].wait_for("the deletion", lambda: _segments(without.data(2))[0] == left)
    finally:
        without.abandon()
