"""The files of a data directory itself that stop or degrade a broker's start: identity, lock, checkpoints, names, free space.

In the order in which a broker checks them (Kafka: KafkaRaftServer.initializeLogDirs, LogManager, ReplicaManager):

1. meta.properties. If it cannot be parsed the directory goes offline, or, if it contains the metadata log, the process exits; if it is
   missing or incomplete, the process exits.
2. The lock and the names of subdirectories: either can end the process.
3. The offset checkpoints. A file that is not a CheckpointFile takes the directory offline; a number that cannot be parsed raises another
   exception, and recovery points and log starts count as 0. High watermarks are read when the first partition of the directory is served.

On a file system that is mounted read-only a broker can neither open the metadata log nor create a missing checkpoint: either ends
the process. Otherwise the directory goes offline (observed with 4.3.1).
"""

import os
from collections.abc import Collection, Iterator
from typing import Any

from kseg.recovery.loading.kafka_exceptions import KAFKA, STORAGE, checkpoint_exception
from kseg.segment.diagnosis import UnwritableFile
from kseg.segment.errors import FormatError, UnreadableInput
from kseg.segment.files import read_small
from kseg.segment.findings import Finding
from kseg.segment.java.java_text import INT_BITS, LONG_BITS
from kseg.segment.mounts import is_read_only
from kseg.segment.partition.directory import LogDirectory, SubDirectory
from kseg.segment.partition.names import (
    LOST_AND_FOUND,
    METADATA_DIRECTORY,
    NAME_BY_ROLE,
    OFFSET_CHECKPOINT_ROLES,
    REMOTE_INDEX_CACHE,
    PartitionState,
    Role,
    is_of_log_directory,
)
from kseg.segment.sidecar.checkpoint import decode_offset_checkpoint
from kseg.segment.sidecar.metadata_files import decode_meta_properties
from kseg.segment.storage import places
from kseg.segment.values import dataclass

# a broker deletes the clean-shutdown marker, even if it is a directory, before it lists the names
_KNOWN_DIRECTORIES = (REMOTE_INDEX_CACHE, NAME_BY_ROLE[Role.CLEAN_SHUTDOWN])
_META_PROPERTIES = NAME_BY_ROLE[Role.META_PROPERTIES]
_LEAST_FREE_BYTES = 4096  # a page of an index, a block of the metadata log
_IN_ORDER_OF_CREATION = (
    Role.RECOVERY_POINTS,
    Role.LOG_START_OFFSETS,
    Role.HIGH_WATERMARKS,
    Role.CLEANER_OFFSETS,  # created once logs are loaded
)
_ENTRY = (None, INT_BITS, LONG_BITS)  # topic, partition, offset
# if a number in one of these cannot be parsed, a broker treats the file as empty
READ_BEFORE_LOADING = (Role.RECOVERY_POINTS, Role.LOG_START_OFFSETS)


@dataclass(frozen=True, slots=True)
class Thrown:
    """exception: the simple name of the Java class. message: as the broker logs it, if the wording is Kafka's own."""

    exception: str
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class LogDirStart:
    """How the files of one data directory affect the start.

    path: as shown to the user. identity_problem: why meta.properties cannot be used; empty when it can, or is missing (then has_identity is
    False). from_zookeeper: whether it was written by a broker that kept its metadata in ZooKeeper. metadata_log: whether it is in this
    directory. prevents: what ends the process before it loads a log; bad_names: what ends it during log loading; unloadable: likewise, in
    directories that are marked for deletion. is_directory: False if a file has its name. swallowed: data directories inside it that are
    named like partitions; a broker loads them as empty partitions, which become stray. removed: directories that were marked for deletion.
    offline: what takes the directory offline. watermarks: likewise, but only if the directory serves a partition. unserved: why it serves
    no partition. is_full: whether there is no room even for an index page (the free space itself would differ between runs). is_read_only:
    whether the file
    """

    path: str
    has_identity: bool = True
    identity_problem: str = ""
    node_id: int | None = None
    cluster_id: str | None = None
    directory_id: str | None = None
    from_zookeeper: bool = False
    metadata_log: bool = False
    is_directory: bool = True
    is_clean: bool = False
    prevents: tuple[Thrown, ...] = ()
    bad_names: tuple[Thrown, ...] = ()
    unloadable: tuple[Thrown, ...] = ()
    offline: tuple[Thrown, ...] = ()
    watermarks: tuple[Thrown, ...] = ()
    unserved: tuple[Thrown, ...] = ()
    swallowed: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()
    is_full: bool = False
    is_read_only: bool = False
    unmade: tuple[str, ...] = ()

    @property
    def identity(self) -> tuple[str | None, int | None] | None:
        """Cluster id and node id; None if the directory has neither."""
        known = self.cluster_id, self.node_id
        return None if known == (None, None) else known

    def as_row(self) -> dict[str, object]:
        row: dict[str, object] = {}
        for name in self.__slots__:
            value = getattr(self, name)
            if isinstance(value, tuple):
                value = [
                    [each.exception, each.message] if isinstance(each, Thrown) else each for each in value
                ]
            row[name] = value
        return row


def file_in_place(path: str) -> LogDirStart:
    """The result for a regular file with the name of a data directory."""
    return LogDirStart(path=path, is_directory=False, identity_problem="Not a directory")


def is_empty_directory(path: str) -> bool:
    """Whether a directory contains only what a new file system contains."""
    return contains_only(path, ())


def contains_only(path: str, names: Collection[str]) -> bool:
    """Whether a directory contains nothing but `names`, and what a new file system contains."""
    try:
        return {*places.listdir(path)} <= {*names, LOST_AND_FOUND}
    except OSError:
        return False


