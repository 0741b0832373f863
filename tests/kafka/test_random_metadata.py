"""Metadata logs of random records in an order that is valid in a cluster, compared with the images of the real classes (MetadataDelta).

The brokers in `test_metadata_broker` write few versions of each record and few of its fields. Here each record has any version and any of
its tagged fields. One Java process reads the complete log.
"""

from __future__ import annotations

import copy
import os
import random
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from kseg.internal_topics.schemas import message
from kseg.segment.java.uuids import uuid_bytes, uuid_text
from tests.internal_topics.metadata_logs import Made, record, write_log
from tests.kafka.conftest import require_kafka
from tests.kafka.metadata_truth import assert_same, real_images, rows_of

pytestmark = pytest.mark.kafka

RECORDS = int(os.environ.get("KSEG_METADATA_RECORDS", "1500"))
SEED = int(os.environ.get("KSEG_METADATA_RECORDS_SEED", "15"))
PLACES = 25
NODES = range(1, 6)
NAMES = [f"topic-{number}" for number in range(8)]


@dataclass
class Cluster:
    """The content of the log so far, as far as the next record depends on it. partitions: the number of replicas of each partition, by
    topic id."""

    topics: dict[str, str] = field(default_factory=dict)
    partitions: dict[str, dict[int, int]] = field(default_factory=dict)
    brokers: dict[int, int] = field(default_factory=dict)
    acls: list[str] = field(default_factory=list)
    scram: set[tuple[str, int]] = field(default_factory=set)


