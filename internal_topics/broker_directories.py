"""The log dirs and partitions under the PATH arguments, seen as the directories of one broker.

Every layout is recognised, as in every command (`segment/partition/targets`): one log dir, several under one parent (a broker with
several disks, or one volume per directory as Kubernetes operators lay them out), a single partition directory, one segment. `--topic`
and `--partition` restrict what is reported, but not where the internal topics are searched.

If the PATHs contain replicas of several brokers, a partition occurs more than once; `replicas` returns all of them.
"""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from kseg.segment.errors import KsegError
from kseg.segment.partition.directory import own_partition_name
from kseg.segment.partition.names import PartitionName, PartitionState
from kseg.segment.partition.partition_epochs import last_epoch_below
from kseg.segment.partition.partition_log import PartitionLog
from kseg.segment.partition.targets import (
    Expansion,
    FileTarget,
    LogDirTarget,
    LogTarget,
    directory_of,
    resolve_targets,
)
from kseg.segment.values import dataclass


@dataclass(frozen=True, slots=True)
class BrokerPartition:
    """One partition directory, or one segment given by itself. name: None when the directory is not named like a partition."""

    target: LogTarget
    name: PartitionName | None

    @property
    def is_live(self) -> bool:
        """Not marked `-delete`, `-stray` or `-future`; a directory without a valid name counts as not marked."""
        return self.name is None or self.name.state is PartitionState.LIVE


@dataclass(frozen=True, slots=True)
class BrokerDirectories:
    """log_dirs: as shown, in order. partitions: all of them, including those marked by a suffix."""

    log_dirs: tuple[str, ...]
    partitions: tuple[BrokerPartition, ...]

    def replicas(self, topic: str) -> dict[int, list[LogTarget]]:
        """The live partition directories of a topic, by partition; all replicas of each partition under PATH."""
        found: dict[int, list[LogTarget]] = {}
        for each in self.partitions:
            if each.name is not None and each.is_live and each.name.topic == topic:
                found.setdefault(each.name.partition, []).append(each.target)
        return {number: found[number] for number in sorted(found)}


def find_broker_directories(paths: Iterable[str]) -> BrokerDirectories:
    """The log dirs and partitions under PATHs. Raises UnreadableInput for a path that is missing, cannot be listed, or contains
    no Kafka files."""
    targets = resolve_targets(tuple(paths), expand=Expansion.INVENTORY)
    return BrokerDirectories(
        tuple(target.path for target in targets if isinstance(target, LogDirTarget)),
        tuple(
            BrokerPartition(target, own_partition_name(directory_of(target)))
            for target in targets
            if not isinstance(target, LogDirTarget)
        ),
    )


def readable_directories(paths: Iterable[str]) -> tuple[BrokerDirectories, dict[str, KsegError]]:
    """The same as far as the PATHs can be read, and why others cannot be."""
    log_dirs: list[str] = []
    partitions: list[BrokerPartition] = []
    unread: dict[str, KsegError] = {}
    for path in paths:
        try:
            found = find_broker_directories([path])
        except KsegError as error:
            unread[path] = error
            continue
        log_dirs += found.log_dirs
        partitions += found.partitions
    return BrokerDirectories(tuple(dict.fromkeys(log_dirs)), tuple(dict.fromkeys(partitions))), unread


class ReplicaProgress(NamedTuple):
    """How recent a replica is; they compare as tuples. leader_epoch: the last one that its leader-epoch-checkpoint has up to the log end,
    -1 if unknown. end_offset: of the log, -1 if it cannot be read."""

    leader_epoch: int
    end_offset: int


def progress_of(target: LogTarget) -> ReplicaProgress:
    """A leader writes its epoch down when it is elected, a follower with the first record of the epoch (Kafka: Partition.makeLeader,
    UnifiedLog.assignEpochStartOffset)."""
    end_offset = end_offset_of(target)
    epoch = last_epoch_below(directory_of(target), end_offset + 1) if end_offset >= 0 else None
    return ReplicaProgress(-1 if epoch is None else epoch, end_offset)


def most_recent(replicas: Sequence[LogTarget]) -> LogTarget:
    """The replica of a partition that its last leader has written: the longest of those with the last leader epoch. What a log has beyond
    the start of a later epoch was never committed, or was given up by an unclean election, and is truncated (observed with 4.3.1). If the
    epoch of a replica is unknown, the longest one."""
    if len(replicas) == 1:
        return replicas[0]
    progress = {target.path: progress_of(target) for target in replicas}
    if any(each.leader_epoch < 0 <= each.end_offset for each in progress.values()):
        return max(replicas, key=lambda target: progress[target.path].end_offset)
    return max(replicas, key=lambda target: progress[target.path])


def is_ahead(one: LogTarget, other: LogTarget) -> bool:
    """Whether one of two replicas is more recent; neither is if they are equal."""
    return most_recent((other, one)) is one


def logs_to_read(replicas: Sequence[LogTarget]) -> Sequence[LogTarget]:
    """The most recent replica of a partition; files that were named one by one all count, in their order."""
    if len(replicas) <= 1:
        return replicas
    files = [target for target in replicas if isinstance(target, FileTarget)]
    return sorted(files, key=lambda file: file.path) if files else [most_recent(replicas)]


def ends_of(target: LogTarget) -> tuple[int, int]:
    """The log end offset, and the offset after the last record at or below it: they differ where the last segment is empty and the
    contents of those before it were lost, as in a power loss. Both are -1 if they cannot be read."""
    try:
        with PartitionLog(target) as log:
            end, segments = log.end_offset, log.segments
            if len(segments) < 2 or log.last_batch is not None:
                return end, end
            newest = log.newest_batch
            written = segments[0].base_offset if newest is None else newest.last_offset + 1
            return end, min(end, max(written, log.start_offset))
    except KsegError:
        return -1, -1


def end_offset_of(target: LogTarget) -> int:
    """The log end offset; -1 if it cannot be read."""
    try:
        with PartitionLog(target) as log:
            return log.end_offset
    except KsegError:
        return -1
