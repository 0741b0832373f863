"""Directories with the name of a file that a broker or a repair must create."""

import os
from dataclasses import replace

from kseg.change.plan.steps import Plan, Rename, Write
from kseg.recovery.policy import Repair
from kseg.segment.errors import Refused, cannot_read
from kseg.segment.findings import Finding
from kseg.segment.partition.names import Role, parse_file_name
from kseg.segment.storage import places


def obstacles(directory: str) -> list[str]:
    """Names of the directories in a partition that are named like Kafka's files. Raises UnreadableInput."""
    try:
        with places.scandir(directory) as entries:
            names = [entry.name for entry in entries if entry.is_dir(follow_symlinks=False)]
    except OSError as error:
        raise cannot_read(directory, error) from error
    return sorted(name for name in names if parse_file_name(name).role is not Role.UNKNOWN)


def with_obstacles(repair: Repair, directory: str, names: list[str]) -> Repair:
    """The same repair, with a doubt that names these directories as obstacles."""
    if not names:
        return repair
    findings = [
        Finding("unknown-file", os.path.join(directory, name), "a directory has the name of a file")
        for name in names
    ]
    doubt = (
        repair.doubt or f"{names[0]} is a directory, but a broker needs a file with that name; move it away"
    )
    return replace(repair, findings=(*findings, *repair.findings), doubt=doubt)


def refuse_obstructed(plan: Plan, names: list[str]) -> None:
    """Raises Refused when a step would create a file with the name of a directory."""
    made = {step.name for step in plan.steps if isinstance(step, Write)}
    made |= {step.new_name for step in plan.steps if isinstance(step, Rename)}
    for name in names:
        if name in made:
            path = os.path.join(plan.directory, name)
            raise Refused(
                f"{path} is a directory, but the repair must create a file with that name: move it away first"
            )