def unformatted(path: str) -> LogDirStart:
    """The result for an empty directory, as on a new disk."""
    return LogDirStart(path=path, has_identity=False)


def written_at_start(directory: LogDirectory) -> Iterator[str]:
    """The directory in which a broker creates files, and the files that it replaces or deletes, at its start or within the first minute.
    The other files of the directory stay as they are."""
    if _is_of_a_node(directory):
        yield directory.path
        for role in (Role.CLEAN_SHUTDOWN, Role.RECOVERY_POINTS, Role.LOG_START_OFFSETS, Role.HIGH_WATERMARKS):
            yield os.path.join(directory.path, NAME_BY_ROLE[role])


def _is_of_a_node(directory: LogDirectory) -> bool:
    return any(is_of_log_directory(entry.name.name) for entry in directory.entries)


def log_dir_start(directory: LogDirectory, blocked: Finding | None = None) -> LogDirStart | None:
    """How a data directory affects a broker's start; None for a plain collection of partitions. blocked: the finding about a file of its
    own that cannot be written."""
    if not _is_of_a_node(directory):
        return None
    path = directory.path
    has_metadata_log = any(child.name == METADATA_DIRECTORY for child in directory.partitions)
    checkpoints = {role: checkpoint_fault(path, role) for role in OFFSET_CHECKPOINT_ROLES}
    offline = [
        fault
        for role, fault in checkpoints.items()
        if fault is not None and fault.exception == STORAGE and role is not Role.HIGH_WATERMARKS
    ]
    marker = os.path.join(path, NAME_BY_ROLE[Role.CLEAN_SHUTDOWN])
    if places.isdir(marker) and places.listdir(marker):  # Kafka: CleanShutdownFileHandler.delete
        offline.insert(0, Thrown("DirectoryNotEmptyException", marker))
    if blocked is not None and isinstance(blocked.diagnosis, UnwritableFile):
        offline.insert(0, Thrown(blocked.diagnosis.exception, f"{blocked.path}: {blocked.message}"))
    watermarks = checkpoints[Role.HIGH_WATERMARKS]
    is_unserved = watermarks is not None and watermarks.exception != STORAGE
    found = None if watermarks is None else (watermarks,)
    return LogDirStart(
        path=path,
        **_identity(directory),
        metadata_log=has_metadata_log,
        is_clean=directory.entry(Role.CLEAN_SHUTDOWN) is not None,
        prevents=tuple(_prevents(directory)),
        bad_names=tuple(_bad_names(directory)),
        swallowed=tuple(child.name for child in directory.nested if child.partition is not None),
        removed=tuple(child.name for child in directory.partitions if _is_marked(child)),
        offline=tuple(offline),
        watermarks=() if found is None or is_unserved else found,
        unserved=found if found is not None and is_unserved else (),
        is_full=_is_full(path),
        is_read_only=is_read_only(path),
        unmade=tuple(NAME_BY_ROLE[role] for role in _IN_ORDER_OF_CREATION if directory.entry(role) is None),
    )


def _identity(directory: LogDirectory) -> dict[str, Any]:
    path = os.path.join(directory.path, _META_PROPERTIES)
    if not places.lexists(path):
        return {"has_identity": False}
    try:
        read = decode_meta_properties(read_small(path))
    except (FormatError, UnreadableInput) as error:
        return {"identity_problem": str(error)}
    return {
        "node_id": read.node_id,
        "cluster_id": read.cluster_id,
        "directory_id": read.directory_id,
        "from_zookeeper": read.is_from_zookeeper,
    }


def _prevents(directory: LogDirectory) -> Iterator[Thrown]:
    from kseg.change.apply.lock import is_locked

    if is_locked(directory.path):
        message = (
            f"Failed to acquire lock on file .lock in {directory.path}. A Kafka instance in another process or thread is "
            "using this directory."
        )
        yield Thrown(KAFKA, message)


def _bad_names(directory: LogDirectory) -> Iterator[Thrown]:
    """What log loading ends with because of directories with other names (Kafka: UnifiedLog.parseTopicPartitionName)."""
    for child in (*directory.other_directories, *directory.nested):
        if child.partition is None and child.name not in _KNOWN_DIRECTORIES:
            message = (
                f"Found directory {child.path}, '{child.name}' is not in the form of topic-partition or "
                "topic-partition.uniqueId-delete (if marked for deletion)."
            )
            yield Thrown(KAFKA, message)


def _is_marked(child: SubDirectory) -> bool:
    return child.partition is not None and child.partition.state is PartitionState.DELETE


def checkpoint_fault(log_dir: str, role: Role) -> Thrown | None:
    """The exception that reading an offset checkpoint of a data directory throws, if it affects the start."""
    path = os.path.join(log_dir, NAME_BY_ROLE[role])
    if not places.lexists(path):
        return None
    message = f"Error while reading checkpoint file {path}"
    try:
        data = read_small(path)
    except UnreadableInput as error:
        return Thrown(STORAGE, f"{message}: {error}")
    try:
        decode_offset_checkpoint(data)
    except FormatError as error:
        exception = checkpoint_exception(data, _ENTRY) or STORAGE
        is_harmless = exception != STORAGE and (role in READ_BEFORE_LOADING or role is Role.CLEANER_OFFSETS)
        return None if is_harmless else Thrown(exception, f"{message}: {error}")
    return None


def _is_full(path: str) -> bool:
    try:
        status = os.statvfs(path)
    except OSError:
        return False
    return status.f_bavail * status.f_frsize < _LEAST_FREE_BYTES
