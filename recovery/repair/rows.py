"""What `recover` says: a row for each step of a plan and one result for each partition (docs/json.md)."""

import os
from collections import deque
from collections.abc import Iterable, Iterator, Sequence

from kseg.change.plan.content import Fresh, Span
from kseg.change.plan.directory_image import DirectoryImage
from kseg.change.plan.steps import Plan, Remove, Write
from kseg.recovery.policy import Policy, Removed, Repair
from kseg.segment import layout as L
from kseg.segment.partition.names import Role, parse_file_name
from kseg.segment.scanning.lost_offsets import plus
from kseg.segment.values import dataclass

Row = dict[str, object]


@dataclass(frozen=True, slots=True)
class Unread:
    """ranges: offsets in valid batches that no fetch finds, in order (`reach`). records: in these, None when nobody can tell."""

    ranges: tuple[tuple[int, int], ...] = ()
    records: int | None = 0


NOTHING_UNREAD = Unread()


def result_row(partition: str, policy: Policy, repair: Repair, plan: Plan, costs: dict[str, Row]) -> Row:
    """The line `{"type":"result","command":"recover", …}` of the command contract, before anything is carried out."""
    return {
        "type": "result",
        "command": "recover",
        "partition": partition,
        "directory": plan.directory,
        "policy": policy.value,
        "applied": False,
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
        "doubt": repair.doubt or repair.left or repair.misplaced or None,
        "left_damaged": bool(repair.left and not repair.doubt),
        "misplaced": bool(repair.misplaced and not (repair.doubt or repair.left)),
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


def cost_row(repair: Repair, damage: Sequence[Removed] = (), unread: Unread = NOTHING_UNREAD) -> Row:
    """What a policy costs: bytes that leave the logs, valid batches among them, offsets and records lost (or not readable any
    more), and the bytes that stay though they cannot be read; or what the broker dies of. damage: the ranges that
    salvage takes out. unread: what stays and is sound, and no consumer gets."""
    if repair.death is not None:
        return {"dies_of": repair.death.kafka_exception}
    left = [*_left_of(damage, repair.image)]
    lost = _ranges(repair.removed)
    # what is damaged is lost by either policy, whether its bytes go or stay
    gone = [removed for removed in damage if not removed.batches and not _is_told(removed, repair.removed)]
    stays = sorted([*_ranges(gone), *unread.ranges])
    records = unread.records
    for removed in (*repair.removed, *gone):
        records = plus(records, removed.records)
    return {
        "bytes": repair.bytes_lost,
        "batches": sum(removed.batches for removed in repair.removed),
        "offsets": _count(lost, repair.kept) + _count(stays, lost),
        "records": records,
        "damaged_bytes_left": sum(length for _, length in left),
    }


def _is_told(damage: Removed, removed: Iterable[Removed]) -> bool:
    """Whether damage is part of what a policy takes out, with its offsets."""
    first, last = damage.first_offset, damage.last_offset
    if first is None or last is None:
        return damage.records == 0 or any(_covers(each, damage) for each in removed)
    return any(
        _covers(each, damage)
        and each.first_offset is not None
        and each.last_offset is not None
        and each.first_offset <= first <= last <= each.last_offset
        for each in removed
    )


def _covers(removed: Removed, damage: Removed) -> bool:
    end = removed.position + removed.length
    is_within = removed.position <= damage.position and damage.position + damage.length <= end
    return removed.file == damage.file and is_within


Range = tuple[int, int]


def _ranges(removed: Iterable[Removed]) -> list[Range]:
    """The offsets that go, in order."""
    return sorted(
        (each.first_offset, each.last_offset)
        for each in removed
        if each.first_offset is not None and each.last_offset is not None
    )


def _count(ranges: Sequence[Range], others: Sequence[Range]) -> int:
    """How many offsets lie in one of the ranges and in none of the others; both in order."""
    found, reach, rest = 0, -1, deque(others)
    for first, last in ranges:
        low = max(first, reach + 1)
        reach = max(reach, last)
        while low <= last:
            while rest and rest[0][1] < low:
                rest.popleft()
            if not rest or rest[0][0] > last:
                found += last - low + 1
                break
            found += max(0, rest[0][0] - low)
            low = rest[0][1] + 1
    return found


def _left_of(damage: Sequence[Removed], image: DirectoryImage) -> Iterator[tuple[Removed, int]]:
    """The damaged ranges that are still part of a live log of the image, and how many bytes of each."""
    by_source: dict[str, list[Removed]] = {}
    for removed in damage:
        by_source.setdefault(removed.file, []).append(removed)
    for name in image if by_source else ():
        if not name.endswith((L.LOG_SUFFIX, L.ANCIENT_SUFFIX)):
            continue
        for span in (piece for piece in image.content(name) if isinstance(piece, Span)):
            for removed in by_source.get(span.name, ()):
                end_position = min(span.end_position, removed.position + removed.length)
                length = end_position - max(span.position, removed.position)
                if length > 0:
                    yield removed, length


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
        "records": removed.records,
        "finding": removed.cause,
    }
