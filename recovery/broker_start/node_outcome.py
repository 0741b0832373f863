"""What becomes of a node and each of its partitions when its broker starts, and the line `broker-start` that reports it. `node_start`
determines the outcome."""

from collections.abc import Iterable, Iterator, Sequence

from kseg.recovery.broker_start.loaded_directory import SCAN_BYTES_PER_S, LoadedDirectory
from kseg.recovery.broker_start.log_dir_start import Thrown
from kseg.recovery.broker_start.partition_start import Loading
from kseg.segment.values import dataclass

STARTS = "starts"
WITH_OFFLINE_DIRS = "starts-with-offline-log-dirs"
DOES_NOT_START = "does-not-start"


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeStart:
    """One node.

    thrown: what ends the start; None when the broker starts. is_loaded: whether the start reaches log loading. offline: data
    directories that it continues without, and why. unserved: partitions that it loads and does not serve. outcome: None if only
    partitions were checked, which do not decide it. metadata: the basis for stray and missing partitions: the metadata log as it is
    (`whole`), as the broker truncates it (`cut`), or nothing (`unknown`). left_out: data directories that log.dirs does not name;
    left_behind: the partitions in them that a broker creates again. leaderless: the partitions that it is not elected for when it
    registers, although no other node may lead them. once_writable: the same node if nothing were mounted read-only;
    None if nothing is. once_apart: the same node with its own data directories only; None if no others are among them.
    """

    directories: tuple[LoadedDirectory, ...]
    outcome: str | None
    thrown: Thrown | None = None
    is_loaded: bool = True
    offline: tuple[tuple[str, Thrown], ...] = ()
    unserved: tuple[str, ...] = ()
    metadata: str = "unknown"
    left_out: tuple[str, ...] = ()
    left_behind: tuple[str, ...] = ()
    leaderless: tuple[str, ...] = ()
    once_writable: "NodeStart | None" = None
    once_apart: "NodeStart | None" = None

    def as_row(self) -> dict[str, object]:
        """The line `broker-start` of the JSON contract."""
        starts = [directory.start for directory in self.directories if directory.start is not None]
        come_to = self.directories if self.is_loaded else ()
        loaded = [each for each in come_to if each.is_loaded]
        lost = {path for path, _ in self.offline}
        thrown = self.thrown
        node_id = next((start.node_id for start in starts if start.node_id is not None), None)
        return {
            "type": "broker-start",
            "node_id": node_id,
            "cluster_id": next((start.cluster_id for start in starts if start.cluster_id is not None), None),
            "log_dirs": [start.path for start in starts],
            "log_dirs_left_out": [*self.left_out],
            "log_dirs_unchecked": [each.path for each in self.directories if each.is_unknown],
            "log_dirs_unclean": [start.path for start in starts if start.is_directory and not start.is_clean],
            "outcome": self.outcome,
            "exception": None if thrown is None else thrown.exception,
            "message": None if thrown is None else thrown.message,
            "log_dirs_offline": [
                {"log_dir": path, "exception": why.exception, "message": why.message}
                for path, why in self.offline
            ],
            "metadata": self.metadata,
            "voters_awaited": (awaited := _awaited(self.directories, node_id)),
            "metadata_may_be_newer": bool(awaited) and _may_be_outdated(self.directories),
            "from_zookeeper": _is_from_zookeeper(self.directories),
            "partitions": sum(directory.partitions for directory in self.directories),
            "partitions_truncated": [row for each in loaded for row in _truncated(each)],
            "partitions_shortened": [row for each in loaded for row in _shortened(each)],
            "partitions_failed": [row for each in self.directories for row in _failed(each)],
            "partitions_stray": [name for each in loaded for name in _strays(each)],
            "partitions_offline": [
                *(name for each in come_to if each.path in lost for name in each.live.values()),
                # not created while the directory that they are assigned to is offline (Kafka: Partition.createLogInAssignedDirectoryId)
                *(name for each in loaded if each.path in lost for name in each.missing),
                *self.unserved,
            ],
            "partitions_removed": [
                *(name for each in loaded for name in _removed(each)),
                *(name for each in loaded for name in _replaced(each, loaded)),
            ],
            "partitions_future": [name for each in loaded for name in _continued(each, loaded)],
            "partitions_promoted": [name for each in loaded for name in each.named(Loading.PROMOTED)],
            "partitions_missing": [
                *(name for each in loaded if each.path not in lost for name in each.missing),
                *self.left_behind,
            ],
            "partitions_leaderless": [*self.leaderless],
            "partitions_unread": [path for each in self.directories for path in each.unread],
            "logs_to_scan": sum(each.logs_to_scan for each in loaded),
            "bytes_to_scan": sum(each.bytes_to_scan for each in loaded),
            "batches_to_scan": sum(each.batches_to_scan for each in loaded),
            "estimated_s": round(max((each.load_s for each in loaded), default=0.0), 1),
            "estimated_s_slow": round(max((each.slow_load_s for each in loaded), default=0.0), 1),
            "estimated_at_bytes_per_s": SCAN_BYTES_PER_S,
            "read_only": [start.path for start in starts if start.is_read_only],
            "once_writable": None if self.once_writable is None else self.once_writable.as_row(),
            "once_apart": None if self.once_apart is None else self.once_apart.as_row(),
        }


