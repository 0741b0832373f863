"""Whether and how a broker would start: the results for its data directories and partitions, combined for each node.

What ends a start, in the order in which a broker reaches it (Kafka 4.3: KafkaRaftServer, SharedServer, LogManager, ReplicaManager):

1. meta.properties of all data directories, a metadata log outside the metadata log dir, and bootstrap.checkpoint;
2. the metadata log, space for it to grow, the locks, the end of the controllers' metadata logs, records of the metadata log that contradict
   those before them, features and configurations of topics in it;
3. during log loading: a directory that is not a partition, a load that fails with anything but an IOException, a partition that exists
   twice;
4. all data directories, or the one with the metadata log, are offline;
5. no controller registers the broker. One of another cluster gets no records from the controllers, and comes to no later step than 2.

No log is loaded before step 3, so an earlier failure leaves the partitions unreported. Data directories belong to one node if their
meta.properties say so. A directory with another identity and without a metadata log cannot be a complete KRaft node: if the run has
exactly one node, it counts as part of that.
"""

import os
from collections.abc import Iterator, Sequence
from dataclasses import replace

from kseg.recovery.broker_start.loaded_directory import LoadedDirectory
from kseg.recovery.broker_start.log_dir_start import LogDirStart, Thrown
from kseg.recovery.broker_start.node_outcome import DOES_NOT_START, STARTS, WITH_OFFLINE_DIRS, NodeStart
from kseg.recovery.broker_start.node_properties import NodeProperties
from kseg.recovery.broker_start.partition_start import Loading
from kseg.recovery.loading.kafka_exceptions import FILE_SYSTEM, ILLEGAL_STATE, IO, KAFKA, RUNTIME, STORAGE
from kseg.segment.java import uuids
from kseg.segment.partition.names import METADATA_DIRECTORY
from kseg.segment.storage import places

_READ_ONLY = "Read-only file system"


def node_start(
    directories: Sequence[LoadedDirectory],
    metadata: str,
    properties: NodeProperties | None = None,
    node_id: int | None = None,
) -> NodeStart:
    """What a broker does with these data directories, in the order of log.dirs. metadata: see `NodeStart`. properties: those of the node,
    None if unknown. node_id: that of the broker, if some of the directories are of another node."""
    dirs = tuple(directories)
    if properties is None:
        return _of_taken(dirs, metadata, properties, node_id)
    dirs = tuple(properties.taken(directories))
    left_out = properties.leaves_out([each.path for each in directories])
    start = replace(_of_taken(dirs, metadata, properties, node_id), left_out=tuple(left_out))
    if not start.is_loaded or metadata == "unknown":
        return start
    there = {name for each in dirs for name in (*each.live.values(), *each.missing)}
    behind = {name for each in directories if each.path in left_out for name in each.live.values()} - there
    return replace(start, left_behind=tuple(sorted(behind)))


def _of_taken(
    dirs: tuple[LoadedDirectory, ...], metadata: str, properties: NodeProperties | None, node_id: int | None
) -> NodeStart:
    start = replace(_node_start(dirs, properties, node_id), metadata=metadata)
    if not any(each.start is not None and each.start.is_read_only for each in dirs):
        return start
    writable = tuple(
        each if each.start is None else replace(each, start=replace(each.start, is_read_only=False))
        for each in dirs
    )
    return replace(start, once_writable=_of_taken(writable, metadata, properties, node_id))


def _node_start(
    dirs: tuple[LoadedDirectory, ...], properties: NodeProperties | None, node_id: int | None
) -> NodeStart:
    prevented = next(_before_loading(dirs, properties, node_id), None)
    if prevented is not None:
        return NodeStart(directories=dirs, outcome=DOES_NOT_START, thrown=prevented, is_loaded=False)
    offline = tuple(
        (each.path, why) for each in dirs if (why := next(_takes_offline(each), None)) is not None
    )
    thrown = (
        next(_while_loading(dirs), None)
        or _without_directories(dirs, offline)
        or next(_unregistered(dirs, is_loaded=True), None)
    )
    if all(each.start is None for each in dirs):
        return NodeStart(directories=dirs, outcome=None if thrown is None else DOES_NOT_START, thrown=thrown)
    unserved = tuple(
        name for each in dirs if each.start is not None and each.start.unserved for name in each.live.values()
    )
    if thrown is not None:
        return NodeStart(directories=dirs, outcome=DOES_NOT_START, thrown=thrown, offline=offline)
    leaderless = _leaderless(dirs, offline, are_all=properties is not None)
    if offline:
        # not created while a directory is offline that may be the one (Kafka: Partition.createLogInAssignedDirectoryId)
        live = {name for each in dirs for name in each.live.values()}
        unserved = (*unserved, *sorted(leaderless - live))
        leaderless &= live
    return NodeStart(
        directories=dirs,
        outcome=WITH_OFFLINE_DIRS if offline else STARTS,
        offline=offline,
        unserved=unserved,
        leaderless=tuple(sorted(leaderless)),
    )


