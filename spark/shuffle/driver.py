"""The jobs of a shuffled compaction, seen from the driver: where tasks stand, what becomes of errors, what ends them.

A task that cannot read or write says so as its answer: trying it three more times would change nothing, and the sentence
would be lost in what Spark says about it. What nobody foresaw fails the task, is tried again by Spark, and ends the
compaction when that is in vain.
"""

import os
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Generic, TypeVar, cast

from kseg.segment.errors import KsegError
from kseg.segment.values import dataclass
from kseg.spark.session import NoCluster
from kseg.spark.shuffle.task_messages import stand_in
from kseg.spark.task_errors import reason
from kseg.spark.visibility import Blind, Landmark, landmarks, unseen

if TYPE_CHECKING:
    from pyspark import SparkContext

I = TypeVar("I")
R = TypeVar("R")


class Jobs:
    """For the partition at `path`."""

    def __init__(self, context: "SparkContext", path: str) -> None:
        self.context = context
        self._path = path
        self._marks = landmarks([path])
        self._tag = f"kseg-shuffle-{uuid.uuid4().hex}"

    def over(self, items: Sequence[I], work: Callable[[I], R]) -> list[R]:
        """`work` of each item, in a task of its own. Raises what a task said it cannot do, NoCluster."""
        with self.running():
            rows = self.context.parallelize(items, max(1, len(items)))
            answers = rows.map(_Standing(os.getcwd(), self._marks, work)).collect()
        for answer in answers:
            if isinstance(answer, Blind):
                raise NoCluster(answer.sentence)
            if isinstance(answer, KsegError):
                raise answer
        return cast(list[R], answers)

    @contextmanager
    def running(self) -> Iterator[None]:
        """Around a job: whatever ends the driver's part of it ends all of it. Raises NoCluster where Spark gives up."""
        self.context.addJobTag(self._tag)
        try:
            yield
        except Exception as error:  # Py4J's
            raise NoCluster(f"{self._path} was not compacted by the cluster: {reason(error)}") from error
        except BaseException:
            self.context.cancelJobsWithTag(self._tag)
            raise
        finally:
            self.context.removeJobTag(self._tag)


@dataclass(frozen=True, slots=True)
class _Standing(Generic[I, R]):
    """Work where the driver stands, on a node that sees what it sees."""

    directory: str
    marks: tuple[Landmark, ...]
    work: Callable[[I], R]

    def __call__(self, item: I) -> R | Blind | KsegError:
        stand_in(self.directory)
        try:
            return unseen(self.marks) or self.work(item)
        except KsegError as error:
            return error
