"""The coordinators' view of the transactions under some PATHs.

1. Every available partition of `__transaction_state` is read; of several replicas the longest.
2. The topic's number of partitions is taken from the metadata log of a log dir, if there is one.
3. From a prepared transaction the partitions that already have their marker are removed, as a coordinator removes them when a broker has
   acknowledged the marker (`kafka-transactions.sh describe`). A partition has it if its producer is not in a transaction, and the
   producer's last timestamp, which is then a marker's, is not before the decision. Unavailable partitions stay.
"""

from collections.abc import Iterator, Mapping
from dataclasses import replace

from kseg.internal_topics.broker_directories import BrokerDirectories, end_offset_of
from kseg.internal_topics.metadata.metadata_finder import MetadataFinder
from kseg.internal_topics.transactions.coordinator_load import read_transaction_log
from kseg.internal_topics.transactions.partition_replay import PartitionReplay
from kseg.internal_topics.transactions.transaction_log import (
    PREPARED,
    TRANSACTION_STATE,
    CoordinatorView,
    TopicPartition,
    TransactionalId,
    TransactionLog,
    joined,
)
from kseg.segment.errors import KsegError
from kseg.segment.findings import Finding
from kseg.segment.partition.partition_log import PartitionLog
from kseg.segment.partition.targets import LogTarget
from kseg.segment.sidecar.snapshot import ProducerSnapshotEntry
from kseg.segment.state.transaction_replay import LastMarker, TransactionReplay


def coordinator_view(directories: BrokerDirectories) -> tuple[CoordinatorView, tuple[Finding, ...]]:
    """The state of all coordinators under PATH, and the problems of their logs."""
    logs: dict[int, TransactionLog] = {}
    findings: list[Finding] = []
    damaged = []
    for number, replicas in directories.replicas(TRANSACTION_STATE).items():
        target = longest(replicas)
        try:
            logs[number] = read_transaction_log(target)
        except KsegError as error:
            damaged.append(number)
            findings.append(Finding("coordinator-load-fails", target.path, str(error)))
            continue
        findings += logs[number].findings
    view = joined(logs, _partition_count(directories), damaged)
    return _without_marked(view, directories), tuple(findings)


def longest(replicas: list[LogTarget]) -> LogTarget:
    """The longest replica."""
    return replicas[0] if len(replicas) == 1 else max(replicas, key=end_offset_of)


def state_of(target: LogTarget) -> TransactionReplay | None:
    """The producer state of a partition as a broker has it in memory; None if it cannot be read."""
    try:
        with PartitionLog(target) as log:
            partition = PartitionReplay(log)
            for _ in partition.ended(only_state=True):
                pass
            return partition.state
    except KsegError:
        return None


def _partition_count(directories: BrokerDirectories) -> int | None:
    finder = MetadataFinder(directories.log_dirs)
    for log_dir in directories.log_dirs:
        try:
            image = finder.image_for(log_dir)
        except KsegError:
            continue
        for topic in () if image is None else image.topics.values():
            if topic.name == TRANSACTION_STATE:
                return len(topic.partitions)
    return None


def _without_marked(view: CoordinatorView, directories: BrokerDirectories) -> CoordinatorView:
    listed = (*view.ids.values(), *_owners(view.by_producer), *_owners(view.unloaded))
    wanted = {topic for each in listed if each.state in PREPARED for topic, _ in each.partitions}
    if not wanted:
        return view
    at_hand = {
        (topic, number): replicas
        for topic in wanted
        for number, replicas in directories.replicas(topic).items()
    }
    states: dict[TopicPartition, TransactionReplay | None] = {}

    def left(known: TransactionalId) -> TransactionalId:
        if known.state not in PREPARED or not known.partitions:
            return known
        places = [where for where in known.partitions if not _is_marked(known, where, at_hand, states)]
        return replace(known, partitions=tuple(places))

    def of_producers(
        owners: Mapping[int, tuple[TransactionalId, ...]],
    ) -> dict[int, tuple[TransactionalId, ...]]:
        return {producer_id: tuple(map(left, some)) for producer_id, some in owners.items()}

    return replace(
        view,
        ids={name: left(known) for name, known in view.ids.items()},
        by_producer=of_producers(view.by_producer),
        unloaded=of_producers(view.unloaded),
    )


def _owners(by_producer: Mapping[int, tuple[TransactionalId, ...]]) -> Iterator[TransactionalId]:
    for owners in by_producer.values():
        yield from owners


def _is_marked(
    known: TransactionalId,
    where: TopicPartition,
    at_hand: Mapping[TopicPartition, list[LogTarget]],
    states: dict[TopicPartition, TransactionReplay | None],
) -> bool:
    if where not in at_hand:
        return False
    if where not in states:
        states[where] = state_of(longest(at_hand[where]))
    state = states[where]
    if state is None:
        return False
    return any(_is_of(known, at_ms) for at_ms in _marker_times(state, known.producer_id))


def _is_of(known: TransactionalId, marker_ms: int) -> bool:
    """Whether a marker with that timestamp belongs to the prepared transaction. Brokers' clocks may differ, so any time after its
    start counts."""
    return marker_ms >= known.updated_ms or marker_ms > known.started_ms


def _marker_times(state: TransactionReplay, producer_id: int) -> Iterator[int]:
    marker: LastMarker | None = state.last_marker(producer_id)
    if marker is not None:
        yield marker.timestamp_ms
    entry: ProducerSnapshotEntry | None = state.entry(producer_id)
    if entry is not None and entry.current_txn_first_offset is None and entry.coordinator_epoch >= 0:
        yield entry.timestamp_ms