def _leaderless(
    dirs: Sequence[LoadedDirectory], offline: Sequence[tuple[str, Thrown]], *, are_all: bool
) -> set[str]:
    """Partitions whose assigned directory the broker does not register (see `elections`), except those that are in one that is offline.
    are_all: whether these are all directories of the node; if not, that follows from their number."""
    lost = {path for path, _ in offline}
    ids = [None if each.start is None else each.start.directory_id for each in dirs if each.path not in lost]
    if None in ids or not (are_all or len(dirs) >= max((each.registered for each in dirs), default=0)):
        return set()
    assigned = {name: at for each in dirs for name, at in each.led_by_no_other.items()}
    there = {name for each in dirs if each.path in lost for name in (*each.live.values(), *each.missing)}
    return {name for name, at in assigned.items() if at not in ids} - there


# --- before a log is loaded


def _before_loading(
    dirs: Sequence[LoadedDirectory], properties: NodeProperties | None, node_id: int | None
) -> Iterator[Thrown]:
    """What ends the start before any log is loaded, in the order in which a broker comes to it: the first one ends it."""
    starts = [each.start for each in dirs if each.start is not None]
    if starts:
        yield from _identities(starts, properties, node_id)
    has_log = any(start.metadata_log for start in starts)
    for each in dirs:
        is_read = not has_log or (each.start is not None and each.start.metadata_log)
        if each.bootstrap_fault is not None and is_read:
            yield each.bootstrap_fault
    for each in dirs:
        metadata_log = each.metadata_log
        if metadata_log is not None and metadata_log.exception is not None:
            yield Thrown(metadata_log.exception, metadata_log.message or "")
    for start in starts:
        if start.metadata_log and start.is_full:
            yield Thrown(IO, f"No space left on device: the metadata log in {start.path} cannot grow")
    for start in starts:
        yield from start.prevents
        if start.is_read_only:
            yield from _not_writable(start)
    for each in dirs:
        if each.refused_truncation is not None:
            yield each.refused_truncation
    ends = [each.metadata_log.log_end_offset for each in dirs if each.metadata_log is not None]
    for each in dirs:
        if each.start is not None and each.contradiction is not None:
            offset, thrown = each.contradiction
            # unless the log is truncated before that offset
            if all(end is None or offset < end for end in ends):
                yield thrown
    for each in dirs:
        if each.start is not None:
            yield from each.refused
    yield from _unregistered(dirs, is_loaded=False)


def _unregistered(dirs: Sequence[LoadedDirectory], *, is_loaded: bool) -> Iterator[Thrown]:
    for each in dirs:
        if each.unregistered is not None and each.unregistered[1] == is_loaded:
            yield each.unregistered[0]


def _not_writable(start: LogDirStart) -> Iterator[Thrown]:
    for name in (METADATA_DIRECTORY,) * start.metadata_log + start.unmade:
        yield Thrown(FILE_SYSTEM, f"{os.path.join(start.path, name)}: {_READ_ONLY}")


def _identities(
    starts: Sequence[LogDirStart], properties: NodeProperties | None, node_id: int | None
) -> Iterator[Thrown]:
    """What ends the start because of the directories' identities (Kafka: MetaPropertiesEnsemble.verify and
    KafkaRaftServer.initializeLogDirs, which process the directories in the order of their paths)."""
    by_path = sorted(starts, key=lambda start: start.path)
    readable = [start for start in by_path if start.has_identity and not start.identity_problem]
    with_log = [start for start in starts if start.metadata_log]
    metadata_dir = with_log[0].path if with_log else ""
    if properties is not None and any(properties.is_metadata_log_dir(start.path) for start in starts):
        metadata_dir = properties.metadata_log_dir
    if not readable:
        yield Thrown(RUNTIME, "No readable meta.properties files found.")
        return
    if properties is not None and properties.node_id is not None:
        node_id = properties.node_id
    yield from _contradictions(readable, with_log, node_id)
    is_elsewhere = {start.path: start.path != metadata_dir for start in with_log}
    if properties is not None:
        real = places.realpath(metadata_dir)
        is_elsewhere = {start.path: places.realpath(start.path) != real for start in with_log}
    for start in with_log:
        if start.identity_problem and not is_elsewhere[start.path]:
            message = f"Encountered I/O error in metadata log directory {start.path}. Cannot continue."
            yield Thrown(RUNTIME, message)
    for start in with_log:
        place = os.path.join(start.path, METADATA_DIRECTORY)
        message = f"Found unexpected metadata location in data directory `{place}` (the configured metadata directory is {metadata_dir})."
        if is_elsewhere[start.path]:
            yield Thrown(KAFKA, message)
    for start in by_path:
        if not start.has_identity:
            hint = "(have you run `kafka-storage.sh` to format the directory?)"
            yield Thrown(RUNTIME, f"No `meta.properties` found in {start.path} {hint}")
    for start in readable:
        if start.node_id is None:
            yield Thrown(RUNTIME, f"Error: node ID not found in {start.path}")
        elif start.cluster_id is None:
            yield Thrown(RUNTIME, f"Error: cluster ID not found in {start.path}")


