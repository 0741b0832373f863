"""Copy the checkpoint entries of copied partitions: log start, recovery point, high watermark and first dirty offset.

They are in files of the data directory, one line per partition; a partition directory alone has none of them. Given only the
directory, a broker begins at the base offset of the first segment, and records deleted below the log start reappear. So the
output directory gets checkpoint files with the lines of these partitions. Existing lines of earlier copies stay.
"""

import os
from collections.abc import Iterable, Mapping

from kseg.change.apply.copy import write_files
from kseg.change.apply.journal_location import JournalLocation
from kseg.change.apply.staging import OURS
from kseg.change.plan.content import Fresh, content_of
from kseg.change.plan.inputs import inputs_of
from kseg.change.plan.steps import Plan, Remove, Step, Write
from kseg.segment.errors import FormatError, Refused, UnreadableInput
from kseg.segment.files import read_small
from kseg.segment.partition.names import NAME_BY_ROLE, OFFSET_CHECKPOINT_ROLES, Role, parse_file_name
from kseg.segment.sidecar.checkpoint import (
    decode_offset_checkpoint,
    encode_offset_checkpoint,
    offsets_by_partition,
    with_offsets,
)

Key = tuple[str, int]
Carried = dict[Role, dict[Key, int]]  # by topic and partition


def entries_of(log_dir: str, partitions: Iterable[Key]) -> Carried:
    """The checkpoint entries of some partitions of a data directory. An unreadable checkpoint has none."""
    wanted = set(partitions)
    carried: Carried = {}
    for role in OFFSET_CHECKPOINT_ROLES:
        try:
            data = read_small(os.path.join(log_dir, NAME_BY_ROLE[role]))
            found = offsets_by_partition(decode_offset_checkpoint(data))
        except (FormatError, UnreadableInput):
            continue
        carried[role] = {key: offset for key, offset in found.items() if key in wanted}
    return carried


def carry(
    carried: Mapping[Role, Mapping[Key, int]],
    partitions: Iterable[Key],
    output: str,
    journal: JournalLocation | None,
) -> None:
    """Write checkpoint files beside copies of partitions. journal: of the run (`copy_journal`). Raises Refused when an existing one cannot
    be read or written."""
    copied = dict.fromkeys(partitions)
    lying = tuple(file for file in inputs_of(output) if parse_file_name(file.name).role not in OURS)
    steps: list[Step] = []
    for role in OFFSET_CHECKPOINT_ROLES:
        name = NAME_BY_ROLE[role]
        path = os.path.join(output, name)
        try:
            found = decode_offset_checkpoint(read_small(path)) if os.path.lexists(path) else ()
        except (FormatError, UnreadableInput) as error:
            raise Refused(f"{path} cannot be read ({error}); the copies lack their checkpoints") from error
        wanted = with_offsets(found, {**copied, **carried.get(role, {})})
        if wanted != found or not os.path.lexists(path):
            content = content_of([Fresh(encode_offset_checkpoint(wanted))])
            like = name if any(file.name == name for file in lying) else None
            steps.append(Write(name, content, "of the copies", like))
    names = {step.name for step in steps}
    if names:  # all other entries there are not part of this output
        steps += [Remove(file.name, "not copied") for file in lying if file.name not in names]
        plan = Plan(command="", directory=output, inputs=lying, steps=tuple(steps))
        write_files(plan, output, over=names, journal=journal)


def carried_row(carried: Mapping[Role, Mapping[Key, int]]) -> dict[str, dict[str, int]]:
    """The offset by file name and partition, as in results."""
    return {
        NAME_BY_ROLE[role]: {f"{topic}-{number}": offset for (topic, number), offset in entries.items()}
        for role, entries in carried.items()
        if entries
    }
