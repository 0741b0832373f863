"""The state of the transaction coordinators, from the logs of `__transaction_state`.

1. The records of each partition in offset order; the newest of each transactional id counts, a tombstone removes it.
2. A record that a coordinator cannot load ends its load of the partition: it serves what it has read so far, and reports this only
   in its log. A record of an unknown type or version is skipped. Here both are findings, and reading continues (`coordinator_load`).
3. Of several replicas of a partition the most recent one counts (`broker_directories`).
4. An id in a partition that is not its coordinator's is not served: the topic was given more partitions (`coordinator_partition`). The
   broker lists it, and neither ends its transaction nor finds it when its producer comes back (observed with 4.3.1).

(Kafka: TransactionStateManager.loadTransactionMetadata, TransactionLog, TransactionMetadata; fact sheet of the internal topics, §6.1.)
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import field, replace

from kseg.internal_topics.coordinator_log import CoordinatorRecord
from kseg.internal_topics.decoding import Decoded, UnknownType, decode_key, decode_value
from kseg.internal_topics.groups.coordinator_partition import HomePartition, partition_for
from kseg.internal_topics.load_findings import FAILS, TORN
from kseg.segment.errors import FormatError
from kseg.segment.findings import Finding
from kseg.segment.values import dataclass

TRANSACTION_STATE = "__transaction_state"

EMPTY, ONGOING, PREPARE_COMMIT, PREPARE_ABORT = "Empty", "Ongoing", "PrepareCommit", "PrepareAbort"
COMPLETE_COMMIT, COMPLETE_ABORT = "CompleteCommit", "CompleteAbort"
DEAD = "Dead"  # no coordinator writes it; a coordinator that reads it neither lists nor describes the id
STATES = (
    EMPTY,
    ONGOING,
    PREPARE_COMMIT,
    PREPARE_ABORT,
    COMPLETE_COMMIT,
    COMPLETE_ABORT,
    DEAD,
    "PrepareEpochFence",
)
PREPARED = (PREPARE_COMMIT, PREPARE_ABORT)

_LAST_VERSION = 1
CLIENT_VERSIONS = range(3)  # of the transaction protocol (Kafka: TransactionVersion)
# since this version, each transaction of a producer has an epoch of its own (KIP-890)
EPOCH_PER_TRANSACTION = 2

TopicPartition = tuple[str, int]


@dataclass(frozen=True, slots=True)
class TransactionalId:
    """The newest record of a transactional id.

    partitions: as recorded; of a prepared transaction all of them. started_ms: -1 before the first transaction. client_version: 2
    for KIP-890's protocol, which raises the epoch with each transaction. previous_producer_id, next_producer_id: -1 if there is
    none. offset: of the record. is_misplaced: whether the coordinator of the id is that of another partition. is_loaded: False if so, or
    if the coordinator ends its load of the partition before the record, None if damage before the record may end it.
    """

    transactional_id: str
    producer_id: int
    producer_epoch: int
    state: str
    timeout_ms: int
    started_ms: int
    updated_ms: int
    partitions: tuple[TopicPartition, ...]
    client_version: int = 0
    previous_producer_id: int = -1
    next_producer_id: int = -1
    offset: int = -1
    is_misplaced: bool = False
    is_loaded: bool | None = True


class Unloadable(FormatError):
    """A record at which the coordinator ends its load of the partition."""


class PassedOver(FormatError):
    """A record of an unknown type or version, which the coordinator skips."""


@dataclass(frozen=True, slots=True)
class CommittedTransaction:
    """A transaction of the second protocol that its coordinator has completed. epoch: of its markers. decided_ms: when it was committed."""

    transactional_id: str
    producer_id: int
    epoch: int
    decided_ms: int


@dataclass(slots=True)
class Decisions:
    """What a coordinator has decided about the transactions of a producer id, superseded records included. last: the last record in a
    Prepare state; it has all partitions of its transaction. commits: those in state PrepareCommit that `last_commits` remembers."""

    last: CoordinatorRecord
    commits: Iterable[CoordinatorRecord]


@dataclass(frozen=True, slots=True)
class TransactionLog:
    """The state of one partition of the topic.

    ids: by transactional id, as their newest records have them. loaded: the same as the coordinator has them once it has loaded the
    partition. former: the transactional id that a producer id last had, even if its record is superseded or a tombstone. findings: records
    that cannot be loaded. committed: the epochs of the records by which a producer id has committed a transaction of the second protocol,
    superseded ones as well; each has the epoch after that of its transaction. decided: by producer id.
    """

    ids: Mapping[str, TransactionalId]
    loaded: Mapping[str, TransactionalId]
    former: Mapping[int, str]
    committed: Mapping[int, Collection[int]] = field(default_factory=dict)
    decided: Mapping[int, Decisions] = field(default_factory=dict)
    findings: tuple[Finding, ...] = ()


@dataclass(frozen=True, slots=True)
class RefusedMarker:
    """A partition that refuses the marker with which a coordinator would end a transaction. words: why."""

    where: TopicPartition
    words: str


@dataclass(frozen=True, slots=True)
class CoordinatorView:
    """The combined state of all available coordinators.

    partitions: of the topic that were read. missing: those that are unavailable, as far as their number is known. is_whole: none is missing
    or damaged. ids: by the newest records. by_producer: the ids as the coordinators have them, by their current producer id. unloaded:
    those whose newest record no coordinator loads, by the producer id in it. committed, decided: see `TransactionLog`. commit_markers:
    partitions with a COMMIT marker whose epoch the coordinator's record has not reached, by producer id and that epoch. refused: a
    partition that refuses the markers of the transaction that an id has, by transactional id. is_settled: whether the logs of all brokers
    are here and none of them runs, so that the coordinators will know nothing more. coordinator_epochs: if so, the epoch of each
    partition's next coordinator, which may be greater. commits: if so, the last committed transactions of each partition.
    """

    ids: Mapping[str, TransactionalId] = field(default_factory=dict)
    by_producer: Mapping[int, tuple[TransactionalId, ...]] = field(default_factory=dict)
    unloaded: Mapping[int, tuple[TransactionalId, ...]] = field(default_factory=dict)
    former: Mapping[int, str] = field(default_factory=dict)
    committed: Mapping[int, Collection[int]] = field(default_factory=dict)
    decided: Mapping[int, Decisions] = field(default_factory=dict)
    commit_markers: Mapping[int, Mapping[int, TopicPartition]] = field(default_factory=dict)
    refused: Mapping[str, "RefusedMarker"] = field(default_factory=dict)
    partitions: tuple[int, ...] = ()
    missing: tuple[int, ...] = ()
    is_whole: bool = False
    is_settled: bool = False
    coordinator_epochs: Mapping[int, int] = field(default_factory=dict)
    commits: Mapping[TopicPartition, Sequence[CommittedTransaction]] = field(default_factory=dict)

    def epoch_of(self, known: TransactionalId) -> int | None:
        """The epoch of the next coordinator of an id, None if it is unknown."""
        if not self.coordinator_epochs:
            return None
        return self.coordinator_epochs.get(
            partition_for(known.transactional_id, len(self.coordinator_epochs))
        )

    @property
    def is_known(self) -> bool:
        """Whether any partition of the topic is available."""
        return bool(self.partitions)


def loaded_record(
    record: CoordinatorRecord,
) -> tuple[str, TransactionalId | None]:
    """(transactional id, its record or None for a tombstone). Raises Unloadable and PassedOver."""
    if record.key is None:
        raise Unloadable("the record has no key")
    try:
        name = decode_key(TRANSACTION_STATE, record.key).values["transactionalId"]
    except UnknownType as error:
        raise PassedOver(f"record type {error.type_id} is unknown") from None
    except FormatError as error:
        raise Unloadable(f"the key cannot be decoded: {error}") from None
    if record.value is None:
        return name, None
    try:
        decoded = decode_value(TRANSACTION_STATE, 0, record.value)
    except FormatError as error:
        if not 0 <= int.from_bytes(record.value[:2], "big", signed=True) <= _LAST_VERSION:
            raise PassedOver(_version_words(record.value)) from None
        raise Unloadable(f"the value of {name} cannot be decoded: {error}") from None
    if decoded.is_newer:
        raise PassedOver(_version_words(record.value))
    return name, _state_of(name, decoded, record.offset)


def partitions_in(record: CoordinatorRecord) -> tuple[TopicPartition, ...]:
    """The partitions of the transaction in a record, none if it cannot be loaded."""
    try:
        known = loaded_record(record)[1]
    except (Unloadable, PassedOver):
        return ()
    return () if known is None else known.partitions


def _version_words(value: bytes) -> str:
    return f"value version {int.from_bytes(value[:2], 'big', signed=True)} is unknown"


def _state_of(name: str, decoded: Decoded, offset: int) -> TransactionalId:
    values = decoded.values
    status = values["transactionStatus"]
    if not 0 <= status < len(STATES):
        raise Unloadable(f"transaction state {status} of {name} is unknown (IllegalStateException)")
    listed = values["transactionPartitions"]
    if listed is None and STATES[status] != EMPTY:
        raise Unloadable(f"{name} has no partitions in state {STATES[status]} (NullPointerException)")
    client_version = values.get("clientTransactionVersion", 0)
    if client_version not in CLIENT_VERSIONS:
        raise Unloadable(f"the client of {name} has the unknown transaction version {client_version}")
    return TransactionalId(
        name,
        values["producerId"],
        values["producerEpoch"],
        STATES[status],
        values["transactionTimeoutMs"],
        values["transactionStartTimestampMs"],
        values["transactionLastUpdateTimestampMs"],
        tuple((each["topic"], number) for each in listed or () for number in each["partitionIds"]),
        client_version,
        values.get("previousProducerId", -1),
        values.get("nextProducerId", -1),
        offset,
    )


def load_finding(path: str, offset: int, error: Unloadable | PassedOver) -> Finding:
    """The finding about a record that prevents a coordinator from loading a partition, or that it skips."""
    if isinstance(error, PassedOver):
        return Finding("coordinator-record-unknown", path, f"offset {offset}: {error}", first_offset=offset)
    message = (
        f"offset {offset}: {error}; a coordinator stops loading the partition at such a record, and does not know the transactional ids that "
        "are recorded after it: their transactions stay open, and their producers get new producer ids"
    )
    return Finding(FAILS, path, message, first_offset=offset)


def by_producer(ids: Iterable[TransactionalId]) -> dict[int, tuple[TransactionalId, ...]]:
    """The transactional ids of each producer id."""
    found: dict[int, tuple[TransactionalId, ...]] = {}
    for known in ids:
        found[known.producer_id] = (*found.get(known.producer_id, ()), known)
    return found


def joined(
    logs: Mapping[int, TransactionLog],
    partition_count: int | None,
    damaged: Iterable[int] = (),
    *,
    is_before_a_start: bool = False,
) -> CoordinatorView:
    """Join all partitions. partition_count: of the topic, None when unknown. damaged: partitions that could not be read.
    is_before_a_start: whether no broker is running, which may have been started when the topic had fewer partitions."""
    ids: dict[str, TransactionalId] = {}
    loaded: dict[str, TransactionalId] = {}
    former: dict[int, str] = {}
    committed: dict[int, Collection[int]] = {}
    decided: dict[int, Decisions] = {}
    misplaced: dict[str, TransactionalId] = {}
    for number, log in logs.items():
        home = HomePartition(number, partition_count if is_before_a_start else None)
        ids |= {name: known for name, known in log.ids.items() if home.has(name)}
        loaded |= {name: known for name, known in log.loaded.items() if home.has(name)}
        misplaced |= {
            name: replace(known, is_misplaced=True, is_loaded=False)
            for name, known in log.ids.items()
            if not home.has(name)
        }
        former |= log.former
        committed |= log.committed
        decided |= log.decided
    hurt = {
        *damaged,
        *(number for number, log in logs.items() if any(each.id != TORN for each in log.findings)),
    }
    expected: Sequence[int] = range(partition_count or 0)
    missing = tuple(number for number in expected if number not in logs)
    return CoordinatorView(
        misplaced | ids,
        by_producer(loaded.values()),
        by_producer(each for each in (*misplaced.values(), *ids.values()) if each.is_loaded is False),
        former,
        committed,
        decided,
        partitions=tuple(sorted({*logs, *hurt})),
        missing=missing,
        is_whole=partition_count is not None and not missing and not hurt,
    )
