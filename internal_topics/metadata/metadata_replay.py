"""Replay of metadata records into an image (Kafka: the *Delta classes).

Transactions: records between BeginTransaction and EndTransaction are held back, and dropped at AbortTransaction or at the end of the log
(Kafka: OffsetControlManager, the controller's rule; the loader of a 4.3.1 broker gets aborts wrong). In an earlier state, if the clock went
back, a transaction counts if its EndTransaction does: its records are held back although its BeginTransaction is later. A record that
contradicts the state (a change of a missing partition, an End without a Begin) is recorded, and skipped where it has no effect. No
controller writes such records, but one may result from the loss of an earlier record: then a controller fails to start (observed with
4.3.1, record by record).

Most callers need only topics, configurations, brokers, features and producer ids; for them (`everything=False`) other records are not
decoded.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, NamedTuple

from kseg.internal_topics.decoding import UnknownType, decode_framed, frame_of
from kseg.internal_topics.metadata.access_replay import ACCESS_EFFECTS, AccessReplay
from kseg.internal_topics.metadata.metadata_image import (
    MIGRATING,
    Broker,
    Controller,
    Partition,
    RemovedTopic,
    Resource,
    Topic,
)
from kseg.internal_topics.metadata.node_registrations import broker_of, changed_broker, controller_of
from kseg.segment.counted import counted
from kseg.segment.errors import FormatError

_BEGIN, _END, _ABORT = 23, 24, 25
_TOPIC, _REMOVE_TOPIC = 2, 9
_NO_CHANGE = -2  # leader in a PartitionChangeRecord that does not change it
_FENCE_BROKER = 7
_RECOVERING, _SAME_RECOVERY = 1, -1

KRAFT_VERSION_FEATURE = "kraft.version"

Values = Mapping[str, Any]


class MetadataRecord(NamedTuple):
    """A record of the metadata log and its location. epoch: of the controller that wrote it. type, values: as decoded."""

    offset: int
    timestamp_ms: int
    epoch: int
    type: int
    values: Values


# Called before a record is applied, with the record and the state (None for a record below the snapshot that the state starts with).
Watch = Callable[[MetadataRecord, "MetadataReplay | None"], None]


class MetadataReplay:
    """The state during a replay.

    everything: also controllers and access. watch: receives each record that counts. problems: (offset, words) of records that could not be
    read: the state may be wrong from there on. oddities: likewise, of records that were skipped or come from a newer Kafka. contradictions:
    those of the oddities on which a controller fails. unparsed: the offsets of records on which any node fails as it reads the log.
    feature_levels: every (feature, level) that was set, in order.
    """

    def __init__(self, everything: bool = False, watch: Watch | None = None) -> None:
        self.brokers: dict[int, Broker] = {}
        self.features: dict[str, int] = {}
        self.feature_levels: dict[tuple[str, int], None] = {}
        self.configs: dict[tuple[int, str], dict[str, str]] = {}
        self.removed: dict[str, RemovedTopic] = {}
        self.problems: list[tuple[int, str]] = []
        self.oddities: list[tuple[int, str]] = []
        self.contradictions: list[tuple[int, str]] = []
        self.unparsed: list[int] = []
        self.controllers: dict[int, Controller] = {}
        self.access = AccessReplay()
        self.next_producer_id: int | None = None
        self.ends_in_transaction = False
        self.leaders: dict[int, int] = {}  # of the quorum, by epoch
        self.names: dict[str, str] = {}  # by topic id, including deleted topics
        self.watch = watch
        self._is_wanted = _ALL if everything else _USUAL
        self._partitions: dict[str, dict[int, Partition]] = {}
        self._live_names: set[str] = set()  # of the existing topics
        self._held: list[MetadataRecord] | None = None
        self._began_at = 0

    def take(self, offset: int, value: bytes | None, timestamp_ms: int = -1, epoch: int = -1) -> None:
        """One record of the log, or of a snapshot."""
        try:
            frame = frame_of(value)
            type_id = frame[0]
            if type_id not in self._is_wanted:
                if type_id not in _ALL and type_id not in _WITHOUT_EFFECT:
                    self._contradicts(offset, str(UnknownType("the metadata log", type_id)))
                    self.unparsed.append(offset)
                return
            decoded = decode_framed(value, frame=frame)
        except FormatError as error:
            self.problems.append((offset, str(error)))
            self.unparsed.append(offset)
            return
        if decoded.left_over_bytes:
            words = f"{decoded.left_over_bytes} bytes are left over after {decoded.message.name} version {decoded.version}"
            self.problems.append((offset, words))
            self.unparsed.append(offset)
        elif decoded.is_newer:
            words = f"{decoded.message.name} has version {decoded.version}, which is newer than Kafka 4.3.1's"
            self.oddities.append((offset, words))
        if type_id in (_BEGIN, _END, _ABORT):
            self._transaction(offset, type_id)
            return
        record = MetadataRecord(offset, timestamp_ms, epoch, type_id, decoded.values)
        if self._held is not None:
            self._held.append(record)
        else:
            self._apply(record)

    def note_history(self, offset: int, value: bytes | None, timestamp_ms: int = -1, epoch: int = -1) -> None:
        """A record below the snapshot that the state starts with: only for the names of deleted topics, and for `watch`."""
        try:
            frame = frame_of(value)
            type_id = frame[0]
            if type_id not in (_TOPIC, _REMOVE_TOPIC) and (self.watch is None or type_id not in _EFFECTS):
                return
            record = MetadataRecord(
                offset, timestamp_ms, epoch, type_id, decode_framed(value, frame=frame).values
            )
        except FormatError:
            return
        if self.watch is not None and type_id in _EFFECTS:
            self.watch(record, None)
        if type_id == _TOPIC:
            self.names.setdefault(record.values["topicId"], record.values["name"])
        elif type_id == _REMOVE_TOPIC:
            topic_id = record.values["topicId"]
            name = self.names.get(topic_id, "")
            self.removed[topic_id] = RemovedTopic(name, topic_id, offset, timestamp_ms)

    def pass_over(self, offset: int, value: bytes | None) -> None:
        """A record that does not count: only for the names of later topics, and for the boundaries of transactions."""
        try:
            type_id = frame_of(value)[0]
            if type_id == _TOPIC:
                values = decode_framed(value).values
                self.names.setdefault(values["topicId"], values["name"])
        except FormatError:
            return
        if type_id == _BEGIN and self._held is None:
            self._held, self._began_at = [], offset
        elif type_id in (_END, _ABORT):
            self.finish()

    def finish(self) -> None:
        """The end of the state: the records of an open transaction are not visible."""
        self.ends_in_transaction = self._held is not None
        if self._held:
            words = f"a metadata transaction of {counted(len(self._held), 'record')} is open at the end of the state"
            self.oddities.append((self._began_at, words))
        self._held = None

    def set_feature(self, name: str, level: int) -> None:
        self.feature_levels[name, level] = None
        self.features[name] = level
        if level == 0 and name != KRAFT_VERSION_FEATURE:
            del self.features[name]

    def topics(self) -> Mapping[str, Topic]:
        """By id."""
        return {
            topic_id: Topic(self.names[topic_id], topic_id, dict(partitions))
            for topic_id, partitions in self._partitions.items()
        }

    def partitions(self, topic_id: str) -> Mapping[int, Partition] | None:
        """The current partitions of a topic; None if there is no such topic."""
        return self._partitions.get(topic_id)

    # --- records

    def _transaction(self, offset: int, type_id: int) -> None:
        held = self._held
        if (type_id == _BEGIN) != (held is None):
            words = "begins inside another one" if type_id == _BEGIN else "ends that never began"
            self._contradicts(offset, f"a metadata transaction {words}; the record is skipped")
            return
        if type_id == _BEGIN:
            self._held, self._began_at = [], offset
            return
        self._held = None
        if type_id == _END:
            for record in held or ():
                self._apply(record)

    def _apply(self, record: MetadataRecord) -> None:
        if self.watch is not None:
            self.watch(record, self)
        _EFFECTS[record.type](self, record)

    def _contradicts(self, offset: int, words: str) -> None:
        self.oddities.append((offset, words))
        self.contradictions.append((offset, words))

    def _odd(self, record: MetadataRecord, words: str) -> None:
        self._contradicts(record.offset, words)

    def _topic(self, record: MetadataRecord) -> None:
        values = record.values
        if values["name"] in self._live_names:
            self._odd(record, f"topic {values['name']} is created, but already exists")
        self._live_names.add(values["name"])
        self.names[values["topicId"]] = values["name"]
        self._partitions[values["topicId"]] = {}
        self.removed.pop(values["topicId"], None)

    def _remove_topic(self, record: MetadataRecord) -> None:
        topic_id = record.values["topicId"]
        name = self.names.get(topic_id, "")
        partitions = self._partitions.pop(topic_id, None)
        if partitions is None:
            self._odd(record, f"a topic is removed that does not exist: {topic_id}")
        else:
            self._live_names.discard(name)
            self.configs.pop((Resource.TOPIC, name), None)
        number = None if partitions is None else len(partitions)
        self.removed[topic_id] = RemovedTopic(name, topic_id, record.offset, record.timestamp_ms, number)

    def _partition(self, record: MetadataRecord) -> None:
        values = record.values
        partitions = self._partitions.get(values["topicId"])
        if partitions is None:
            self._odd(record, f"a partition of a topic that does not exist: {values['topicId']}")
            return
        replicas = values["replicas"]
        number = values["partitionId"]
        partitions[number] = Partition(
            number,
            replicas,
            values.get("directories") or (MIGRATING,) * len(replicas),
            values["isr"],
            values["leader"],
            values["leaderEpoch"],
            values["partitionEpoch"],
            values["addingReplicas"],
            values["removingReplicas"],
            values.get("eligibleLeaderReplicas") or (),
            values.get("lastKnownElr") or (),
            values["leaderRecoveryState"] == _RECOVERING,
        )

    def _partition_change(self, record: MetadataRecord) -> None:
        values = record.values
        partitions = self._partitions.get(values["topicId"], {})
        number = values["partitionId"]
        old = partitions.get(number)
        if old is None:
            self._odd(record, f"partition {number} of topic {values['topicId']} changes, but does not exist")
            return
        replicas = _changed(values, "replicas", old.replicas)
        directories = _changed(values, "directories", old.directories)
        if len(directories) != len(replicas):
            directories = (MIGRATING,) * len(replicas)
        has_leader = values["leader"] != _NO_CHANGE
        recovery = values["leaderRecoveryState"]
        partitions[number] = Partition(
            number,
            replicas,
            directories,
            _changed(values, "isr", old.isr),
            values["leader"] if has_leader else old.leader,
            old.leader_epoch + has_leader,
            old.partition_epoch + 1,
            _changed(values, "addingReplicas", old.adding),
            _changed(values, "removingReplicas", old.removing),
            _changed(values, "eligibleLeaderReplicas", old.elr),
            _changed(values, "lastKnownElr", old.last_known_elr),
            old.is_recovering if recovery == _SAME_RECOVERY else recovery == _RECOVERING,
        )

    def _clear_elr(self, record: MetadataRecord) -> None:
        name = record.values["topicName"]
        if name and name not in self._live_names:
            self._odd(record, f"eligible leader replicas of a topic that does not exist are cleared: {name}")
        for topic_id, partitions in self._partitions.items():
            if name not in ("", self.names[topic_id]):
                continue
            for number, old in partitions.items():
                if old.elr or old.last_known_elr:
                    partitions[number] = old._replace(
                        elr=(), last_known_elr=(), partition_epoch=old.partition_epoch + 1
                    )

    def _config(self, record: MetadataRecord) -> None:
        values = record.values
        key = values["resourceType"], values["resourceName"]
        if values["value"] is not None:
            self.configs.setdefault(key, {})[values["name"]] = values["value"]
            return
        self.configs.get(key, {}).pop(values["name"], None)
        if not self.configs.get(key, True):
            del self.configs[key]

    def _register_broker(self, record: MetadataRecord) -> None:
        values = record.values
        self.brokers[values["brokerId"]] = broker_of(values)

    def _unregister_broker(self, record: MetadataRecord) -> None:
        values = record.values
        if self._registered(values["brokerId"], values["brokerEpoch"], record) is not None:
            del self.brokers[values["brokerId"]]

    def _broker_change(self, record: MetadataRecord) -> None:
        values = record.values
        old = self._registered(values["brokerId"], values["brokerEpoch"], record)
        if old is not None:
            self.brokers[old.id] = changed_broker(old, values)

    def _fence(self, record: MetadataRecord) -> None:
        old = self._registered(record.values["id"], record.values["epoch"], record)
        if old is not None:
            self.brokers[old.id] = replace(old, is_fenced=record.type == _FENCE_BROKER)

    def _registered(self, broker_id: int, epoch: int, record: MetadataRecord) -> Broker | None:
        old = self.brokers.get(broker_id)
        if old is None:
            self._odd(record, f"broker {broker_id} changes, but is not registered")
        elif old.epoch != epoch:
            self._odd(
                record, f"broker {broker_id} changes in epoch {epoch}, but is registered in {old.epoch}"
            )
        return old

    def _register_controller(self, record: MetadataRecord) -> None:
        self.controllers[record.values["controllerId"]] = controller_of(record.values)

    def _producer_ids(self, record: MetadataRecord) -> None:
        next_id = record.values["nextProducerId"]
        if self.next_producer_id is not None and next_id <= self.next_producer_id:
            self._odd(record, f"producer ids begin at {next_id}, not above {self.next_producer_id}")
        self.next_producer_id = next_id

    def _feature(self, record: MetadataRecord) -> None:
        name, level = record.values["name"], record.values["featureLevel"]
        if name != KRAFT_VERSION_FEATURE:  # set by a control record instead (Kafka: FeaturesDelta)
            self.set_feature(name, level)

    def _access(self, record: MetadataRecord) -> None:
        odd = self.access.apply(record.type, record.values)
        if odd and record.type in _NEEDED_ACCESS:
            self._odd(record, odd)
        elif odd:
            self.oddities.append((record.offset, odd))


def _changed(values: Values, name: str, old: Any) -> Any:
    """A field of a change record; null, or absent in this version, means unchanged."""
    new = values.get(name)
    return old if new is None else new


_EFFECTS: Mapping[int, Callable[[MetadataReplay, MetadataRecord], None]] = {
    0: MetadataReplay._register_broker,
    1: MetadataReplay._unregister_broker,
    _TOPIC: MetadataReplay._topic,
    3: MetadataReplay._partition,
    4: MetadataReplay._config,
    5: MetadataReplay._partition_change,
    _FENCE_BROKER: MetadataReplay._fence,
    8: MetadataReplay._fence,
    _REMOVE_TOPIC: MetadataReplay._remove_topic,
    12: MetadataReplay._feature,
    15: MetadataReplay._producer_ids,
    17: MetadataReplay._broker_change,
    27: MetadataReplay._register_controller,
    28: MetadataReplay._clear_elr,
    **dict.fromkeys(ACCESS_EFFECTS, MetadataReplay._access),
}
# removals: a controller writes them only for ACLs and SCRAM credentials that exist
_NEEDED_ACCESS = frozenset((19, 22))
_WITHOUT_EFFECT = frozenset((20, 21))  # NoOpRecord, ZkMigrationStateRecord
_TRANSACTIONS = frozenset((_BEGIN, _END, _ABORT))
_ALL = frozenset(_EFFECTS) | _TRANSACTIONS
# Most callers do not need controllers, ELR and access.
_USUAL = _ALL - {27, 28} - frozenset(ACCESS_EFFECTS)
