"""Short looks at many paths, by tasks instead of the driver: on a shared file system each costs a way over the network.

The driver lists what was named itself, and learns the names of the partitions; what lies in each of them, and how large it
is, tasks find out where there are more than FEW.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from kseg.segment.values import dataclass
from kseg.spark import scheduling
from kseg.spark.session import NoCluster
from kseg.spark.visibility import Blind

if TYPE_CHECKING:
    from pyspark import SparkContext

FEW = 2000
LOOKS_PER_TASK = 500


@dataclass(frozen=True, slots=True)
class Errand:
    """What one task looks at. look: what it tells of a list of paths, one answer for each."""

    run: scheduling.TaskRun[Any, Any]
    look: Callable[[Sequence[str]], Sequence[Any]]
    paths: tuple[str, ...]


def go(errands: Iterable[Errand]) -> Iterator[Any]:
    """A task's life: the answer for each path, or that this node does not see what it should look at."""
    for errand in errands:
        blind = scheduling.arrive(errand.run)
        if blind is not None:
            yield blind
            return
        yield from errand.look(errand.paths)


def by_tasks(
    context: "SparkContext",
    run: scheduling.TaskRun[Any, Any],
    look: Callable[[Sequence[str]], Sequence[Any]],
    paths: Sequence[str],
) -> list[Any]:
    """The answer for each path, in their order. Raises NoCluster where a node does not see the files."""
    errands = [
        Errand(run, look, tuple(paths[at : at + LOOKS_PER_TASK]))
        for at in range(0, len(paths), LOOKS_PER_TASK)
    ]
    return seen(context.parallelize(errands, len(errands)).mapPartitions(go).collect())


def seen(answers: list[Any]) -> list[Any]:
    """The answers of tasks. Raises NoCluster where a node does not see the files."""
    for answer in answers:
        if isinstance(answer, Blind):
            raise NoCluster(answer.sentence)
    return answers
