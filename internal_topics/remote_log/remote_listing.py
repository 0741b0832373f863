"""`kseg list --remote`: which offsets of each partition are local, remote, both, or missing, and which objects are dangling in the store.

1. All partitions of `__remote_log_metadata` under PATH, each record in the order of its partition. Partitions whose remote segments are
   recorded in a partition of the topic that is missing here remain unknown, since each is recorded in only one of them.
2. For each partition under PATH: the log start from its checkpoint (with tiered storage below the first local segment), the local log from
   its first segment to its end, and its leader epochs, which determine which remote segments count.
3. Offsets between the log start and the log end that are neither local nor remote are missing.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress

from kseg.internal_topics.broker_directories import BrokerDirectories, logs_to_read
from kseg.internal_topics.coordinator_log import DOUBLED_END, LogProblem, RecordChunk, read_coordinator_chunks
from kseg.internal_topics.coordinator_reading import BEYOND_THE_END
from kseg.internal_topics.remote_log.remote_segments import (
    REMOTE_LOG_METADATA,
    Lineage,
    PartitionKey,
    RemoteLogState,
    RemotePartition,
    sorted_partitions,
)
from kseg.jobs.events import Advance, Event, Row
from kseg.segment.errors import KsegError, UsageError
from kseg.segment.findings import Finding
from kseg.segment.offset_ranges import OffsetRange, common, count, minus, union
from kseg.segment.partition.log_dir_state import read_log_dir_state
from kseg.segment.partition.names import PartitionName, Role
from kseg.segment.partition.partition_log import PartitionLog
from kseg.segment.partition.targets import LogTarget, PartitionTarget, is_selected
from kseg.segment.sidecar.checkpoint import decode_leader_epochs
from kseg.segment.sidecar.metadata_files import decode_partition_metadata
from kseg.segment.values import dataclass

_PROBLEM = "remote-log-metadata-unreadable"
# brokers read this topic with a consumer, which these do not affect
_HARMLESS = (BEYOND_THE_END, DOUBLED_END)


@dataclass(frozen=True, slots=True)
class RemoteTarget:
    """The directories of one broker, as one unit of work. path: the PATHs, to name it to the user."""

    path: str
    directories: BrokerDirectories


@dataclass(frozen=True, slots=True)
class RemoteOptions:
    """Which partitions to report, by globs of topics and by number."""

    topics: tuple[str, ...] = ()
    partition: int | None = None


@dataclass(frozen=True, slots=True)
class _LocalLog:
    """The local part of a partition. log_start: None if no checkpoint has it."""

    directory: str
    topic_id: str | None
    log_start: int | None
    first: int
    end: int
    lineage: Lineage | None


def list_remote(target: RemoteTarget, options: RemoteOptions) -> Iterator[Event]:
    """A `remote_partition` row for each partition with remote storage, after its `remote_segment` rows. Raises UsageError when
    there is no `__remote_log_metadata` under PATH."""
    directories = target.directories
    logs = topic_partitions(directories)
    if not logs:
        raise UsageError(
            f"no partition of {REMOTE_LOG_METADATA} is under PATH, so it is unknown what is in remote storage"
        )
    state = RemoteLogState()
    for log in logs:
        yield from _read(state, log)
    local: dict[tuple[str, int], list[PartitionTarget]] = {}
    for each in directories.partitions:
        if each.name is not None and each.is_live and isinstance(each.target, PartitionTarget):
            local.setdefault((each.name.topic, each.name.partition), []).append(each.target)
    for (topic_id, number), partition in sorted_partitions(state):
        name = PartitionName(partition.name, number)
        if is_selected(name, options.topics, options.partition):
            replicas = [_local_log(target, name) for target in local.get((partition.name, number), ())]
            own = _of_topic(replicas, topic_id)
            # otherwise nothing is left of a deleted topic, locally or remotely: brokers delete its remote segments one by one
            if own is not None or partition.segments or partition.delete_state is not None:
                yield from _rows((topic_id, number), partition, own)


def topic_partitions(directories: BrokerDirectories) -> list[LogTarget]:
    """The partitions of `__remote_log_metadata` that are read: the longest replica of each."""
    return [
        log
        for replicas in directories.replicas(REMOTE_LOG_METADATA).values()
        for log in logs_to_read(replicas)
    ]


def remote_partitions(directories: BrokerDirectories) -> Mapping[PartitionKey, RemotePartition] | None:
    """The remote segments of each partition; None where a record of the topic cannot be read, since it may be about any of them."""
    state = RemoteLogState()
    events = [event for log in topic_partitions(directories) for event in _read(state, log)]
    return None if any(isinstance(event, Finding) for event in events) else state.partitions


def _read(state: RemoteLogState, log: LogTarget) -> Iterator[Event]:
    """Replay one log of the topic into the state; returns what cannot be read."""
    known = len(state.problems)
    for part in read_coordinator_chunks(log):
        if isinstance(part, RecordChunk):
            for record in part.every_record():
                state.take(record.offset, record.value)
            yield Advance(log.path, part.chunk.size_in(part.batches))
        elif isinstance(part, LogProblem) and part.damage not in _HARMLESS:
            yield Finding(_PROBLEM, part.path, part.message, part.position, None, part.offset)
    for offset, words in state.problems[known:]:
        yield Finding(
            _PROBLEM, log.path, f"the record at offset {offset} cannot be used: {words}", None, None, offset
        )


# --- the local logs


def _of_topic(replicas: Sequence[_LocalLog | None], topic_id: str) -> _LocalLog | None:
    """The longest replica. A directory may belong to another topic of the same name."""
    own = [each for each in replicas if each is not None and each.topic_id in (None, topic_id)]
    return max(own, key=lambda each: each.end, default=None)


def _local_log(target: PartitionTarget, name: PartitionName) -> _LocalLog | None:
    """None for a log that cannot be read at all; `list` and `verify` report why."""
    try:
        with PartitionLog(target) as log:
            if not log.segments:
                return None
            first = log.segments[0].base_offset
            end = log.end_offset
            epochs = log.read_side_file(Role.LEADER_EPOCHS)
            identity = log.read_side_file(Role.PARTITION_METADATA)
    except KsegError:
        return None
    lineage: Lineage | None = None
    topic_id = None
    with suppress(KsegError):
        lineage = (
            [(each.epoch, each.start_offset) for each in decode_leader_epochs(epochs)] if epochs else None
        )
    with suppress(KsegError):
        topic_id = decode_partition_metadata(identity).topic_id if identity else None
    start = None
    if target.log_dir is not None:
        start = read_log_dir_state(target.log_dir).offset(Role.LOG_START_OFFSETS, name.topic, name.partition)
    return _LocalLog(target.path, topic_id, start, max(first, start or 0), end, lineage or None)


# --- the rows


def _rows(key: PartitionKey, partition: RemotePartition, local: _LocalLog | None) -> Iterator[Row]:
    topic_id, number = key
    place = {"topic": partition.name, "topic_id": topic_id, "partition": number}
    for segment in sorted(partition.segments.values(), key=lambda each: (each.start, each.id)):
        yield Row(
            {
                "type": "remote_segment",
                **place,
                "segment_id": segment.id,
                "start_offset": segment.start,
                "end_offset": segment.end,
                "bytes": segment.size_bytes,
                "state": segment.state_name,
                "dangling": segment.is_dangling,
                "read": partition.is_read(segment.id),
                "leader_epochs": [
                    {"epoch": epoch, "start_offset": begin} for epoch, begin in segment.leader_epochs
                ],
                "max_timestamp": segment.max_timestamp_ms,
                "event_timestamp": segment.event_timestamp_ms,
                "broker_id": segment.broker_id,
            }
        )
    yield Row({"type": "remote_partition", **place, **_sums(partition, local)})


def _sums(partition: RemotePartition, local: _LocalLog | None) -> Mapping[str, object]:
    remote = partition.readable(None if local is None else local.lineage)
    here = [] if local is None else union([(local.first, local.end - 1)])
    start = _log_start(remote, local)
    if start is not None:
        remote = minus(remote, [(0, start - 1)]) if start else remote
    everything = union([*remote, *here])
    whole = [(start, everything[-1][1])] if everything and start is not None else []
    segments = partition.segments.values()
    return {
        "directory": None if local is None else local.directory,
        "log_start_offset": start,
        "local_log_start_offset": None if local is None else local.first,
        "log_end_offset": None if local is None else local.end,
        "local": _pairs(here),
        "remote": _pairs(remote),
        "both": _pairs(common(here, remote)),
        "remote_only": _pairs(minus(remote, here)),
        "missing": _pairs(minus(whole, everything)),
        "missing_offsets": count(minus(whole, everything)),
        "segments": len(segments),
        "bytes": sum(each.size_bytes for each in segments),
        "dangling": sum(each.is_dangling for each in segments),
        "unread": sum(not each.is_dangling and not partition.is_read(each.id) for each in segments),
        "delete_state": partition.delete_state,
    }


def _log_start(remote: Sequence[OffsetRange], local: _LocalLog | None) -> int | None:
    """From the checkpoint, else the first existing offset."""
    if local is not None and local.log_start is not None:
        return local.log_start
    firsts = [each[0][0] for each in (remote, [] if local is None else [(local.first, 0)]) if each]
    return min(firsts, default=None)


def _pairs(ranges: Sequence[OffsetRange]) -> list[list[int]]:
    return [[first, last] for first, last in ranges]
