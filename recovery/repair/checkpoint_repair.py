"""The checkpoints of a data directory after its partitions were repaired: they must agree with the logs (`aligned_checkpoints`)."""

import os
from collections.abc import Collection, Iterator, Mapping, Sequence

from kseg.change.plan.directory_image import DirectoryImage
from kseg.recovery.policy import Policy
from kseg.recovery.repair.aligned_checkpoints import AlignedCheckpoint, Key, PartitionOutcome, align
from kseg.recovery.repair.clean_shutdown_marker import Marker, listed
from kseg.recovery.verify.partition_files import BEYOND_LOG, CHECKPOINT_WORDS, is_of_deleted_log
from kseg.segment.files import read_small
from kseg.segment.findings import Finding
from kseg.segment.partition.directory import partitions_in
from kseg.segment.partition.log_dir_state import read_log_dir_state
from kseg.segment.partition.log_start_trace import log_start_trace
from kseg.segment.partition.names import NAME_BY_ROLE, OFFSET_CHECKPOINT_ROLES, PartitionState, Role
from kseg.segment.sidecar.checkpoint import encode_offset_checkpoint

_CHECKPOINT_WORDS = {
    Role.RECOVERY_POINTS: "recovery points",
    Role.HIGH_WATERMARKS: "high watermarks",
    Role.LOG_START_OFFSETS: "log start offsets",
    Role.CLEANER_OFFSETS: "first dirty offsets",
}


def repaired_checkpoints(
    log_dir: str,
    image: DirectoryImage,
    why: dict[str, str],
    outcomes: Sequence[PartitionOutcome],
    policy: Policy,
    mark_clean: bool,
    marker: Marker | None,
    missing: Collection[Key],
) -> Iterator[Finding]:
    """Write the checkpoints that must change into the image; returns what was wrong with them."""
    names = [name for _, name in partitions_in(log_dir)]
    states = (PartitionState.LIVE, PartitionState.FUTURE)
    present = {*missing, *((name.topic, name.partition) for name in names if name.state in states)}
    lost = read_log_dir_state(log_dir).lost_among(names)
    is_vouched_for = marker is not None and not any(
        outcome.doubt or outcome.loses_bytes for outcome in outcomes
    )
    for role in OFFSET_CHECKPOINT_ROLES:
        name = NAME_BY_ROLE[role]
        data = read_small(os.path.join(log_dir, name)) if name in image else None
        problem, traces = "", dict[tuple[str, int], int]()
        if role in lost:
            traces = _traces(log_dir, role)
            problem = _loss(data) if marker is not None or traces or mark_clean else ""
        aligned = align(
            role,
            data,
            outcomes,
            present,
            policy,
            mark_clean=mark_clean or (role in lost and is_vouched_for),
            problem=problem,
            traces=traces,
        )
        if not aligned.is_due:
            continue
        image.write(name, encode_offset_checkpoint(aligned.entries), name if name in image else None)
        why[name] = _reason(role, aligned)
        # a broker killed before its first checkpoint has lost nothing, but after a clean shutdown the file must exist
        is_lost = marker is not None or bool(traces) or not aligned.is_readable
        yield from _findings(log_dir, role, aligned, {o.name.text: o for o in outcomes}, is_lost=is_lost)


def _loss(data: bytes | None) -> str:
    return "it is missing, although a clean shutdown writes one" if data is None else "it is empty"


def _traces(log_dir: str, role: Role) -> dict[tuple[str, int], int]:
    """Entries of a lost checkpoint, derived from the partitions."""
    found = {}
    for directory, name in partitions_in(log_dir) if role is Role.LOG_START_OFFSETS else ():
        if name.state is PartitionState.LIVE and not name.is_metadata_log:
            trace = log_start_trace(os.path.join(log_dir, directory))
            if trace is not None:
                found[name.topic, name.partition] = trace.offset
    return found


def _reason(role: Role, aligned: AlignedCheckpoint) -> str:
    words = []
    if aligned.problem:
        words.append(aligned.problem if aligned.is_readable else f"it cannot be read ({aligned.problem})")
    if aligned.changes:
        changes = listed([change.words for change in aligned.changes])
        words.append(f"{_CHECKPOINT_WORDS[role]} aligned with the logs: {changes}")
    if aligned.dropped:
        dropped = listed([f"{entry.topic}-{entry.partition}" for entry in aligned.dropped])
        words.append(f"no log here for {dropped}")
    return "; ".join(words)


def _findings(
    log_dir: str,
    role: Role,
    aligned: AlignedCheckpoint,
    outcomes: Mapping[str, PartitionOutcome],
    *,
    is_lost: bool,
) -> Iterator[Finding]:
    path = os.path.join(log_dir, NAME_BY_ROLE[role])
    if aligned.problem and is_lost:
        kind = "checkpoint-lost" if aligned.is_readable else "checkpoint-corrupt"
        yield Finding(kind, path, aligned.problem)
    for change in aligned.changes:
        outcome = outcomes[change.partition]
        if change.old is None:
            continue
        if change.old > outcome.log_end_offset:
            if is_of_deleted_log(log_dir, outcome.name, role, change.old):
                continue
            kind, where = BEYOND_LOG[role], f"its log ends at {outcome.log_end_offset}"
        elif change.old < outcome.log_start_offset:
            kind, where = "checkpoint-below-log", f"its log starts at {outcome.log_start_offset}"
        else:
            continue
        message = f"{CHECKPOINT_WORDS[role]} of {change.partition} is {change.old}, but {where}"
        yield Finding(kind, path, message, first_offset=change.old)
