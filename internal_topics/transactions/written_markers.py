"""The markers that the partitions of a transaction already have, which show what the coordinators' log alone does not.

A prepared transaction: a partition has its marker if its producer is not in a transaction there, and the producer's last timestamp, which
is then a marker's, is not before the decision.

A transaction of the second protocol, whose decision was lost with the end of the coordinator's log: its markers have the epoch after its
own, which no other transaction's markers have.

A marker is refused where the producer has a later epoch, and in the second protocol also one of its own epoch that ends a transaction. The
coordinator then gives up all markers of the transaction, and the id stays in its state: no producer can use it, and no partition of the
transaction is freed (Kafka: ProducerAppendInfo.checkProducerEpoch, TransactionMarkerRequestCompletionHandler; observed with 4.3.1). This
happens if the coordinator's log has lost its end and the partitions' logs have not. A marker is also refused where the producer's last
marker came from a coordinator with a later epoch, as after the metadata log was recreated with leader epochs from 0 on
(checkCoordinatorEpoch; observed with 4.3.1).
"""

from collections.abc import Iterable, Iterator

from kseg.internal_topics.broker_directories import BrokerDirectories, most_recent
from kseg.internal_topics.transactions.partition_replay import PartitionReplay
from kseg.internal_topics.transactions.transaction_log import (
    EPOCH_PER_TRANSACTION,
    ONGOING,
    PREPARED,
    RefusedMarker,
    TopicPartition,
    TransactionalId,
)
from kseg.segment.errors import FormatError, KsegError
from kseg.segment.partition.partition_log import PartitionLog
from kseg.segment.partition.targets import LogTarget
from kseg.segment.scanning.decode import record_at
from kseg.segment.sidecar.snapshot import ProducerSnapshotEntry
from kseg.segment.state.control import COMMIT, parse_control_record
from kseg.segment.state.transaction_replay import LastMarker, TransactionReplay

_LAST_EPOCH = 2**15 - 1  # a broker accepts a marker that repeats this epoch


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


class WrittenMarkers:
    """The markers in the most recent replicas of the partitions under PATH, each of which is read once."""

    def __init__(self, directories: BrokerDirectories) -> None:
        self._directories = directories
        self._replicas: dict[str, dict[int, list[LogTarget]]] = {}
        self._states: dict[TopicPartition, TransactionReplay | None] = {}

    def unmarked(self, known: TransactionalId) -> tuple[TopicPartition, ...]:
        """The partitions of a prepared transaction that lack its marker, or are unavailable."""
        return tuple(where for where in known.partitions if not self._is_marked(known, where))

    def later_commits(
        self, known: TransactionalId, places: Iterable[TopicPartition]
    ) -> Iterator[tuple[int, TopicPartition]]:
        """(epoch, partition) of the COMMIT markers in some partitions that end the transaction which an id has, or a later one of which the
        id's record knows nothing."""
        if known.client_version != EPOCH_PER_TRANSACTION:
            return
        for where in places:
            epoch = self._later_commit(known, where)
            if epoch is not None:
                yield epoch, where

    def refused(self, known: TransactionalId, coordinator_epoch: int | None) -> RefusedMarker | None:
        """A partition that refuses the marker of an ongoing or prepared transaction, None if none is known. coordinator_epoch: of the
        coordinator, None if it is unknown."""
        if known.state not in (ONGOING, *PREPARED) or not known.is_loaded:
            return None
        # aborting an ongoing transaction raises the epoch, unless a client of the first protocol does it, and none is left after a restart
        epoch = known.producer_epoch + (known.state == ONGOING)
        for where in known.partitions:
            state = self._state(where)
            entry: ProducerSnapshotEntry | None = None if state is None else state.entry(known.producer_id)
            if entry is None:
                continue
            if _refuses(entry, epoch, known.client_version):
                had = f"has epoch {entry.producer_epoch} of its producer already, and refuses a marker with epoch {epoch}"
                return RefusedMarker(where, had)
            if coordinator_epoch is not None and entry.coordinator_epoch > coordinator_epoch:
                had = f"has a marker of a coordinator with epoch {entry.coordinator_epoch}, and refuses one with epoch {coordinator_epoch}"
                return RefusedMarker(where, had)
        return None

    def _is_marked(self, known: TransactionalId, where: TopicPartition) -> bool:
        state = self._state(where)
        return state is not None and any(
            _is_of(known, at_ms) for at_ms in _marker_times(state, known.producer_id)
        )

    def _later_commit(self, known: TransactionalId, where: TopicPartition) -> int | None:
        """The epoch of the last marker of the id's producer, if that is a COMMIT marker with a later epoch than the id's record."""
        state, target = self._state(where), self._target(where)
        entry: ProducerSnapshotEntry | None = None if state is None else state.entry(known.producer_id)
        if state is None or target is None or entry is None or entry.producer_epoch <= known.producer_epoch:
            return None
        marker: LastMarker | None = state.last_marker(known.producer_id)
        if marker is None:  # it precedes the newest snapshot, which does not store its type
            marker = _last_marker(target, known.producer_id)
        if marker is None or marker.producer_epoch <= known.producer_epoch:
            return None
        return marker.producer_epoch if _is_commit(target, marker.offset) else None

    def _state(self, where: TopicPartition) -> TransactionReplay | None:
        if where not in self._states:
            target = self._target(where)
            self._states[where] = None if target is None else state_of(target)
        return self._states[where]

    def _target(self, where: TopicPartition) -> LogTarget | None:
        topic, number = where
        if topic not in self._replicas:
            self._replicas[topic] = self._directories.replicas(topic)
        replicas = self._replicas[topic].get(number)
        return None if replicas is None else most_recent(replicas)


def _refuses(entry: ProducerSnapshotEntry, epoch: int, client_version: int) -> bool:
    if entry.producer_epoch != epoch:
        return entry.producer_epoch > epoch
    is_open = entry.current_txn_first_offset is not None
    return client_version >= EPOCH_PER_TRANSACTION and is_open and epoch < _LAST_EPOCH


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


def _last_marker(target: LogTarget, producer_id: int) -> LastMarker | None:
    """The last marker of a producer in the whole log."""
    try:
        with PartitionLog(target) as log:
            partition = PartitionReplay(log)
            for _ in partition.ended():
                pass
            return partition.whole.last_marker(producer_id)
    except KsegError:
        return None


def _is_commit(target: LogTarget, offset: int) -> bool:
    """Whether the marker at an offset is a COMMIT marker."""
    try:
        with PartitionLog(target) as log:
            for segment in log.from_floor(offset):
                for batch in segment.reaching(offset):
                    for chunk, at in segment.records(batch):
                        record = record_at(chunk, at)
                        return parse_control_record(record.key, record.value).kind == COMMIT
                    return False
    except (KsegError, FormatError):
        pass
    return False
