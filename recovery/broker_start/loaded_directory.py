"""The partitions of one data directory in the start forecast: which logs a broker loads, and how long that takes."""

import os
from collections.abc import Iterator, Mapping
from dataclasses import field, replace

from kseg.recovery.broker_start.log_dir_start import LogDirStart, Thrown
from kseg.recovery.broker_start.partition_start import Loading, PartitionStart, as_stray
from kseg.segment.partition.names import METADATA_DIRECTORY, PartitionState, parse_partition_directory
from kseg.segment.partition.topic_identity import TopicIdentity
from kseg.segment.values import dataclass

# Duration of a broker's log loading (4.3.1, two recovery threads per data directory): per log, recovered or not, and per byte and batch
# that recovery reads. The first of each pair holds for an idle machine with the logs in the page cache, the second for a busy machine
# with a rotating disk. Eleven measured starts, from 4 logs of 512 MiB to 2,000 of 16 KiB, with batches of 170 bytes to 64 KiB, warm and
# cold, took a time between the two sums.
SCAN_BYTES_PER_S, SCAN_BYTES_PER_S_SLOW = 1_900_000_000, 150_000_000
SECONDS_A_BATCH, SECONDS_A_BATCH_SLOW = 1.4e-6, 4.5e-6
SECONDS_A_LOG, SECONDS_A_LOG_SLOW = 0.005, 0.030


_NOT_LIVE = frozenset(
    (Loading.BECOMES_STRAY, Loading.STRAY, Loading.REMOVED, Loading.FUTURE, Loading.PROMOTED)
)


@dataclass(slots=True)
class LoadedDirectory:
    """The partitions of one data directory.

    live: the partitions served from it: directory names, each with the partition that a broker takes it for. noteworthy: those that a load
    changes. missing: those that the metadata log places here but that do not exist. obstructed: those whose name is taken by a file.
    is_checked: whether the partitions of the directory are known. refused: the exceptions that end the broker because of features and topic
    configurations in the metadata log that it does not allow. bootstrap_fault: the one that ends it because of bootstrap.checkpoint.
    refused_truncation: the one that ends it because the metadata log begins above the end of the controllers'.
    unregistered: the one that ends it because no controller registers the broker, and whether it has loaded its logs by then.
    contradiction: the one that ends it because of the metadata log record at this offset. voters: those of the quorum, as far as they are
    known; is_voter_present: whether the metadata log of one of them is in the run. uses_zookeeper: the broker keeps its metadata in
    ZooKeeper although it has a metadata log. led_by_no_other: the partitions without a leader that only this node may lead, with their
    assigned directory ids; registered: how many directories it has registered.
    """

    path: str
    start: LogDirStart | None = None
    live: dict[str, str] = field(default_factory=dict)
    noteworthy: list[tuple[str, PartitionStart]] = field(default_factory=list)
    missing: list[str] = field(default_factory=list)
    obstructed: list[str] = field(default_factory=list)
    unread: list[str] = field(default_factory=list)
    is_checked: bool = True
    refused: list[Thrown] = field(default_factory=list)
    bootstrap_fault: Thrown | None = None
    refused_truncation: Thrown | None = None
    unregistered: tuple[Thrown, bool] | None = None
    contradiction: tuple[int, Thrown] | None = None
    voters: set[int] = field(default_factory=set)
    is_voter_present: bool = False
    uses_zookeeper: bool = False
    led_by_no_other: Mapping[str, str] = field(default_factory=dict)
    registered: int = 0
    partitions: int = 0
    logs_to_scan: int = 0
    bytes_to_scan: int = 0
    batches_to_scan: int = 0

    def add(self, directory_name: str, start: PartitionStart) -> None:
        """Add a partition. Nearly all load unchanged; only their names are kept."""
        self.partitions += 1
        self.logs_to_scan += bool(start.bytes_to_scan)
        self.bytes_to_scan += start.bytes_to_scan
        self.batches_to_scan += start.batches_to_scan
        is_live = start.outcome not in _NOT_LIVE and _is_live_name(directory_name, start.partition)
        if is_live and directory_name != METADATA_DIRECTORY:
            self.live[directory_name] = start.partition
        if start.outcome not in (Loading.UNCHANGED, Loading.RECOVERED):
            self.noteworthy.append((directory_name, start))

    @property
    def load_s(self) -> float:
        """The least time that loading the logs of this directory takes."""
        return self._load_s(SCAN_BYTES_PER_S, SECONDS_A_BATCH, SECONDS_A_LOG)

    @property
    def slow_load_s(self) -> float:
        """Like `load_s`, on a busy machine with a rotating disk."""
        return self._load_s(SCAN_BYTES_PER_S_SLOW, SECONDS_A_BATCH_SLOW, SECONDS_A_LOG_SLOW)

    def _load_s(self, bytes_per_s: int, seconds_a_batch: float, seconds_a_log: float) -> float:
        of_batches, of_logs = self.batches_to_scan * seconds_a_batch, self.partitions * seconds_a_log
        return self.bytes_to_scan / bytes_per_s + of_batches + of_logs

    @property
    def is_unknown(self) -> bool:
        """Whether it is a data directory in log.dirs about whose partitions nothing is known."""
        start = self.start
        return not self.is_checked and start is not None and start.is_directory and start.has_identity

    @property
    def is_loaded(self) -> bool:
        """Whether a broker loads the logs of this directory."""
        return self.start is None or not self.start.identity_problem

    @property
    def identified(self) -> list[str]:
        """The directories for which the metadata log has a verdict: live ones, and replicas that move."""
        return [*self.live, *(name for name, _ in self.of(Loading.FUTURE, Loading.PROMOTED))]

    def identify(self, directory_name: str, identity: TopicIdentity) -> None:
        """Apply the metadata log's verdict on one of these directories; a verdict can only be reached for the node as a whole."""
        known = dict(self.noteworthy).get(directory_name)
        outcome = Loading.PROMOTED if identity.is_promoted else Loading.FUTURE
        known = known or PartitionStart(partition=directory_name, outcome=outcome)
        if identity.becomes_stray:
            start = as_stray(known, os.path.join(self.path, directory_name))
            self.live.pop(directory_name, None)
        elif directory_name in self.live:
            return
        else:
            start = replace(known, outcome=outcome)
        self.noteworthy = [each for each in self.noteworthy if each[0] != directory_name]
        self.noteworthy.append((directory_name, start))

    def of(self, *outcomes: Loading) -> Iterator[tuple[str, PartitionStart]]:
        return ((name, start) for name, start in self.noteworthy if start.outcome in outcomes)

    def named(self, outcome: Loading) -> list[str]:
        return [name for name, _ in self.of(outcome)]

    @property
    def metadata_log(self) -> PartitionStart | None:
        """What a load does with the metadata log, if it does more than recover it."""
        return next((start for name, start in self.noteworthy if name == METADATA_DIRECTORY), None)


def _is_live_name(directory_name: str, partition: str) -> bool:
    """Whether a directory is named like a live partition; nearly all are named exactly like the partition."""
    return (
        directory_name == partition or parse_partition_directory(directory_name).state is PartitionState.LIVE
    )
