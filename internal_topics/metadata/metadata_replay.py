"""Records of the metadata log applied one after the other to a state that grows into an image (Kafka: the *Delta classes).

Transactions: what lies between BeginTransaction and EndTransaction is held back, and dropped at AbortTransaction or at the end
of the log (Kafka: OffsetControlManager, the controller's rule; the loader of a 4.3.1 broker gets aborts wrong).
A record that contradicts the state (a change of a partition that is not there, an End without a Begin) is noted and skipped.
"""

from collections.abc import Callable, Mapping
from typing import Any

from kseg.internal_topics.decoding import Decoded, UnknownType, decode_framed, frame_of
from kseg.internal_topics.metadata.metadata_image import (
    MIGRATING,
    Broker,
    Partition,
    RemovedTopic,
    Resource,
    Topic,
)
from kseg.segment.errors import FormatError

_BEGIN, _END, _ABORT = 23, 24, 25
_TOPIC, _REMOVE_TOPIC = 2, 9
_NO_CHANGE = -2  # of a leader in a PartitionChangeRecord
_FENCED, _UNFENCED = 1, -1

Values = Mapping[str, Any]


class MetadataReplay:
    """The state that grows. problems: (offset, words) of records that could not be read: the state may be wrong from there on.
    oddities: the same of records that were skipped or are of a newer Kafka."""

    def __init__(self) -> None:
        self.brokers: dict[int, Broker] = {}
        self.features: dict[str, int] = {}
        self.configs: dict[tuple[int, str], dict[str, str]] = {}
        self.removed: dict[str, RemovedTopic] = {}
        self.problems: list[tuple[int, str]] = []
        self.oddities: list[tuple[int, str]] = []
        self._names: dict[str, str] = {}
        self._partitions: dict[str, dict[int, Partition]] = {}
        self._held: list[tuple[int, Decoded]] | None = None
        self._began_at = 0

    def take(self, offset: int, value: bytes | None) -> None:
        """One record of the log, or of a snapshot."""
        try:
            type_id = frame_of(value)[0]
            if type_id not in _EFFECTS and type_id not in (_BEGIN, _END, _ABORT):
                if type_id not in _WITHOUT_EFFECT:
                    self.oddities.append((offset, str(UnknownType("the metadata log", type_id))))
                return
            record = decode_framed(value)
        except FormatError as error:
            self.problems.append((offset, str(error)))
            return
        if record.left_over_bytes:
            words = f"{record.left_over_bytes} bytes are left over behind {record.message.name} version {record.version}"
            self.problems.append((offset, words))
        elif record.is_newer:
            words = f"{record.message.name} has version {record.version}, which is newer than Kafka 4.3.1's"
            self.oddities.append((offset, words))
        if type_id in (_BEGIN, _END, _ABORT):
            self._transaction(offset, type_id)
        elif self._held is not None:
            self._held.append((offset, record))
        else:
            self._apply(offset, record)

    def note_history(self, offset: int, value: bytes | None) -> None:
        """A record below the snapshot that the state starts with: only for the names of topics that are gone."""
        try:
            type_id = frame_of(value)[0]
            if type_id not in (_TOPIC, _REMOVE_TOPIC):
                return
            values = decode_framed(value).values
        except FormatError:
            return
        topic_id = values["topicId"]
        if type_id == _TOPIC:
            self._names.setdefault(topic_id, values["name"])
        else:
            self.removed[topic_id] = RemovedTopic(self._names.get(topic_id, ""), topic_id, offset)

    def finish(self) -> None:
        """The end of the log: what an open transaction holds is not visible."""
        if self._held is not None:
            words = f"a metadata transaction of {len(self._held)} records is open at the end of the log"
            self.oddities.append((self._began_at, words))
            self._held = None

    def topics(self) -> Mapping[str, Topic]:
        """By id."""
        return {
            topic_id: Topic(self._names[topic_id], topic_id, dict(partitions))
            for topic_id, partitions in self._partitions.items()
        }

    # --- records

    def _transaction(self, offset: int, type_id: int) -> None:
        held = self._held
        if (type_id == _BEGIN) != (held is None):
            words = "begins inside of another one" if type_id == _BEGIN else "ends that was never begun"
            self.oddities.append((offset, f"a metadata transaction {words}; the record is skipped"))
            return
        if type_id == _BEGIN:
            self._held, self._began_at = [], offset
            return
        self._held = None
        if type_id == _END:
            for at, record in held or ():
                self._apply(at, record)

    def _apply(self, offset: int, record: Decoded) -> None:
        assert record.message.type is not None
        _EFFECTS[record.message.type](self, record.values, offset)

    def _topic(self, values: Values, _offset: int) -> None:
        self._names[values["topicId"]] = values["name"]
        self._partitions[values["topicId"]] = {}
        self.removed.pop(values["topicId"], None)

    def _remove_topic(self, values: Values, offset: int) -> None:
        topic_id = values["topicId"]
        name = self._names.get(topic_id, "")
        if self._partitions.pop(topic_id, None) is None:
            self.oddities.append((offset, f"a topic is removed that is not there: {topic_id}"))
        else:
            self.configs.pop((Resource.TOPIC, name), None)
        self.removed[topic_id] = RemovedTopic(name, topic_id, offset)

    def _partition(self, values: Values, offset: int) -> None:
        partitions = self._partitions.get(values["topicId"])
        if partitions is None:
            self.oddities.append((offset, f"a partition of a topic that is not there: {values['topicId']}"))
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
        )

    def _partition_change(self, values: Values, offset: int) -> None:
        partitions = self._partitions.get(values["topicId"], {})
        number = values["partitionId"]
        old = partitions.get(number)
        if old is None:
            words = f"partition {number} of topic {values['topicId']} changes and is not there"
            self.oddities.append((offset, words))
            return
        replicas = old.replicas if values["replicas"] is None else values["replicas"]
        directories = values.get("directories")
        if directories is None:
            directories = old.directories
            if len(directories) != len(replicas):
                directories = (MIGRATING,) * len(replicas)
        has_leader = values["leader"] != _NO_CHANGE
        partitions[number] = Partition(
            number,
            replicas,
            directories,
            old.isr if values["isr"] is None else values["isr"],
            values["leader"] if has_leader else old.leader,
            old.leader_epoch + has_leader,
        )

    def _config(self, values: Values, _offset: int) -> None:
        key = values["resourceType"], values["resourceName"]
        if values["value"] is not None:
            self.configs.setdefault(key, {})[values["name"]] = values["value"]
            return
        self.configs.get(key, {}).pop(values["name"], None)
        if not self.configs.get(key, True):
            del self.configs[key]

    def _register_broker(self, values: Values, _offset: int) -> None:
        self.brokers[values["brokerId"]] = Broker(
            values["brokerId"],
            values["brokerEpoch"],
            values["incarnationId"],
            values.get("logDirs") or (),
            values["fenced"],
            values["rack"],
        )

    def _unregister_broker(self, values: Values, _offset: int) -> None:
        self.brokers.pop(values["brokerId"], None)

    def _broker_change(self, values: Values, offset: int) -> None:
        old = self._registered(values["brokerId"], offset)
        if old is not None:
            fenced = {_FENCED: True, _UNFENCED: False}.get(values["fenced"], old.is_fenced)
            log_dirs = values.get("logDirs") or old.log_dirs
            self.brokers[old.id] = Broker(old.id, old.epoch, old.incarnation_id, log_dirs, fenced, old.rack)

    def _fence(self, values: Values, offset: int) -> None:
        self._set_fenced(values["id"], True, offset)

    def _unfence(self, values: Values, offset: int) -> None:
        self._set_fenced(values["id"], False, offset)

    def _set_fenced(self, broker_id: int, is_fenced: bool, offset: int) -> None:
        old = self._registered(broker_id, offset)
        if old is not None:
            self.brokers[old.id] = Broker(
                old.id, old.epoch, old.incarnation_id, old.log_dirs, is_fenced, old.rack
            )

    def _registered(self, broker_id: int, offset: int) -> Broker | None:
        old = self.brokers.get(broker_id)
        if old is None:
            self.oddities.append((offset, f"broker {broker_id} changes and is not registered"))
        return old

    def _feature(self, values: Values, _offset: int) -> None:
        if values["featureLevel"] == 0:
            self.features.pop(values["name"], None)
        else:
            self.features[values["name"]] = values["featureLevel"]


_EFFECTS: Mapping[int, Callable[[MetadataReplay, Values, int], None]] = {
    0: MetadataReplay._register_broker,
    1: MetadataReplay._unregister_broker,
    _TOPIC: MetadataReplay._topic,
    3: MetadataReplay._partition,
    4: MetadataReplay._config,
    5: MetadataReplay._partition_change,
    7: MetadataReplay._fence,
    8: MetadataReplay._unfence,
    _REMOVE_TOPIC: MetadataReplay._remove_topic,
    12: MetadataReplay._feature,
    17: MetadataReplay._broker_change,
}
# Known, and of no matter to this image: tokens, credentials, quotas, producer ids, ACLs, NoOp, ZooKeeper, controllers, ELR.
_WITHOUT_EFFECT = frozenset((10, 11, 14, 15, 18, 19, 20, 21, 22, 26, 27, 28))