class Story:
    """Makes valid records one after the other."""

    def __init__(self, rng: random.Random) -> None:
        self._rng = rng
        self._now = Cluster()
        # state at the beginning of the open transaction
        self._before: Cluster | None = None

    def next(self, offset: int) -> Made:
        """A record that is valid at this point."""
        makers = [
            *(self._topic, self._partition, self._partition, self._change, self._change, self._change),
            *(self._config, self._register, self._broker, self._broker, self._feature, self._quota),
            *(self._acl, self._scram, self._other, self._remove, self._clear_elr, self._transaction),
        ]
        while True:
            made = self._rng.choice(makers)(offset)
            if made is not None:
                return made

    def _id(self) -> str:
        return uuid_text(b"\1" + self._rng.randbytes(15))

    def _log_dirs(self) -> list[str]:
        """Sorted by id, as a broker sends them."""
        return sorted((self._id() for _ in range(self._rng.randrange(3))), key=uuid_bytes)

    def _nodes(self, least: int = 0) -> list[int]:
        return self._rng.sample(NODES, self._rng.randrange(least, 4))

    def _maybe(self, version: int, since: int, values: dict[str, Any]) -> dict[str, Any]:
        """Some of the tagged fields of this version."""
        if version < since:
            return {}
        return {name: value for name, value in values.items() if self._rng.random() < 0.6}

    def _version(self, type_id: int) -> int:
        known = message("__cluster_metadata", "metadata", type_id)
        assert known is not None
        return self._rng.randrange(known.last_version + 1)

    def _topic(self, _: int) -> Made | None:
        free = sorted({*NAMES} - {*self._now.topics.values()})
        if not free:
            return None
        topic_id, name = self._id(), self._rng.choice(free)
        self._now.topics[topic_id], self._now.partitions[topic_id] = name, {}
        return record("TopicRecord", name=name, topicId=topic_id)

    def _partition(self, _: int) -> Made | None:
        if not self._now.topics:
            return None
        rng, version = self._rng, self._version(3)
        topic_id, number, replicas = rng.choice([*self._now.topics]), rng.randrange(4), self._nodes(1)
        self._now.partitions[topic_id][number] = len(replicas)
        directories = [self._id() for _ in replicas] if rng.random() < 0.8 else []
        return record(
            "PartitionRecord",
            version,
            partitionId=number,
            topicId=topic_id,
            replicas=replicas,
            isr=self._nodes(),
            removingReplicas=self._nodes(),
            addingReplicas=self._nodes(),
            leader=rng.choice((-1, *NODES)),
            leaderEpoch=rng.randrange(9),
            partitionEpoch=rng.randrange(9),
            **self._maybe(version, 0, {"leaderRecoveryState": rng.randrange(2)}),
            **({"directories": directories} if version else {}),
            **self._maybe(
                version, 2, {"eligibleLeaderReplicas": self._nodes(), "lastKnownElr": self._nodes()}
            ),
        )

    def _change(self, _: int) -> Made | None:
        there = [(topic_id, number) for topic_id, each in self._now.partitions.items() for number in each]
        if not there:
            return None
        rng, version = self._rng, self._version(5)
        topic_id, number = rng.choice(there)
        values = {
            "isr": self._nodes(),
            "leader": rng.choice((-2, -1, *NODES)),
            "removingReplicas": self._nodes(),
            "addingReplicas": self._nodes(),
            "leaderRecoveryState": rng.randrange(-1, 2),
        }
        tagged = self._maybe(version, 0, values)
        if version and rng.random() < 0.4:
            replicas = self._nodes(1)
            tagged |= {"replicas": replicas, "directories": [self._id() for _ in replicas]}
            self._now.partitions[topic_id][number] = len(replicas)
        elif rng.random() < 0.2:
            tagged["replicas"] = rng.sample(NODES, self._now.partitions[topic_id][number])
        tagged |= self._maybe(
            version, 2, {"eligibleLeaderReplicas": self._nodes(), "lastKnownElr": self._nodes()}
        )
        return record("PartitionChangeRecord", version, partitionId=number, topicId=topic_id, **tagged)

    def _remove(self, _: int) -> Made | None:
        if not self._now.topics or self._rng.random() < 0.5:
            return None
        topic_id = self._rng.choice([*self._now.topics])
        del self._now.topics[topic_id], self._now.partitions[topic_id]
        return record("RemoveTopicRecord", topicId=topic_id)

    def _clear_elr(self, _: int) -> Made:
        name = self._rng.choice(["", *self._now.topics.values()])
        return record("ClearElrRecord", topicName=name)

    def _config(self, _: int) -> Made:
        resource = self._rng.choice(
            [(2, "topic-1"), (2, "topic-2"), (4, ""), (4, "1"), (16, "fleet"), (32, "readers")]
        )
        names = {
            2: ["retention.ms", "cleanup.policy"],
            4: ["log.retention.ms", "background.threads"],
            16: ["interval.ms", "metrics"],
            32: ["consumer.session.timeout.ms", "share.auto.offset.reset"],
        }
        name = self._rng.choice(names[resource[0]])
        value = self._rng.choice([None, "", "5", "ä"])
        return record(
            "ConfigRecord", resourceType=resource[0], resourceName=resource[1], name=name, value=value
        )

    def _register(self, offset: int) -> Made:
        rng, node, version = self._rng, self._rng.choice(NODES), self._version(0)
        self._now.brokers[node] = offset
        listener = {"name": "PLAINTEXT", "host": "localhost", "port": 9092, "securityProtocol": 0}
        feature = {"name": "metadata.version", "minSupportedVersion": 7, "maxSupportedVersion": 30}
        directories = self._log_dirs()
        return record(
            "RegisterBrokerRecord",
            version,
            brokerId=node,
            incarnationId=self._id(),
            brokerEpoch=offset,
            endPoints=[listener],
            features=[feature],
            rack=rng.choice([None, "", "r1"]),
            fenced=rng.random() < 0.5,
            **({"inControlledShutdown": rng.random() < 0.3} if version else {}),
            **self._maybe(version, 3, {"logDirs": directories}),
            **self._maybe(version, 4, {"cordonedLogDirs": directories[:1]}),
        )

    def _broker(self, _: int) -> Made | None:
        if not self._now.brokers:
            return None
        rng = self._rng
        node, epoch = rng.choice([*self._now.brokers.items()])
        match rng.randrange(6):
            case 0:
                del self._now.brokers[node]
                return record("UnregisterBrokerRecord", brokerId=node, brokerEpoch=epoch)
            case 1:
                return record(rng.choice(["FenceBrokerRecord", "UnfenceBrokerRecord"]), id=node, epoch=epoch)
        version = self._version(17)
        directories = self._log_dirs()
        return record(
            "BrokerRegistrationChangeRecord",
            version,
            brokerId=node,
            brokerEpoch=epoch,
            **self._maybe(version, 0, {"fenced": rng.randrange(-1, 2)}),
            **self._maybe(version, 1, {"inControlledShutdown": rng.randrange(2)}),
            **self._maybe(version, 2, {"logDirs": directories}),
            **self._maybe(version, 3, {"cordonedLogDirs": directories[:1]}),
        )

    def _feature(self, _: int) -> Made:
        name, levels = self._rng.choice(
            [
                ("metadata.version", (14, 31)),
                ("group.version", (0, 2)),
                ("transaction.version", (0, 3)),
                ("kraft.version", (0, 2)),
            ]
        )
        return record("FeatureLevelRecord", name=name, featureLevel=self._rng.randrange(*levels))

    def _quota(self, _: int) -> Made:
        rng = self._rng
        types = rng.choice([["user"], ["client-id"], ["user", "client-id"], ["ip"]])
        entity = [{"entityType": each, "entityName": rng.choice([None, "a", "b"])} for each in types]
        key = rng.choice(["producer_byte_rate", "request_percentage"])
        value = rng.choice([0.0, 12.5, 1e7, 1048576.0])
        return record("ClientQuotaRecord", entity=entity, key=key, value=value, remove=rng.random() < 0.3)

    def _acl(self, _: int) -> Made:
        rng = self._rng
        if self._now.acls and rng.random() < 0.4:
            gone = self._now.acls.pop(rng.randrange(len(self._now.acls)))
            return record("RemoveAccessControlEntryRecord", id=gone)
        self._now.acls.append(self._id())
        return record(
            "AccessControlEntryRecord",
            id=self._now.acls[-1],
            resourceType=rng.randrange(2, 8),
            resourceName=rng.choice(["*", "orders"]),
            patternType=rng.randrange(3, 5),
            principal="User:a",
            host="*",
            operation=rng.randrange(2, 16),
            permissionType=rng.randrange(2, 4),
        )

    def _scram(self, _: int) -> Made:
        rng = self._rng
        if self._now.scram and rng.random() < 0.4:
            user, mechanism = rng.choice(sorted(self._now.scram))
            self._now.scram.remove((user, mechanism))
            return record("RemoveUserScramCredentialRecord", name=user, mechanism=mechanism)
        user, mechanism = rng.choice(["alice", "bob", "ä"]), rng.randrange(1, 3)
        self._now.scram.add((user, mechanism))
        return record(
            "UserScramCredentialRecord",
            name=user,
            mechanism=mechanism,
            salt=b"salt",
            storedKey=b"key",
            serverKey=b"key",
            iterations=rng.randrange(4096, 9000),
        )

    def _other(self, _: int) -> Made:
        rng = self._rng
        return rng.choice(
            [
                record("NoOpRecord"),
                record("ZkMigrationStateRecord", zkMigrationState=0),
                record("ProducerIdsRecord", brokerId=1, brokerEpoch=0, nextProducerId=rng.randrange(9000)),
            ]
        )

    def _transaction(self, _: int) -> Made:
        if self._before is None:
            self._before = copy.deepcopy(self._now)
            return record("BeginTransactionRecord", name="some records")
        is_aborted = self._rng.random() < 0.5
        if is_aborted:
            self._now = self._before
        self._before = None
        return record("AbortTransactionRecord" if is_aborted else "EndTransactionRecord")


@pytest.mark.behaviour("M01")
def test_random_metadata_records_give_the_image_of_the_real_classes(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    require_kafka()
    rng = random.Random(SEED)
    story = Story(rng)
    log = tmp_path / "__cluster_metadata-0"
    write_log(log, *([story.next(offset)] for offset in range(RECORDS)))
    offsets = sorted({*rng.sample(range(RECORDS), PLACES), RECORDS - 1})
    truth = real_images(None, 0, [str(log / f"{0:020}.log")], offsets)
    for offset in offsets:
        assert_same(rows_of(capfd, "--offset", offset, log), truth[offset])
