"""Compare a shuffled compaction with the local one, on a replacement for Spark that works in this process.

`InProcess` has the few methods of a SparkContext that are needed. Whatever a cluster would send is pickled, and each task starts with
copies, so hundreds of random logs can be compared without a cluster. Separate tests cover what only a cluster does.
"""

from __future__ import annotations

import pickle
import random
import shutil
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, cast

from kseg.compaction.cleaner.options import CompactOptions
from kseg.jobs.events import Event, Failure, Row
from kseg.segment.findings import Finding
from kseg.segment.partition.targets import PartitionTarget
from kseg.spark.shuffle.compact import compact_by_shuffle
from tests.support.one_target import compact
from tests.support.trees import files_in


def travelled(thing: Any) -> Any:
    return pickle.loads(pickle.dumps(thing))


class Rows:
    """Partitions that are computed on demand."""

    def __init__(self, count: int, partition: Callable[[int], Iterable[Any]]) -> None:
        self.count = count
        self.partition = partition

    def mapPartitionsWithIndex(self, work: Callable[[int, Iterator[Any]], Iterable[Any]]) -> Rows:
        return Rows(self.count, lambda at: travelled(work)(at, iter(self.partition(at))))

    def mapPartitions(self, work: Callable[[Iterator[Any]], Iterable[Any]]) -> Rows:
        return Rows(self.count, lambda at: travelled(work)(iter(self.partition(at))))

    def flatMap(self, work: Callable[[Any], Iterable[Any]]) -> Rows:
        return self.mapPartitions(_Each(work))

    def map(self, work: Callable[[Any], Any]) -> Rows:
        return self.mapPartitions(_One(work))

    def partitionBy(self, count: int, place: Callable[[Any], int]) -> Rows:
        found: list[list[Any]] | None = None

        def partition(at: int) -> Iterable[Any]:
            nonlocal found
            if found is None:
                found = [[] for _ in range(count)]
                pairs = [pair for each in range(self.count) for pair in self.partition(each)]
                # Spark does not define their order
                random.Random(count).shuffle(pairs)
                for pair in pairs:
                    found[place(pair[0]) % count].append(travelled(pair))
            return iter(found[at])

        return Rows(count, partition)

    def collect(self) -> list[Any]:
        return [travelled(each) for at in range(self.count) for each in self.partition(at)]


@dataclass
class _Each:
    work: Callable[[Any], Iterable[Any]]

    def __call__(self, items: Iterator[Any]) -> Iterator[Any]:
        for item in items:
            yield from self.work(item)


@dataclass
class _One:
    work: Callable[[Any], Any]

    def __call__(self, items: Iterator[Any]) -> Iterator[Any]:
        return map(self.work, items)


@dataclass
class Shared:
    """A broadcast value."""

    value: Any

    def destroy(self) -> None:
        pass


class InProcess:
    """The methods of a SparkContext that a compaction uses."""

    defaultParallelism = 2
    _jsc = None

    def parallelize(self, items: Iterable[Any], count: int) -> Rows:
        given = list(items)
        return Rows(
            count, lambda at: map(travelled, given[at::count]) if count < len(given) else _own(given, at)
        )

    def runJob(self, rows: Rows, work: Callable[[Any], Iterable[Any]], partitions: list[int]) -> list[Any]:
        return [travelled(each) for at in partitions for each in work(iter(rows.partition(at)))]

    def broadcast(self, value: Any) -> Shared:
        return Shared(value)

    def addJobTag(self, tag: str) -> None:
        pass

    def removeJobTag(self, tag: str) -> None:
        pass


def _own(given: list[Any], at: int) -> list[Any]:
    return [travelled(given[at])] if at < len(given) else []


# --- comparing


def shuffled(directory: Path, options: CompactOptions, context: Any = None) -> list[Event]:
    """The events of a shuffled compaction, run in this process or by the context of a session."""
    target = PartitionTarget(str(directory))
    return list(compact_by_shuffle(target, options, cast(Any, context or InProcess())))


def local(directory: Path, options: CompactOptions) -> list[Event]:
    return list(compact(PartitionTarget(str(directory)), options))


def output(events: list[Event], directory: Path) -> tuple[list[str], Counter[str]]:
    """Events as text, without the name of the directory, and separately the rows of keys, whose order is not defined."""
    texts = [repr(event).replace(str(directory), "<directory>") for event in events]
    is_key = [isinstance(event, Row) and event.values["type"] == "key" for event in events]
    keys = Counter(text for text, is_one in zip(texts, is_key, strict=True) if is_one)
    return [text for text, is_one in zip(texts, is_key, strict=True) if not is_one], keys


def result_of(events: list[Event]) -> dict[str, Any]:
    (result,) = (dict(e.values) for e in events if isinstance(e, Row) and e.values["type"] == "result")
    return result


def has_failed(events: list[Event]) -> bool:
    return any(isinstance(event, Failure) for event in events)


def kinds(events: list[Event]) -> set[str]:
    return {event.id for event in events if isinstance(event, Finding)}


def assert_same(
    directory: Path, options: CompactOptions, context: Any = None, *, only_applied: bool = False
) -> tuple[list[Event], list[Event]]:
    """Check that plan and result equal the local ones, in events and in every file. Returns the events of the plan.

    The directory stays unchanged; both results are written beside it.
    """
    plans: tuple[list[Event], list[Event]] = ([], [])
    if not only_applied:
        plans = local(directory, options), shuffled(directory, options, context)
        assert output(plans[1], directory) == output(plans[0], directory)
    applied = replace(options, apply=True, run_id="run")
    made = []
    for name in ("local", "shuffled"):
        copy = directory.parent / f"{directory.name}-{name}" / directory.name
        shutil.rmtree(copy.parent, ignore_errors=True)
        shutil.copytree(directory, copy)
        done = local(copy, applied) if name == "local" else shuffled(copy, applied, context)
        made.append((output(done, copy), files_in(copy)))
        if (copy / ".kseg").exists():
            assert [path.name for path in (copy / ".kseg").iterdir()] == ["run"]
    assert made[1] == made[0]
    return plans
