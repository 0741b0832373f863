"""The steps for partitions of `__consumer_offsets` with records that their coordinator fails to load, as a repair after damage may leave
them: none of their groups is available as long as the records are there, and no repair of the log removes them. So the groups get their
offsets in an empty log.
"""

import os
from collections.abc import Iterator, Sequence
from dataclasses import field, replace

from kseg.cli.doctor.next_step import NextStep, likewise, move_out
from kseg.cli.doctor.unreachable_steps import commit_again, in_files
from kseg.cli.next_command import command_line
from kseg.cli.request import Request
from kseg.segment.counted import counted, shown_of
from kseg.segment.findings import Finding
from kseg.segment.partition.directory import own_partition_name
from kseg.segment.partition.names import CONSUMER_OFFSETS_TOPIC
from kseg.segment.values import dataclass

_LISTED = 5  # partitions with steps of their own


@dataclass(slots=True)
class UnloadedGroups:
    """directories: of the partitions. begun_anew: the groups with committed offsets in those for which there are steps."""

    request: Request
    directories: dict[str, None] = field(default_factory=dict)
    begun_anew: dict[str, Sequence[str]] = field(default_factory=dict)

    def takes(self, finding: Finding) -> bool:
        """Note what a finding says; the cost of a repair and its advice depend on it as well."""
        # that about damaged bytes is of the log, and a matter of its repair
        if finding.id == "coordinator-load-fails" and finding.position is None:
            name = own_partition_name(finding.path)
            if name is not None and name.topic == CONSUMER_OFFSETS_TOPIC:
                self.directories[finding.path] = None
        return False


def begin_anew(unloaded: UnloadedGroups) -> Iterator[NextStep]:
    """The steps before a start."""
    paths = [*unloaded.directories]
    unloaded.begun_anew = {path: _groups_of(path) for path in paths[: shown_of(len(paths), _LISTED)]}
    for path, names in unloaded.begun_anew.items():
        name = os.path.basename(os.path.normpath(path))
        why = f"The coordinator of {name} fails to load it, and none of its groups is available"
        for file, some in in_files(names, f"{name}-offsets"):
            options = {"--reset-csv": file, "--group": tuple(some)}
            yield NextStep(
                f"{why}. If a copy from before the damage can take its place, prefer that. Else save the offsets of "
                f"{counted(len(some), 'group')}.",
                command_line("groups", options, replace(unloaded.request, topics=(), partition=None)),
            )
        yield move_out(
            f"{why}: once their offsets are saved, move it out of the data directory, so that a broker begins it with an empty log (if it has "
            "other replicas, do so on each of their nodes before one of them starts). Until then `kseg doctor` calls it missing.",
            path,
        )
    command = command_line("verify", {}, unloaded.request)
    yield from likewise(len(paths) - len(unloaded.begun_anew), "partition", command)


def restore_offsets(unloaded: UnloadedGroups, server: str) -> Iterator[NextStep]:
    """The steps once the broker runs."""
    for path, names in unloaded.begun_anew.items():
        name = os.path.basename(os.path.normpath(path))
        yield from commit_again(in_files(names, f"{name}-offsets"), server)


def _groups_of(path: str) -> Sequence[str]:
    """The groups of a partition that have committed offsets."""
    from kseg.internal_topics.coordinator_log import read_coordinator_chunks
    from kseg.internal_topics.groups.group_replay import load_groups
    from kseg.segment.partition.targets import PartitionTarget

    loaded = load_groups(read_coordinator_chunks(PartitionTarget(path)), keeps_rewinds=False)
    return sorted({key.group for key in loaded.offsets.offsets})
