"""At what size a cluster pays off, and what very large fleets need: a model based on costs that are measured here in one run.

`python -m bench.scale` measures on this machine, with the corpora of the race and a session of two cores:

    session_s       from a program's start until the first job is done, minus the time of a local start
    task_s          cost of one more task for the driver, from jobs of many empty tasks that stay in Java
    python_s        cost for a core of an executor to pass a task to Python and receive its result, from the same in Python
    unit_s          cost of one more partition for the driver, which weighs it, packs it with others and sends it out
    bytes_per_s     throughput of one core on a large log in the page cache, by operation
    partition_s     cost of a tiny partition for one core

and then computes. A machine has a number of cores and a disk (or a share of a network) with a throughput in bytes per second:

    work            bytes / bytes_per_s + partitions × partition_s                 seconds of one core
    alone           the longest of: work / cores, bytes / disk, the largest part that cannot be split
    cluster         session_s + partitions × unit_s + the longest of: (work + tasks × python_s) / all cores, bytes / all disks,
                    tasks × task_s, the largest part that cannot be split

The model leaves out what cannot be known here: stragglers, lost executors, queues of a busy cluster, the network. It assumes that the data
is on the brokers' own disks with an executor on each broker, so that the throughput of the disks adds up.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import pickle
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from bench import corpus, measure
from bench.measure import MIB, Machine, machine
from bench.race import tools
from bench.tools import Tools, clean_environment
from kseg.recovery.verify.options import VerifyOptions
from kseg.recovery.verify.verify import verify
from kseg.segment.partition.targets import PartitionTarget
from kseg.spark import cluster_fanout, scheduling, session
from kseg.spark.options import ClusterOptions
from kseg.spark.scheduling import MAX_SHARE_BYTES, MAX_SHARES, SHARES_PER_CORE

GIB, TIB = 1 << 30, 1 << 40
# of the measured session
CORES = 2
TASKS, UNITS = 2_000, 100_000
EMPTY_TASKS = (sys.executable, "-m", "bench.scale", "--empty-tasks")
OPERATIONS = {
    "verify --quick": ("verify", "--quick", "--jobs", "1"),
    "verify": ("verify", "--jobs", "1"),
    "verify --deep": ("verify", "--deep", "--jobs", "1"),
    "dump --print-data-log": ("dump", "--print-data-log", "--jobs", "1"),
}


@dataclass(frozen=True, slots=True)
class Costs:
    """The measured costs (see the module)."""

    session_s: float
    task_s: float
    python_s: float
    unit_s: float
    partition_s: float
    bytes_per_s: dict[str, float]


@dataclass(frozen=True, slots=True)
class Node:
    """A machine. disk_bytes_per_s: the throughput of its disks, or of its share of a network."""

    cores: int
    disk_bytes_per_s: float


@dataclass(frozen=True, slots=True)
class Load:
    """The work to do. stuck_bytes: the largest part, which cannot be divided among cores."""

    operation: str
    size_bytes: int
    partitions: int
    stuck_bytes: int = 0


def work_s(costs: Costs, load: Load) -> float:
    """Seconds of work for one core."""
    return load.size_bytes / costs.bytes_per_s[load.operation] + load.partitions * costs.partition_s


def alone_s(costs: Costs, load: Load, node: Node) -> float:
    """The time of a single machine that has all the data."""
    stuck_s = load.stuck_bytes / costs.bytes_per_s[load.operation]
    return max(work_s(costs, load) / node.cores, load.size_bytes / node.disk_bytes_per_s, stuck_s)


def tasks_of(load: Load, cores: int) -> int:
    """The number of tasks into which kseg divides the work."""
    return min(MAX_SHARES, max(cores * SHARES_PER_CORE, math.ceil(load.size_bytes / MAX_SHARE_BYTES)))


def cluster_s(costs: Costs, load: Load, node: Node, nodes: int) -> float:
    """The time of a cluster in which each machine has its share of the data."""
    cores = nodes * node.cores
    tasks = tasks_of(load, cores)
    return (
        costs.session_s
        + load.partitions * costs.unit_s
        + max(
            (work_s(costs, load) + tasks * costs.python_s) / cores,
            load.size_bytes / (nodes * node.disk_bytes_per_s),
            tasks * costs.task_s,
            load.stuck_bytes / costs.bytes_per_s[load.operation],
        )
    )


def break_even_bytes(costs: Costs, operation: str, node: Node, nodes: int) -> int | None:
    """The size above which the cluster is faster, to a thousandth; None if there is none up to an exbibyte."""

    def pays(size_bytes: int) -> bool:
        load = Load(operation, size_bytes, max(1, size_bytes // GIB))
        return cluster_s(costs, load, node, nodes) < alone_s(costs, load, node)

    low, high = 1, 1 << 60
    if not pays(high):
        return None
    while high - low > max(1, low // 1000):
        middle = (low + high) // 2
        low, high = (low, middle) if pays(middle) else (middle, high)
    return high


def measured(contestants: Tools) -> Costs:
    """The costs on this machine, each the best of three runs."""
    start_s = _fastest(contestants, "verify", "--quick", _empty(contestants))
    big = contestants.segment("plain-100")
    measure.warm(big)
    size = big.stat().st_size
    speeds = {
        name: size / max(1e-9, _fastest(contestants, *words, big) - start_s)
        for name, words in OPERATIONS.items()
    }
    many = contestants.corpus / "many"
    partitions = sum(1 for each in many.iterdir() if each.is_dir())
    partition_s = (_fastest(contestants, "verify", "--quick", "--jobs", "1", many) - start_s) / partitions
    session_s = _fastest_session() - start_s
    task_s, python_s = _tasks()
    return Costs(session_s, task_s, python_s, _unit(), partition_s, speeds)


def _fastest(contestants: Tools, *words: str | Path) -> float:
    command = [contestants.kseg, *words]
    return min(measure.run(command, environment=clean_environment()).seconds for _ in range(3))


def _empty(contestants: Tools) -> Path:
    empty = contestants.scratch / "empty-0" / "00000000000000000000.log"
    empty.parent.mkdir(exist_ok=True)
    empty.touch()
    return empty


def _fastest_session() -> float:
    """The fastest of several starts of a session. Raises Failed if the program fails."""
    return min(measure.run([*EMPTY_TASKS, "1"], keep=True).seconds for _ in range(3))


def _tasks() -> tuple[float, float]:
    """The cost of one more task for the driver, and for the core of an executor that passes the task to Python. Raises Failed."""
    few, many = (
        json.loads(measure.run([*EMPTY_TASKS, str(tasks)], keep=True).output) for tasks in (1, TASKS)
    )
    in_java, in_python = (max(0.0, (many[of] - few[of]) / (TASKS - 1)) for of in ("java_s", "python_s"))
    return in_java, max(0.0, in_python - in_java) * CORES


def empty_tasks(tasks: int) -> dict[str, float]:
    """The time of jobs with this number of empty tasks, in Java and in Python; the best of three in a session."""
    spark = session.get(ClusterOptions(master=f"local[{CORES}]", light=True))
    nothing = spark.sparkContext.parallelize(range(tasks), tasks)
    return {
        "java_s": _best(lambda: spark.range(0, tasks, 1, tasks).write.format("noop").mode("append").save()),
        "python_s": _best(lambda: nothing.mapPartitions(list).collect()),
    }


def _unit() -> float:
    """The cost of one more partition for the driver before its task has started."""
    targets = [PartitionTarget(f"/data/logs/topic-{number:06}") for number in range(UNITS)]
    options = VerifyOptions(now_ms=0)
    run = cluster_fanout.task_run(verify, targets[:1], options)

    def send_out() -> None:
        units = scheduling.weigh(targets, lambda paths: [GIB] * len(paths))
        for group in scheduling.plan(verify, units, options, CORES):
            pickle.dumps(scheduling.Share(run, group), pickle.HIGHEST_PROTOCOL)

    return _best(send_out) / UNITS


def _best(job: Callable[[], object]) -> float:
    seconds = math.inf
    for _ in range(3):
        start = time.perf_counter()
        job()
        seconds = min(seconds, time.perf_counter() - start)
    return seconds


def report(costs: Costs, here: Machine) -> str:
    """The measured costs, the size from which on a cluster pays off, and a large fleet."""
    return "\n".join((*_costs(costs, here), "", *_break_evens(costs), "", *_fleet(costs)))


def _costs(costs: Costs, here: Machine) -> Sequence[str]:
    return (
        f"measured on {here}",
        f"  a session on a cluster    {costs.session_s:8.2f} s more than a local start",
        f"  one more task             {costs.task_s * 1e3:8.2f} ms of the driver, {costs.python_s * 1e3:.2f} ms of a core",
        f"  one more partition        {costs.unit_s * 1e6:8.2f} us of the driver",
        f"  one tiny partition        {costs.partition_s * 1e3:8.2f} ms of a core",
        *(f"  {name:24}  {speed / MIB:8.0f} MiB/s of a core" for name, speed in costs.bytes_per_s.items()),
    )


def _break_evens(costs: Costs) -> list[str]:
    lines = ["where a cluster of 10 such machines starts to pay, against one that has it all (16 cores)"]
    for words, disk in (("disks of 0.5 GB/s", 0.5e9), ("disks of 3 GB/s", 3e9), ("page cache", math.inf)):
        for operation in costs.bytes_per_s:
            size = break_even_bytes(costs, operation, Node(16, disk), 10)
            reported = "never" if size is None else f"{size / GIB:,.1f} GiB"
            lines.append(f"  {words:18} {operation:24} from {reported}")
    return lines


def _fleet(costs: Costs) -> list[str]:
    brokers, each_bytes, each_partitions = 1_000, 10 * TIB, 2_000
    lines = [
        f"{brokers:,} brokers x {each_bytes // TIB} TiB, {each_partitions:,} partitions each, 1 GiB segments"
    ]
    for words, nodes, node in (
        ("one machine of 64 cores, 10 GB/s", 1, Node(64, 10e9)),
        ("2 cores of each broker, disks of 0.5 GB/s", brokers, Node(2, 0.5e9)),
        ("2 cores of each broker, disks of 3 GB/s", brokers, Node(2, 3e9)),
        ("8 cores of each broker, disks of 3 GB/s", brokers, Node(8, 3e9)),
        ("8 cores of each broker, page cache", brokers, Node(8, math.inf)),
    ):
        for operation in costs.bytes_per_s:
            load = Load(operation, brokers * each_bytes, brokers * each_partitions, stuck_bytes=GIB)
            seconds = alone_s(costs, load, node) if nodes == 1 else cluster_s(costs, load, node, nodes)
            lines.append(f"  {words:42} {operation:24} {seconds / 3600:8.2f} h")
    tasks_s = tasks_of(load, brokers * node.cores) * costs.task_s
    units_s = load.partitions * costs.unit_s
    lines.append(f"  the driver: {units_s:.0f} s to plan, {tasks_s:.0f} s for {tasks_of(load, 1):,} tasks")
    return lines


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m bench.scale", description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--corpus", type=Path, default=corpus.DEFAULT_DIRECTORY, metavar="DIR")
    parser.add_argument("--empty-tasks", type=int, metavar="N", help="only time a job of N empty tasks")
    options = parser.parse_args()
    if options.empty_tasks:
        print(json.dumps(empty_tasks(options.empty_tasks)))
        return
    directory = options.corpus.resolve()
    with tempfile.TemporaryDirectory(dir=directory, prefix=".scale-") as scratch:
        print(report(measured(tools(directory, Path(scratch))), machine()))
    sys.stdout.flush()
    os._exit(0)


if __name__ == "__main__":
    main()
