"""A fake Spark context that runs tasks in this process, for tests that do not depend on Spark itself."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterable, Sequence
from typing import Any


class Pretended:
    """The methods of a context that `kseg.spark.cluster_fanout` uses. tasks: the number of tasks of each job."""

    master = "local[2]"
    defaultParallelism = 2

    def __init__(self) -> None:
        self.tasks: list[int] = []

    def parallelize(self, shares: Sequence[Any], count: int) -> Parts:
        self.tasks.append(count)
        return Parts([[share] for share in shares])

    def addJobTag(self, _tag: str) -> None: ...

    def removeJobTag(self, _tag: str) -> None: ...

    def cancelJobsWithTag(self, _tag: str) -> None: ...


class Parts:
    """An RDD that is computed at once. Inputs and outputs are pickled as on a cluster."""

    def __init__(self, parts: list[list[Any]]) -> None:
        self._parts = parts

    def mapPartitions(self, life: Callable[[Iterable[Any]], Iterable[Any]]) -> Parts:
        sent = pickle.dumps((life, self._parts))
        arrived, parts = pickle.loads(sent)
        return Parts(pickle.loads(pickle.dumps([list(arrived(part)) for part in parts])))

    def collect(self) -> list[Any]:
        return [each for part in self._parts for each in part]

    def persist(self, _level: object) -> None: ...

    def unpersist(self) -> None: ...
