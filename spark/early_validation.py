"""Validate parts of very large logs by many tasks, before the tasks that process the logs; otherwise one core would still be working
when the others have finished.

The ranges that the early tasks found valid are passed along with the units (`scheduling.Unit`), and the work skips them.
"""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any, Generic, TypeVar

from kseg.jobs.guarded import Named
from kseg.jobs.log_splitting import Part, Prevalidatable
from kseg.segment.errors import KsegError
from kseg.segment.values import dataclass
from kseg.spark import scheduling
from kseg.spark.scheduling import MAX_SHARE_BYTES, SHARES_PER_CORE, TaskRun, Unit, enter_run
from kseg.spark.visibility import NotVisible

T = TypeVar("T", bound=Named)
O = TypeVar("O")


MIN_PREVALIDATED_BYTES = 64 * 1024 * 1024


PREVALIDATED_COST_DIVISOR = 4  # the factor by which prevalidation reduces the work of a task


@dataclass(frozen=True, slots=True)
class PrevalidationTask(Generic[T, O]):
    """The parts that one task validates, each with the number of its target."""

    run: TaskRun[T, O]
    parts: tuple[tuple[int, Part], ...]


def prevalidation_tasks(
    run: TaskRun[T, O], units: Sequence[Unit[T]], cores: int
) -> list[PrevalidationTask[T, O]]:
    """The parts worth validating: of the logs of targets that would each occupy a core after the others have finished."""
    work = run.work
    if cores < 2 or not isinstance(work, Prevalidatable):
        return []
    fair_bytes = sum(unit.weight_bytes for unit in units) // (2 * cores)
    part_bytes = max(scheduling.PIECE_BYTES, fair_bytes // SHARES_PER_CORE)
    parts = [
        (unit.number, part)
        for unit in units
        if unit.weight_bytes >= max(MIN_PREVALIDATED_BYTES, fair_bytes)
        for part in _parts(work, run.options, unit.target, min(part_bytes, MAX_SHARE_BYTES))
    ]
    groups: list[list[tuple[int, Part]]] = []
    filled = part_bytes
    for number, part in parts:
        size_bytes = part.stop - part.start
        if filled + size_bytes / 2 > part_bytes:
            groups.append([])
            filled = 0
        groups[-1].append((number, part))
        filled += size_bytes
    return [PrevalidationTask(run, tuple(group)) for group in groups]


def _parts(work: Prevalidatable, options: object, target: object, part_bytes: int) -> list[Part]:
    try:
        return work.parts(target, options, part_bytes)
    except (OSError, KsegError):
        return []  # the work on the target reports the problem


def prevalidate(
    prevalidation_tasks: Iterable[PrevalidationTask[T, O]],
) -> Iterator[tuple[int, Any] | NotVisible]:
    """Run in a task: the valid spans of some parts, each with the number of its target."""
    for prevalidation in prevalidation_tasks:
        not_visible = enter_run(prevalidation.run)
        if not_visible is not None:
            yield not_visible
            return
        work = prevalidation.run.work
        assert isinstance(work, Prevalidatable)
        for number, part in prevalidation.parts:
            with suppress(OSError, KsegError):
                yield number, work.claim(part, prevalidation.run.options)


def with_validated_spans(units: Sequence[Unit[T]], claims: Iterable[tuple[int, Any]]) -> list[Unit[T]]:
    """The units with their valid spans, and with the lower weight that is left."""
    found: dict[int, list[Any]] = {}
    for number, claim in claims:
        found.setdefault(number, []).append(claim)
    return [
        replace(
            unit,
            claims=tuple(found[unit.number]),
            weight_bytes=unit.weight_bytes // PREVALIDATED_COST_DIVISOR,
        )
        if unit.number in found
        else unit
        for unit in units
    ]
