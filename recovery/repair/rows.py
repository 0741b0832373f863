"""What `recover` says: a row for each step of a plan and one result for each partition (docs/json.md)."""

import os
from collections.abc import Sequence

from kseg.recovery.policy import Policy, Removed, Repair
from kseg.segment import layout as L
from kseg.segment.partition.names import Role, parse_file_name
from kseg.segment.plan.image import DirectoryImage
from kseg.segment.plan.pieces import Fresh, Span
from kseg.segment.plan.steps import Plan, Remove, Write, step_row, step_words

Row = dict[str, object]


def step_rows(partition: str, plan: Plan) -> list[Row]:
    """One line for each step, in order; `words` is the step as a sentence."""
    return [
        {
            "type": "step",
            "command": plan.command,
            "partition": partition,
            **step_row(step),
            "words": step_words(step),
        }
        for step in plan.steps
    ]


def result_row(
    partition: str, policy: Policy, repair: Repair, plan: Plan, costs: dict[str, Row], *, applied: bool
) -> Row:
    """The line `{"type":"result","command":"recover", …}` of the command contract, before journal and quarantine
    are known."""
    return {
        "type": "result",
        "command": "recover",
        "partition": partition,
        "directory": plan.directory,
        "policy": policy.value,
        "applied": applied,
        "steps": len(plan.steps),
        "first_base_offset": first_base_offset(repair),
        "log_start_offset": repair.log_start_offset,
        "log_end_offset": repair.log_end_offset,
        "last_stable_offset": repair.last_stable_offset,
        "recovery_point": repair.recovery_point,
        "removed": [_removed_row(plan.directory, removed) for removed in repair.removed],
        "files_rebuilt": [_path(plan, step.name) for step in plan.steps if _is_rebuilt(step)],
        "files_removed": [_path(plan, step.name) for step in plan.steps if isinstance(step, Remove)],
        "costs": costs,
        "doubt": repair.doubt or None,
        "quarantine": None,
        "journal": None,
    }


def first_base_offset(repair: Repair) -> int | None:
    """The number of the first segment of a repaired partition, None when it has none."""
    numbers = [
        name.base_offset
        for name in map(parse_file_name, repair.image)
        if name.role in (Role.LOG, Role.ANCIENT_LOG) and name.is_live and name.base_offset is not None
    ]
    return min(numbers, default=None)


def cost_row(repair: Repair, damage: Sequence[Removed] = ()) -> Row:
    """What a policy costs: bytes that leave the logs, valid batches among them, offsets lost, and the bytes that stay
    though they cannot be read; or what the broker dies of. damage: the ranges that salvage takes out."""
    if repair.death is not None:
        return {"dies_of": repair.death.kafka_exception}
    offsets = sum(
        removed.last_offset - removed.first_offset + 1
        for removed in repair.removed
        if removed.first_offset is not None and removed.last_offset is not None
    )
    return {
        "bytes": repair.bytes_lost,
        "batches": sum(removed.batches for removed in repair.removed),
        "offsets": offsets,
        "damaged_bytes_left": _left_of(damage, repair.image),
    }


def _left_of(damage: Sequence[Removed], image: DirectoryImage) -> int:
    """How many bytes of the damaged ranges are still part of a live log of the image."""
    by_source: dict[str, list[Removed]] = {}
    for removed in damage:
        by_source.setdefault(removed.file, []).append(removed)
    return sum(
        max(
            0,
            min(span.end_position, removed.position + removed.length) - max(span.position, removed.position),
        )
        for name in image
        if by_source and name.endswith((L.LOG_SUFFIX, L.ANCIENT_SUFFIX))
        for span in image.content(name)
        if isinstance(span, Span)
        for removed in by_source.get(span.name, ())
    )


def _is_rebuilt(step: object) -> bool:
    return isinstance(step, Write) and all(isinstance(piece, Fresh) for piece in step.content)


def _path(plan: Plan, name: str) -> str:
    return os.path.join(plan.directory, name)


def _removed_row(directory: str, removed: Removed) -> Row:
    return {
        "file": os.path.join(directory, removed.file),
        "position": removed.position,
        "length": removed.length,
        "first_offset": removed.first_offset,
        "last_offset": removed.last_offset,
        "batches": removed.batches,
        "finding": removed.cause,
    }
