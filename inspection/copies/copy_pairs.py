"""Pair the directories of one copy with those of the other.

Partitions of data directories are paired by name. A single partition directory (or segment file) is compared with the other one whatever
their names are, so that `orders-0` can be compared with `orders-0.before`; if the other path is a data directory, it is compared with the
partition of the same name there.
"""

import os
from collections.abc import Sequence
from dataclasses import replace

from kseg.segment.errors import UsageError
from kseg.segment.partition.directory import own_partition_name
from kseg.segment.partition.names import PartitionState
from kseg.segment.partition.targets import LogDirTarget, LogTarget, PartitionTarget, Target, resolve_targets
from kseg.segment.storage import places
from kseg.segment.values import dataclass


@dataclass(frozen=True, slots=True)
class CopyPair:
    """Two copies of a partition; None for a missing one. name: `topic-partition`, or the name of the directory. jobs: processes for the
    pair."""

    name: str
    a: LogTarget | None
    b: LogTarget | None
    jobs: int = 1

    @property
    def targets(self) -> tuple[LogTarget, ...]:
        return tuple(each for each in (self.a, self.b) if each is not None)

    @property
    def path(self) -> str:
        """The path of A, or of B if A has no such partition."""
        return self.targets[0].path


def pair_up(
    paths: Sequence[str], targets: Sequence[Target], *, is_narrowed: bool, jobs: int = 1
) -> list[CopyPair]:
    """The pairs by name; a single pair gets all jobs.

    paths: A and B. targets: the expansion of both. is_narrowed: only some partitions were requested, so a copy may have none of
    them. Raises UsageError, and UnreadableInput when a copy contains no Kafka files.
    """
    pairs = _paired(paths, targets, is_narrowed=is_narrowed)
    return [replace(pairs[0], jobs=jobs)] if len(pairs) == 1 else pairs


def _paired(paths: Sequence[str], targets: Sequence[Target], *, is_narrowed: bool) -> list[CopyPair]:
    roots = [os.path.join(places.given(path), "") for path in paths]
    if roots[0] == roots[1] or _is_same(paths):
        raise UsageError("A and B are the same directory: kseg diff compares two copies")
    if roots[0].startswith(roots[1]) or roots[1].startswith(roots[0]):
        raise UsageError(
            "one of the two copies is inside the other: kseg diff takes two separate directories"
        )
    sides: tuple[list[LogTarget], list[LogTarget]] = [], []
    for target in targets:
        if not isinstance(target, LogDirTarget):
            sides[0 if f"{target.path}{os.sep}".startswith(roots[0]) else 1].append(target)
    for path, side in zip(paths, sides, strict=True):
        if not side and not is_narrowed:
            resolve_targets([path])  # raises an error that says why there is nothing
    alone = [len(side) == 1 and _is_alone(root, side) for root, side in zip(roots, sides, strict=True)]
    if all(alone):
        return [CopyPair(_name(sides[0][0]), sides[0][0], sides[1][0])]
    for own, other, path in ((0, 1, paths[1]), (1, 0, paths[0])):
        if alone[own]:  # one partition, and a data directory that contains it
            name = _name(sides[own][0])
            sides[other][:] = [target for target in sides[other] if _name(target) == name]
            if not sides[other] and not is_narrowed:
                raise UsageError(
                    f"{path} has no {name}, which {paths[own]} is: name the directory to compare it with"
                )
    a, b = (_by_name(path, side) for path, side in zip(paths, sides, strict=True))
    return [CopyPair(name, a.get(name), b.get(name)) for name in sorted(a.keys() | b.keys(), key=_order)]


def _is_same(paths: Sequence[str]) -> bool:
    first, second = map(places.realpath, paths)
    return first == second


def _is_alone(root: str, side: Sequence[LogTarget]) -> bool:
    """Whether the given path is that of the log itself."""
    return os.path.join(side[0].path, "") == root


def _by_name(path: str, side: Sequence[LogTarget]) -> dict[str, LogTarget]:
    found: dict[str, LogTarget] = {}
    for target in side:
        name = _name(target)
        if name in found:
            raise UsageError(
                f"{path} holds {name} twice ({found[name].path} and {target.path}): name one of their log dirs"
            )
        found[name] = target
    return found


def _name(target: LogTarget) -> str:
    """`topic-partition` for a live partition, otherwise the name of its directory or file."""
    base = os.path.basename(places.abspath(target.path))
    name = own_partition_name(target.path) if isinstance(target, PartitionTarget) else None
    return name.text if name is not None and name.state is PartitionState.LIVE else base


def _order(name: str) -> tuple[str, int, str]:
    topic, _, number = name.rpartition("-")
    return (topic, int(number), name) if number.isascii() and number.isdecimal() else (name, -1, name)
