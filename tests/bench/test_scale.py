"""The cluster model computes what its page says. The costs are made up, and nothing is measured here."""

from __future__ import annotations

import math

import pytest

from bench.measure import Machine
from bench.scale import GIB, TIB, Costs, Load, Node, alone_s, break_even_bytes, cluster_s, report, tasks_of
from kseg.spark.scheduling import MAX_SHARE_BYTES, MAX_SHARES, SHARES_PER_CORE

COSTS = Costs(
    session_s=5,
    task_s=0.001,
    python_s=0.01,
    unit_s=1e-5,
    partition_s=0.002,
    bytes_per_s={"look": GIB, "count": GIB / 10},
)
FAST = Node(4, math.inf)


def test_one_machine_is_limited_by_cores_disk_or_indivisible_work() -> None:
    load = Load("look", 400 * GIB, 1000)
    assert alone_s(COSTS, load, FAST) == pytest.approx((400 + 2) / 4)
    assert alone_s(COSTS, load, Node(4, GIB / 2)) == pytest.approx(800)
    assert alone_s(COSTS, Load("look", 400 * GIB, 1000, stuck_bytes=300 * GIB), FAST) == pytest.approx(300)


def test_cluster_time_includes_its_session_and_every_task() -> None:
    load = Load("look", 4096 * GIB, 0)
    # 16,384 tasks of 256 MiB each
    assert cluster_s(COSTS, load, FAST, 10) == pytest.approx(5 + (4096 + 16_384 * 0.01) / 40)
    assert cluster_s(COSTS, load, Node(4, GIB / 2), 10) == pytest.approx(5 + 4096 / 5)
    # 16,384 tasks of 1 ms each take longer than 1,000 machines need for the work
    assert cluster_s(COSTS, load, FAST, 1_000) == pytest.approx(5 + 16_384 * 0.001)


def test_cluster_time_includes_the_planning_of_all_partitions() -> None:
    few, many = (Load("look", 4096 * GIB, partitions) for partitions in (0, 100_000))
    later = cluster_s(COSTS, many, FAST, 10) - cluster_s(COSTS, few, FAST, 10)
    assert later == pytest.approx(100_000 * (1e-5 + 0.002 / 40))


def test_task_count_equals_that_of_kseg() -> None:
    assert tasks_of(Load("look", 1, 1), 10) == 10 * SHARES_PER_CORE
    assert tasks_of(Load("look", 1000 * MAX_SHARE_BYTES, 1), 10) == 1000
    assert tasks_of(Load("look", 10_000 * TIB, 1), 10) == MAX_SHARES


def test_break_even_size_takes_equal_time_on_both() -> None:
    size = break_even_bytes(COSTS, "count", FAST, 10)
    assert size is not None
    below, above = (Load("count", int(size * part), max(1, int(size * part) // GIB)) for part in (0.9, 1.1))
    assert cluster_s(COSTS, below, FAST, 10) > alone_s(COSTS, below, FAST)
    assert cluster_s(COSTS, above, FAST, 10) < alone_s(COSTS, above, FAST)
    # a cluster of one machine never pays off
    assert break_even_bytes(COSTS, "count", FAST, 1) is None


def test_scale_report_names_measurements_and_conclusions() -> None:
    output = report(COSTS, Machine(2, 24 << 30, "a processor", "Linux 6 x86_64"))
    assert "a processor" in output
    assert "1.00 ms of the driver, 10.00 ms of a core" in output
    assert "10.00 us of the driver" in output
    assert all(name in output for name in COSTS.bytes_per_s)