def _is_from_zookeeper(directories: Iterable[LoadedDirectory]) -> bool:
    """Whether the last broker kept its metadata in ZooKeeper. After a migration to KRaft, meta.properties stays as that broker wrote it,
    and during one there is a metadata log already (observed with 3.9.1 and 4.3.1)."""
    starts = [directory.start for directory in directories if directory.start is not None]
    is_migrated = any(start.metadata_log for start in starts)
    is_old = any(start.from_zookeeper for start in starts)
    return any(directory.uses_zookeeper for directory in directories) or (is_old and not is_migrated)


def _awaited(directories: Iterable[LoadedDirectory], node_id: int | None) -> list[int]:
    """The quorum voters, a majority of which must be running before the broker can finish its start; none if this node is the only voter
    and so waits for no other."""
    voters = {voter for directory in directories for voter in directory.voters}
    return sorted(voters) if voters - {node_id} else []


def _may_be_outdated(directories: Iterable[LoadedDirectory]) -> bool:
    """Whether logs may become stray because of metadata that the node first fetches from the controllers, and that is not in this run."""
    are_alone = not any(directory.is_voter_present for directory in directories)
    return are_alone and any(directory.live for directory in directories)


def _truncated(directory: LoadedDirectory) -> Iterator[dict[str, object]]:
    for name, start in directory.noteworthy:
        if start.bytes_lost or start.outcome is Loading.TRUNCATED:
            yield {
                "partition": name,
                "log_dir": directory.path,
                "log_start_offset": start.log_start_offset,
                "log_end_offset": start.log_end_offset,
                "bytes_lost": start.bytes_lost,
                "records_lost": start.records_lost,
            }


def _shortened(directory: LoadedDirectory) -> Iterator[dict[str, object]]:
    for name, start in directory.of(Loading.SHORTENED):
        yield {
            "partition": name,
            "log_dir": directory.path,
            "log_start_offset": start.log_start_offset,
            "log_end_offset": start.log_end_offset,
            "end_offset_in_files": start.end_offset_in_files,
        }


def _strays(directory: LoadedDirectory) -> Iterator[str]:
    yield from directory.named(Loading.BECOMES_STRAY)
    if directory.start is not None:
        yield from directory.start.swallowed


def _removed(directory: LoadedDirectory) -> Sequence[str]:
    """Directories marked for deletion; a check of the whole data directory skips them."""
    return directory.named(Loading.REMOVED) if directory.start is None else directory.start.removed


def _replaced(directory: LoadedDirectory, loaded: Sequence[LoadedDirectory]) -> Iterator[str]:
    """Live partitions of a directory that a replica in another directory replaces; a broker deletes them (Kafka:
    LogManager.replaceCurrentWithFutureLog)."""
    promoted = {
        start.partition
        for other in loaded
        if other is not directory
        for _, start in other.of(Loading.PROMOTED)
    }
    return (name for name, partition in directory.live.items() if partition in promoted)


def _continued(directory: LoadedDirectory, loaded: Sequence[LoadedDirectory]) -> Iterator[str]:
    """The `-future` logs of replicas that the broker continues to move: one whose source is created anew, empty, is truncated to that
    source and then takes its place (Kafka: ReplicaAlterLogDirsThread; observed with 4.3.1)."""
    created = {name for each in loaded for name in each.missing}
    return (name for name, start in directory.of(Loading.FUTURE) if start.partition not in created)


def _failed(directory: LoadedDirectory) -> Iterator[dict[str, object]]:
    for name, start in directory.of(Loading.FAILS):
        yield {
            "partition": name,
            "log_dir": directory.path,
            "exception": start.exception,
            "message": start.message,
        }
