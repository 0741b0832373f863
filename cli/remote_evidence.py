"""What `__remote_log_metadata` says about partitions with tiered storage: the leader epochs of segments in remote storage, for those that
have lost their leader-epoch checkpoint, which the local log alone cannot restore there; where the remote segments begin and end, for
retention and for partitions that have lost their local log; and which there are, for lookups."""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING

from kseg.cli.topic_evidence import log_dirs_of
from kseg.segment.diagnosis import MissingReplica
from kseg.segment.errors import KsegError
from kseg.segment.partition.remote_span import RemoteSpan
from kseg.segment.partition.targets import PartitionTarget, Target, log_dir_of
from kseg.segment.partition.topic_identity import IdentityByPath
from kseg.segment.partition.topic_settings import TopicSettings

if TYPE_CHECKING:
    from kseg.internal_topics.remote_log.remote_segments import Lineage, RemotePartition
    from kseg.segment.offset_ranges import OffsetRange
    from kseg.segment.sidecar.leader_epochs import EpochHistory


def with_remote_epochs(
    targets: Sequence[Target], topics: Mapping[str, TopicSettings], identities: IdentityByPath | None
) -> Mapping[str, TopicSettings]:
    """The settings by path, with the epochs of the partitions that have lost them. identities: the metadata log has the topic ids of
    partitions that have lost those as well."""
    wanted = [path for path in _tiered(targets, topics) if not _has_epochs(path)]
    if not wanted:
        return topics
    restored = {path: each.topic_id for path, each in (identities or {}).items()}
    known = _remote_partitions(targets, wanted, restored)
    epochs = {path: replace(topics[path], remote_epochs=each.leader_epochs()) for path, each in known.items()}
    return {**topics, **epochs}


def with_remote_ends(
    targets: Sequence[Target], topics: Mapping[str, TopicSettings]
) -> Mapping[str, TopicSettings]:
    """The settings by path, with what partitions with tiered storage have in remote storage, and where that ends."""
    wanted = _tiered(targets, topics)
    if not wanted:
        return topics
    from kseg.internal_topics.remote_log.remote_copies import remote_copies

    found = dict(topics)
    for path, partition in _remote_partitions(targets, wanted).items():
        lineage = _lineage(path)
        if lineage is not None:
            copies = remote_copies(partition, lineage)
            end = _end_of(partition, lineage)
            found[path] = replace(topics[path], remote_end_offset=end, remote_copies=copies)
    return found


def remote_spans(targets: Sequence[Target]) -> Mapping[str, tuple[RemoteSpan, ...]]:
    """By path, the segments in remote storage of partitions whose log begins below their first local segment, as far as known."""
    paths = [target.path for target in targets if isinstance(target, PartitionTarget)]
    below = [path for path in paths if begins_below(path)]
    if not below:
        return {}
    found = {}
    for path, partition in _remote_partitions(targets, below).items():
        found[path] = tuple(partition.spans(_lineage(path)))
    return found


def checkpointed_start(path: str) -> int | None:
    """The log start of a partition in the checkpoint; most have no entry there."""
    from kseg.segment.partition.directory import own_partition_name
    from kseg.segment.partition.log_dir_state import read_log_dir_state
    from kseg.segment.partition.names import Role

    name, around = own_partition_name(path), read_log_dir_state(log_dir_of(PartitionTarget(path)))
    return None if name is None else around.offset(Role.LOG_START_OFFSETS, name.topic, name.partition)


def begins_below(path: str) -> bool:
    """Whether the log start of a partition is below its first local segment."""
    from kseg.segment.partition.directory import list_partition

    start = checkpointed_start(path)
    if start is None:
        return False
    with suppress(KsegError):
        segments = list_partition(path).segments
        return bool(segments) and start < segments[0].base_offset
    return False


def _tiered(targets: Sequence[Target], topics: Mapping[str, TopicSettings]) -> list[str]:
    """The partition directories whose topic has tiered storage."""
    paths = [target.path for target in targets if isinstance(target, PartitionTarget)]
    return [path for path in paths if path in topics and topics[path].is_tiered]


def remote_ranges(
    targets: Sequence[Target], missing: Mapping[str, MissingReplica]
) -> "dict[str, OffsetRange]":
    """The log start and the last offset in remote storage of partitions that have lost their local log, by its path, as far as known."""
    if not missing:
        return {}
    topic_ids = {path: each.topic_id for path, each in missing.items()}
    found = {}
    for path, partition in _remote_partitions(targets, [*missing], topic_ids).items():
        readable = partition.readable(partition.leader_epochs())
        with suppress(KsegError):  # the run itself reports that
            start = checkpointed_start(path)
            if readable:
                found[path] = readable[0][0] if start is None else start, readable[-1][1]
    return {path: (start, last) for path, (start, last) in found.items() if start <= last}


def _remote_partitions(
    targets: Sequence[Target], paths: Sequence[str], restored: Mapping[str, str | None] | None = None
) -> "dict[str, RemotePartition]":
    """By path, as far as known. restored: the topic ids of partitions without a readable partition.metadata."""
    from kseg.internal_topics.broker_directories import find_broker_directories
    from kseg.internal_topics.remote_log.remote_listing import remote_partitions
    from kseg.recovery.verify.topic_ids import topic_id_of
    from kseg.segment.partition.directory import own_partition_name

    found = {}
    with suppress(KsegError):  # the run itself reports what cannot be read
        known = remote_partitions(find_broker_directories(log_dirs_of(targets))) or {}
        for path in paths:
            name, topic_id = own_partition_name(path), topic_id_of(path) or (restored or {}).get(path)
            if name is not None and topic_id is not None and (topic_id, name.partition) in known:
                found[path] = known[topic_id, name.partition]
    return found


def _end_of(partition: "RemotePartition", lineage: "Lineage") -> int:
    """The offset after the last one that the leader epochs of the local log have in remote storage (Kafka: RemoteLogManager.
    findHighestRemoteOffset)."""
    readable = partition.readable(lineage)
    return readable[-1][1] + 1 if readable else 0


def _lineage(path: str) -> "Lineage | None":
    """The leader epochs of the local log, None if they cannot be read."""
    history = local_epochs(path)
    return None if history is None else [(entry.epoch, entry.start_offset) for entry in history.entries]


def _has_epochs(path: str) -> bool:
    """Whether the checkpoint has the epochs below the first local segment."""
    from kseg.segment.partition.directory import list_partition

    segments, history = list_partition(path).segments, local_epochs(path)
    return history is not None and (not segments or history.begins_below(segments[0].base_offset))


def local_epochs(path: str) -> "EpochHistory | None":
    """The leader epochs in the partition's checkpoint, None if they cannot be read."""
    from kseg.segment.partition.partition_epochs import partition_epochs
    from kseg.segment.sidecar.leader_epochs import EpochHistory

    try:
        return EpochHistory(partition_epochs(path))
    except (KsegError, OSError):
        return None
