"""The steps for partitions of a coordinator's topic with records that it fails to load, as a repair after damage may leave them. No repair
of the log removes such a record. So the log is written again without these: the coordinator then knows all that the others say.
"""

import os
from collections.abc import Iterator
from dataclasses import field

from kseg.cli.doctor.next_step import NextStep, dump_command, likewise, offset_options, rewritten_log
from kseg.cli.next_command import command_line
from kseg.cli.request import Request
from kseg.segment.counted import counted, shown_of
from kseg.segment.findings import Finding
from kseg.segment.offset_ranges import union
from kseg.segment.partition.directory import own_partition_name
from kseg.segment.partition.names import CONSUMER_OFFSETS_TOPIC, TRANSACTION_STATE_TOPIC
from kseg.segment.values import dataclass

_LISTED = 5  # partitions with steps of their own
_EFFECTS = {
    CONSUMER_OFFSETS_TOPIC: "none of its groups is available",
    TRANSACTION_STATE_TOPIC: "it does not know the transactional ids that are recorded after that",
}
_NO_SHARE_STATE = "share groups get no record of the partitions whose state it has"


@dataclass(slots=True)
class Unloaded:
    """directories: of the partitions."""

    request: Request
    directories: dict[str, None] = field(default_factory=dict)

    def takes(self, finding: Finding) -> bool:
        """Note what a finding says; the cost of a repair and its advice depend on it as well."""
        # that about damaged bytes is of the log, and a matter of its repair
        if finding.id == "coordinator-load-fails" and finding.position is None:
            self.directories[finding.path] = None
        return False


def write_again(unloaded: Unloaded) -> Iterator[NextStep]:
    """The steps before a start."""
    paths = [*unloaded.directories]
    shown = shown_of(len(paths), _LISTED)
    for path in paths[:shown]:
        yield from _without_failing(path)
    command = command_line("verify", {}, unloaded.request)
    yield from likewise(len(paths) - shown, "partition", command)


def _without_failing(path: str) -> Iterator[NextStep]:
    from kseg.cli.coordinator_loads import failing_offsets
    from kseg.segment.partition.targets import PartitionTarget

    offsets = failing_offsets(PartitionTarget(path))
    name = os.path.basename(os.path.normpath(path))
    parsed = own_partition_name(path)
    effect = _NO_SHARE_STATE if parsed is None else _EFFECTS.get(parsed.topic, _NO_SHARE_STATE)
    why = (
        f"The coordinator of {name} fails to load it, and {effect}. If a copy from before the damage can take its place, prefer that. Else make "
        f"one without the {counted(len(offsets), 'record')} on which it fails (if it has other replicas, do so on each of their nodes before "
        "one of them starts)."
    )
    alone = ((offset, offset) for offset in offsets)
    options = offset_options("--leave-out", (range(first, last + 1) for first, last in union(alone)))
    yield from rewritten_log(why, path, [dump_command(path)], options, name, like=path)
