"""Query many paths (size, kind) by tasks instead of the driver: on a shared file system each query is a network round trip.

The driver lists the given paths and the names of the partitions. If there are more than MAX_DRIVER_PROBES, tasks determine the contents
and sizes of the partitions.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from kseg.segment.values import dataclass
from kseg.spark import scheduling
from kseg.spark.session import NoCluster
from kseg.spark.visibility import NotVisible

if TYPE_CHECKING:
    from pyspark import SparkContext

MAX_DRIVER_PROBES = 2000
PROBES_PER_TASK = 500


@dataclass(frozen=True, slots=True)
class ProbeTask:
    """The paths of one task. probe: returns one answer for each path of a list."""

    run: scheduling.TaskRun[Any, Any]
    probe: Callable[[Sequence[str]], Sequence[Any]]
    paths: tuple[str, ...]


def run_probes(tasks: Iterable[ProbeTask]) -> Iterator[Any]:
    """Run in a task: the answer for each path, or the report that this node does not see the files."""
    for task in tasks:
        not_visible = scheduling.enter_run(task.run)
        if not_visible is not None:
            yield not_visible
            return
        yield from task.probe(task.paths)


def probe_on_cluster(
    context: "SparkContext",
    run: scheduling.TaskRun[Any, Any],
    probe: Callable[[Sequence[str]], Sequence[Any]],
    paths: Sequence[str],
) -> list[Any]:
    """The answer for each path, in order. Raises NoCluster if a node does not see the files."""
    tasks = [
        ProbeTask(run, probe, tuple(paths[at : at + PROBES_PER_TASK]))
        for at in range(0, len(paths), PROBES_PER_TASK)
    ]
    return require_visible(context.parallelize(tasks, len(tasks)).mapPartitions(run_probes).collect())


def require_visible(answers: list[Any]) -> list[Any]:
    """The answers of tasks. Raises NoCluster if a node reported that it does not see the files."""
    for answer in answers:
        if isinstance(answer, NotVisible):
            raise NoCluster(answer.sentence)
    return answers