def _contradictions(
    readable: Sequence[LogDirStart], with_log: Sequence[LogDirStart], node_id: int | None
) -> Iterator[Thrown]:
    own = node_id
    if own is None:
        own = next((start.node_id for start in (*with_log, *readable) if start.node_id is not None), None)
    cluster: str | None = None
    paths: dict[str, str] = {}
    for start in readable:
        file = os.path.join(start.path, "meta.properties")
        cluster = cluster or start.cluster_id
        if start.cluster_id not in (None, cluster):
            message = f"Invalid cluster.id in: {file}. Expected {cluster}, but read {start.cluster_id}"
            yield Thrown(RUNTIME, message)
        if start.node_id not in (None, own):
            message = f"Stored node id {start.node_id} doesn't match previous node id {own} in {file}."
            yield Thrown(RUNTIME, message)
        if start.directory_id is not None:
            if uuids.is_reserved(start.directory_id):
                message = f"Invalid reserved directory ID {start.directory_id} found in {start.path}"
                yield Thrown(RUNTIME, message)
            other = paths.setdefault(start.directory_id, start.path)
            if other != start.path:
                message = (
                    f"Duplicate directory ID Optional[{start.directory_id}] found. It was the ID of {other}, but also of "
                    f"{start.path}"
                )
                yield Thrown(RUNTIME, message)


# --- while logs are loaded


def _while_loading(dirs: Sequence[LoadedDirectory]) -> Iterator[Thrown]:
    for each in dirs:
        if each.start is not None:
            yield from each.start.bad_names
    for each in dirs:
        if each.start is not None:
            yield from each.start.unloadable
        for _, start in each.of(Loading.FAILS):
            if not start.takes_directory_offline:
                yield Thrown(start.exception or "", start.message or "")
    yield from _twice(dirs)
    for each in dirs:
        for _, start in each.of(Loading.PROMOTED):
            if start.partition in each.live:
                message = f"Error while renaming dir for {start.partition} in log dir {each.path}"
                yield Thrown(STORAGE, message)


def _twice(dirs: Sequence[LoadedDirectory]) -> Iterator[Thrown]:
    """A partition that is loaded twice, live or as a replica that moves (Kafka: LogManager.loadLog). The partition number in a directory
    name can have leading zeros."""
    live: dict[str, str] = {}
    moving: dict[str, str] = {}
    for each in dirs:
        unloaded = each.named(Loading.FAILS)
        for name, partition in each.live.items():
            path = os.path.join(each.path, name)
            if name not in unloaded and (other := live.setdefault(partition, path)) != path:
                message = f"Duplicate log directories for {partition} are found in both {path} and {other}."
                yield Thrown(ILLEGAL_STATE, message)
        for name, start in each.of(Loading.FUTURE, Loading.PROMOTED):
            path = os.path.join(each.path, name)
            if (other := moving.setdefault(start.partition, path)) != path:
                yield Thrown(ILLEGAL_STATE, f"Duplicate log directories found: {path}, {other}!")


def _takes_offline(directory: LoadedDirectory) -> Iterator[Thrown]:
    start = directory.start
    if start is not None:
        if start.is_read_only:
            yield Thrown(FILE_SYSTEM, f"{os.path.join(start.path, '.lock')}: {_READ_ONLY}")
        if start.identity_problem:
            message = f"Failed to load {start.path} during broker startup: {start.identity_problem}"
            yield Thrown(IO, message)
        yield from start.offline
    for _, partition in directory.of(Loading.FAILS):
        if partition.takes_directory_offline:
            yield Thrown(partition.exception or "", partition.message or "")
    if start is not None:
        if directory.live:
            yield from start.watermarks  # read once logs are loaded
        if start.is_full:
            yield Thrown(IO, f"No space left on device: {start.path}")
    for name in directory.obstructed:
        message = f"Error while creating log for {name} in dir {directory.path}: a file has that name"
        yield Thrown(STORAGE, message)


def _without_directories(
    dirs: Sequence[LoadedDirectory], offline: Sequence[tuple[str, Thrown]]
) -> Thrown | None:
    """The exception that ends a broker that cannot run without the data directories it has lost."""
    lost = dict(offline)
    starts = [each.start for each in dirs if each.start is not None]
    with_log = next((start for start in starts if start.metadata_log), None)
    if with_log is None or with_log.path not in lost:
        return None
    why = lost[with_log.path]
    if len(lost) == len(starts):
        what = f"all log dirs in {', '.join(start.path for start in starts)} have failed"
    else:
        what = f"the metadata log dir {with_log.path} has failed"
    return Thrown(why.exception, f"Shutdown broker because {what} ({why.message})")
