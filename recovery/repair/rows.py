"""The results of `recover`: one for each partition, and one for each data directory (docs/json.md)."""

import os
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from typing import ClassVar

from kseg.change.plan.content import Fresh, Span
from kseg.change.plan.directory_image import DirectoryImage
from kseg.change.plan.steps import Plan, Remove, Write
from kseg.change.run.results import ChangeResult, Rows
from kseg.jobs.events import Failure
from kseg.recovery.policy import Policy, Removed, Repair
from kseg.recovery.repair.aligned_checkpoints import PartitionOutcome
from kseg.recovery.repair.lost_records import Lost, both_lost, lost_by_reading, lost_by_removal
from kseg.recovery.repair.meta_properties_repair import IdentityRepair
from kseg.segment import layout as L
from kseg.segment.diagnosis import MissingReplica
from kseg.segment.findings import Finding
from kseg.segment.partition.directory import own_partition_name
from kseg.segment.partition.names import Role, parse_file_name
from kseg.segment.values import dataclass

Row = dict[str, object]
Range = tuple[int, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class RecoverResult(ChangeResult):
    """The result of `recover` for one partition: the line `{"type":"result","command":"recover", …}` of docs/json.md."""

    command: ClassVar[str] = "recover"
    optional: ClassVar[tuple[str, ...]] = ("output", "room")

    partition: str
    directory: str
    policy: str
    applied: bool = False
    steps: int
    first_base_offset: int | None
    log_start_offset: int
    log_end_offset: int
    last_stable_offset: int | None
    recovery_point: int
    removed: Rows
    missing: Rows
    files_rebuilt: tuple[str, ...]
    files_removed: tuple[str, ...]
    costs: Mapping[str, Row]
    doubt: str | None
    left_damaged: bool
    misplaced: bool
    quarantine: str | None = None
    journal: str | None = None
    settings: Mapping[str, object]
    output: str | None = None
    room: Rows | None = None


def recover_result(
    partition: str,
    policy: Policy,
    repair: Repair,
    plan: Plan,
    costs: Mapping[str, Row],
    settings: Mapping[str, object],
    missing: Sequence[Finding] = (),
) -> RecoverResult:
    """The result before anything is carried out. costs: of both policies. settings: of the topic, and where they come from. missing: about
    logs that were missing or empty before."""
    return RecoverResult(
        partition=partition,
        directory=plan.directory,
        policy=policy.value,
        steps=len(plan.steps),
        first_base_offset=first_base_offset(repair),
        log_start_offset=repair.log_start_offset,
        log_end_offset=repair.log_end_offset,
        last_stable_offset=repair.last_stable_offset,
        recovery_point=repair.recovery_point,
        removed=tuple(_removed_row(plan.directory, removed) for removed in repair.removed),
        missing=tuple(
            {
                "file": finding.path,
                "first_offset": finding.first_offset,
                "last_offset": finding.last_offset,
                "finding": finding.id,
            }
            for finding in missing
        ),
        files_rebuilt=tuple(_path(plan, step.name) for step in plan.steps if _is_rebuilt(step)),
        files_removed=tuple(_path(plan, step.name) for step in plan.steps if isinstance(step, Remove)),
        costs=costs,
        doubt=repair.doubt or repair.left or repair.misplaced or None,
        left_damaged=bool(repair.left and not repair.doubt),
        misplaced=bool(repair.misplaced and not (repair.doubt or repair.left)),
        settings=settings,
    )


def log_dir_row(
    plan: Plan,
    done: Mapping[str, object],
    doubts: Sequence[str] = (),
    missing: Sequence[Finding] = (),
    identity: IdentityRepair | None = None,
) -> dict[str, object]:
    """The result for a data directory's own files. doubts: why a broker would still not start with it, as clauses. missing:
    replicas that the metadata log places there. identity: the repair of its meta.properties, None if there is none."""
    return {
        "type": "result",
        "command": plan.command,
        "log_dir": plan.directory,
        "directory": plan.directory,
        "steps": len(plan.steps),
        "doubt": "; ".join(doubts) or None,
        "options_needed": [] if identity is None else [*identity.needed],
        "log_dirs_needed": [] if identity is None else [*identity.together],
        "replicas_missing": [
            {
                "partition": os.path.basename(finding.path),
                "finding": finding.id,
                "set_aside": finding.diagnosis.set_aside
                if isinstance(finding.diagnosis, MissingReplica)
                else None,
            }
            for finding in missing
        ],
        **done,
    }


def first_base_offset(repair: Repair) -> int | None:
    """The base offset of the first segment of a repaired partition, None if it has none."""
    numbers = [
        name.base_offset
        for name in map(parse_file_name, repair.image)
        if name.role in (Role.LOG, Role.KAFKA07_LOG) and name.is_live and name.base_offset is not None
    ]
    return min(numbers, default=None)


def cost_row(repair: Repair, damage: Sequence[Removed] = (), lost: Lost | None = None) -> Row:
    """The cost of a policy: bytes that leave the logs, valid batches among them, offsets and records that consumers no longer receive, and
    the bytes that stay although they cannot be read; or the exception on which the broker fails.

    damage: the ranges that salvage removes. lost: of everything removed or damaged, whether its bytes stay or not; None when unknown.
    """
    if repair.load_failure is not None:
        return {"dies_of": repair.load_failure.kafka_exception}
    kept: Sequence[Range] = ()
    if lost is None:
        stays = (each for each in damage if not each.batches and not _is_covered(each, repair.removed))
        removed = lost_by_removal((*repair.removed, *stays))
        lost, kept = both_lost(removed, lost_by_reading(repair.unread)), repair.kept
    offsets = _count(lost.ranges, kept)
    at_most = offsets if lost.records is None and lost.is_bounded else lost.records
    return {
        "bytes": repair.bytes_lost,
        "batches": sum(removed.batches for removed in repair.removed),
        "offsets": offsets,
        "records": lost.records,
        "records_at_most": at_most,
        # a valid batch that salvage removes is a copy or out of order: consumers read past it
        "damaged_bytes_left": sum(
            length for each, length in _left_of(damage, repair.image) if not each.batches
        ),
    }


def _is_covered(damage: Removed, removed: Sequence[Removed]) -> bool:
    """Whether the ranges that a policy removes contain the damage and its offsets."""
    return any(_covers(each, damage) for each in removed)


def _covers(removed: Removed, damage: Removed) -> bool:
    end = removed.position + removed.length
    is_within = removed.position <= damage.position and damage.position + damage.length <= end
    return removed.file == damage.file and is_within


def _count(ranges: Sequence[Range], others: Sequence[Range]) -> int:
    """The number of offsets in the ranges that are in none of the others; both are sorted."""
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
    """The damaged ranges that remain in a live log of the image, each with its number of bytes."""
    by_source: dict[str, list[Removed]] = {}
    for removed in damage:
        by_source.setdefault(removed.file, []).append(removed)
    for name in image if by_source else ():
        if not name.endswith((L.LOG_SUFFIX, L.KAFKA07_SUFFIX)):
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


def outcome_of(result: RecoverResult) -> PartitionOutcome | None:
    name = own_partition_name(result.directory)
    if name is None:
        return None
    has_log = result.first_base_offset is not None  # a partition may have no log
    return PartitionOutcome(
        name=name,
        first_base_offset=result.first_base_offset or 0,
        log_start_offset=result.log_start_offset if has_log else 0,
        log_end_offset=result.log_end_offset if has_log else 0,
        recovery_point=result.recovery_point if has_log else 0,
        changed=bool(result.steps),
        loses_bytes=bool(result.removed),
        doubt=result.doubt or "",
        is_misplaced=result.misplaced,
        is_left_damaged=result.left_damaged,
        is_known=has_log,
    )


def outcome_of_failure(failure: Failure) -> PartitionOutcome | None:
    name = own_partition_name(failure.path)
    if name is None:
        return None
    return PartitionOutcome(
        name=name,
        first_base_offset=0,
        log_start_offset=0,
        log_end_offset=0,
        recovery_point=0,
        doubt=f"cannot be recovered: {failure.sentence}",
        is_known=False,
    )
