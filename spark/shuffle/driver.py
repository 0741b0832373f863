"""The Spark jobs of a shuffled compaction, as the driver runs them: working directory, errors, cancellation.

A task that cannot read or write returns that as its result: three retries would not help, and Spark would bury the reason in its own
message. An unexpected exception fails the task, is retried by Spark, and ends the compaction if the retries fail too.
"""

import os
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Generic, TypeVar, cast

from kseg.segment.errors import KsegError
from kseg.segment.values import dataclass
from kseg.spark.session import NoCluster
from kseg.spark.shuffle.task_messages import enter_directory
from kseg.spark.task_errors import reason
from kseg.spark.visibility import FileSample, NotVisible, file_samples, first_not_visible

if TYPE_CHECKING:
    from pyspark import SparkContext

I = TypeVar("I")
R = TypeVar("R")


class Jobs:
    """Runs the jobs of a compaction of the partition at `path`."""

    def __init__(self, context: "SparkContext", path: str) -> None:
        self.context = context
        self._path = path
        self._marks = file_samples([path])
        self._tag = f"kseg-shuffle-{uuid.uuid4().hex}"

    def over(self, items: Sequence[I], work: Callable[[I], R]) -> list[R]:
        """The result of `work` for each item, in a task of its own. Raises the failure that a task reported, and NoCluster."""
        with self.running():
            rows = self.context.parallelize(items, max(1, len(items)))
            answers = rows.map(_Standing(os.getcwd(), self._marks, work)).collect()
        for answer in answers:
            if isinstance(answer, NotVisible):
                raise NoCluster(answer.sentence)
            if isinstance(answer, KsegError):
                raise answer
        return cast(list[R], answers)

    @contextmanager
    def running(self) -> Iterator[None]:
        """A context around a job: whatever ends the driver's part cancels the whole job. Raises NoCluster where Spark gives up."""
        self.context.addJobTag(self._tag)
        try:
            yield
        except Exception as error:  # Py4J's
            raise NoCluster(f"the cluster did not compact {self._path}: {reason(error)}") from error
        except BaseException:
            self.context.cancelJobsWithTag(self._tag)
            raise
        finally:
            self.context.removeJobTag(self._tag)


@dataclass(frozen=True, slots=True)
class _Standing(Generic[I, R]):
    """Work in the driver's directory, on a node that sees the driver's files."""

    directory: str
    marks: tuple[FileSample, ...]
    work: Callable[[I], R]

    def __call__(self, item: I) -> R | NotVisible | KsegError:
        enter_directory(self.directory)
        try:
            return first_not_visible(self.marks) or self.work(item)
        except KsegError as error:
            return error
