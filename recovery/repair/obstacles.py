"""Directories, pipes and other special files that have the name of a log, or of a file that a broker or a repair must create; and logs that
may be missing, as far as names and sizes of files show it.

No policy restores missing logs or loses anything with them, but both remove the indexes that show which records they had. So a result of
`recover` says what was missing before.
"""

import os
from dataclasses import replace

from kseg.change.plan.steps import Plan, Rename, Write
from kseg.recovery.policy import Repair
from kseg.recovery.repair.target import RecoveryTarget
from kseg.recovery.verify.segment_chain import emptied_logs, lost_logs
from kseg.segment.errors import Refused, UnreadableInput, cannot_read
from kseg.segment.findings import Finding
from kseg.segment.partition.directory import Entry, partition_of
from kseg.segment.partition.names import Role, parse_file_name
from kseg.segment.storage import places

_NOT_KAFKAS = (Role.UNKNOWN, Role.KSEG_JOURNAL)


def obstacles(directory: str) -> list[str]:
    """Names of Kafka files in a partition that are not regular files. Raises UnreadableInput, also for a log among them: its content is
    missing, and a repair of the rest would remove its indexes. A log of Kafka 0.7 is none of the logs of a later broker."""
    try:
        with places.scandir(directory) as entries:
            is_file = {entry.name: entry.is_file() for entry in entries}
    except OSError as error:
        raise cannot_read(directory, error) from error
    names = [name for name, is_regular in is_file.items() if not is_regular]
    found = sorted(name for name in names if parse_file_name(name).role not in _NOT_KAFKAS)
    roles = {parsed.role for parsed in map(parse_file_name, is_file) if parsed.is_live}
    log_role = Role.LOG if Role.LOG in roles else Role.KAFKA07_LOG
    for name in found:
        parsed = parse_file_name(name)
        if parsed.is_live and parsed.role is log_role:
            raise UnreadableInput(f"cannot read {os.path.join(directory, name)}: not a regular file")
    return found


def with_obstacles(repair: Repair, directory: str, names: list[str]) -> Repair:
    """The same repair, with a doubt that names these obstacles."""
    if not names:
        return repair
    findings = [
        Finding(
            "unknown-file",
            os.path.join(directory, name),
            "it has the name of a file, but is not a regular file",
        )
        for name in names
    ]
    needs = "but a broker needs one with that name"
    if parse_file_name(names[0]).role is Role.KAFKA07_LOG:
        needs = "but has the name of a log of Kafka 0.7"
    doubt = repair.doubt or f"{names[0]} is not a regular file, {needs}; move it away"
    return replace(repair, findings=(*findings, *repair.findings), doubt=doubt)


def refuse_obstructed(plan: Plan, names: list[str]) -> None:
    """Raises Refused when a step would create a file with the name of an obstacle."""
    made = {step.name for step in plan.steps if isinstance(step, Write)}
    made |= {step.new_name for step in plan.steps if isinstance(step, Rename)}
    for name in names:
        if name in made:
            path = os.path.join(plan.directory, name)
            raise Refused(
                f"{path} is not a regular file, but the repair must create one with that name: move it away first"
            )


SEGMENT_MISSING = "segment-missing"


def may_lack_logs(target: RecoveryTarget) -> bool:
    """Whether a segment has indexes, and no log or an empty one."""
    if target.is_kafka07:
        return False
    entries = (
        Entry(
            os.path.join(target.directory, file.name),
            file.size_bytes,
            file.mtime_ns // 1_000_000,
            parse_file_name(file.name),
        )
        for file in target.inputs
    )
    directory = partition_of(target.directory, entries)
    return bool(lost_logs(directory) or emptied_logs(directory))
