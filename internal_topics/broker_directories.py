"""The log dirs and partitions under the PATH arguments, seen as the directories of one broker.

Every layout is recognised, as in every command (`segment/partition/targets`): one log dir, several under one parent (a broker with
several disks, or one volume per directory as Kubernetes operators lay them out), a single partition directory, one segment. `--topic`
and `--partition` restrict what is reported, but not where the internal topics are searched.

If the PATHs contain replicas of several brokers, a partition occurs more than once; `replicas` returns all of them.
"""

from collections.abc import Iterable, Sequence

from kseg.segment.errors import KsegError
from kseg.segment.partition.directory import own_partition_name
from kseg.segment.partition.names import PartitionName, PartitionState
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


def farthest(replicas: Sequence[LogTarget]) -> Sequence[LogTarget]:
    """The longest replica of a partition; files that were named one by one all count, in their order."""
    if len(replicas) == 1:
        return replicas
    files = [target for target in replicas if isinstance(target, FileTarget)]
    return sorted(files, key=lambda file: file.path) if files else [max(replicas, key=end_offset_of)]


def longest(replicas: Sequence[LogTarget]) -> LogTarget:
    """The longest replica of a partition."""
    return replicas[0] if len(replicas) == 1 else max(replicas, key=end_offset_of)


def end_offset_of(target: LogTarget) -> int:
    """The log end offset; -1 if it cannot be read."""
    try:
        with PartitionLog(target) as log:
            return log.end_offset
    except KsegError:
        return -1
