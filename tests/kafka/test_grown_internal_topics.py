"""Internal topics that were given more partitions: what `groups`, `transactions` and `doctor` say of groups and transactional ids whose
records are not in the partition of their coordinator any more, and what a real broker makes of them after its next start. Beside them a
group with offsets of two deleted topics, one of which was created again.

Ten seconds: one broker with one restart.
"""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import OFFSET_INVALID, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewPartitions

from kseg.cli.main import run
from kseg.internal_topics.groups.coordinator_partition import partition_for
from tests.internal_topics.coordinator_logs import key, value
from tests.kafka.broker import CLIENT_LIMIT_S, Broker, commit_offsets, consumer_by_hand
from tests.kafka.conftest import require_kafka
from tests.kafka.group_clients import GroupClients
from tests.kafka.transaction_clients import TransactionClients
from tests.support.command_rows import of_type, rows_of
from tests.support.group_dirs import commit
from tests.support.log_ends import append_records

pytestmark = pytest.mark.kafka

FARES, GONE, STATE, OFFSETS, PARTITIONS = "fares", "gone", "__transaction_state", "__consumer_offsets", 4
GROUPS = ("a", "b", "c", "d")
# a group that stays in partition 0, and whose offset is of a deleted topic
FORMER = next(name for name in map("former-{}".format, range(99)) if partition_for(name, PARTITIONS) == 0)
HOME, AWAY, PREPARED = "till-0", "till-2", "till-3"
WRITTEN = {HOME: 0, AWAY: 1, PREPARED: 2}  # the partition to which each of them alone writes
ONGOING, PREPARE_COMMIT = 1, 2


def _grow(broker: Broker) -> None:
    admin = AdminClient({"bootstrap.servers": broker.bootstrap, "log_level": 0})
    wanted = [NewPartitions(topic, PARTITIONS) for topic in (STATE, OFFSETS)]
    for future in admin.create_partitions(wanted).values():
        future.result(CLIENT_LIMIT_S)
    broker.wait_for(
        "the new partitions",
        lambda: (broker.data / f"{STATE}-{PARTITIONS - 1}" / "partition.metadata").exists(),
    )


def _commit(broker: Broker, group: str, offset: int) -> None:
    consumer = consumer_by_hand(broker, group)
    commit_offsets(consumer, [TopicPartition(FARES, 0, offset)])
    consumer.close()


def _committed(broker: Broker, groups: Sequence[str] = GROUPS, topic: str = FARES) -> dict[str, int | None]:
    found: dict[str, int | None] = {}
    for group in groups:
        consumer = consumer_by_hand(broker, group)
        (place,) = consumer.committed([TopicPartition(topic, 0)], CLIENT_LIMIT_S)
        consumer.close()
        found[group] = None if place.offset == OFFSET_INVALID else place.offset
    return found


def _decide(data: Path, producers: dict[str, dict[str, Any]]) -> None:
    """Two transactions have timed out, and one is committed, without markers."""
    for name, partition in WRITTEN.items():
        state = value(
            STATE,
            0,
            1,
            producerId=producers[name]["producer_id"],
            producerEpoch=producers[name]["producer_epoch"] + (name == PREPARED),
            transactionStatus=PREPARE_COMMIT if name == PREPARED else ONGOING,
            transactionTimeoutMs=1,
            transactionStartTimestampMs=producers[name]["start_timestamp"],
            transactionLastUpdateTimestampMs=producers[name]["start_timestamp"],
            transactionPartitions=[{"topic": FARES, "partitionIds": [partition]}],
            clientTransactionVersion=2,
        )
        append_records(data / f"{STATE}-0", (key(STATE, 0, transactionalId=name), state))


def _is_stable(clients: TransactionClients, partition: int) -> bool:
    end = clients.ask("ends", FARES)["ends"][partition]
    return bool(end["last_stable_offset"] == end["log_end_offset"])


@pytest.mark.evidence("internal-topic-grown")
@pytest.mark.evidence("offsets-of-deleted-topic")
@pytest.mark.behaviour("G11")
def test_groups_and_ids_are_unreachable_after_internal_topics_grew(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    require_kafka()
    broker = Broker(tmp_path / "broker", transaction_abort_timed_out_transaction_cleanup_interval_ms="300")
    at_home = {group for group in GROUPS if partition_for(group, PARTITIONS) == 0}
    assert 0 < len(at_home) < len(GROUPS) and partition_for(HOME, PARTITIONS) == 0
    assert partition_for(AWAY, PARTITIONS) != 0 != partition_for(PREPARED, PARTITIONS)
    with broker:
        broker.create_topic(FARES, 3)
        with TransactionClients(broker.bootstrap) as clients:
            for name, partition in WRITTEN.items():
                clients.ask("begin", name)
                clients.ask("send", name, FARES, partition, 9)
            producers = {row["transactional_id"]: row for row in clients.ask("ids")["ids"]}
            for group in GROUPS:
                _commit(broker, group, 7)
            _grow(broker)
    data = broker.data
    _decide(data, producers)
    of_former = {"topicId": "Bz4QkN2vS1m0yXr9TtLw8A", "commitTimestamp": producers[HOME]["start_timestamp"]}
    for topic in (FARES, GONE):
        append_records(data / f"{OFFSETS}-0", commit(4, FORMER, topic, **of_former))
    rows = rows_of(capfd, "doctor", data, status=1)
    assert {(row["group"], row["topic"]): row["status"] for row in of_type(rows, "offset")} == {
        (FORMER, FARES): "topic-recreated",
        (FORMER, GONE): "topic-deleted",
        **dict.fromkeys(((group, FARES) for group in {*GROUPS} - at_home), "unreachable"),
    }
    (hanging,) = of_type(rows, "transaction")
    assert (hanging["partition"], hanging["verdict"], hanging["transactional_id"]) == (1, "orphaned", AWAY)
    steps = of_type(rows, "step")
    save, _, delete, delete_later, restore = (row["command"] for row in steps)
    assert [row["due"] for row in steps] == [False, True, True, False, True]
    monkeypatch.chdir(tmp_path)
    assert run(shlex.split(save)[1:]) == 0
    with broker:
        assert _committed(broker) == {group: 7 if group in at_home else None for group in GROUPS}
        assert _committed(broker, [FORMER]) == {FORMER: 4}
        _commit(broker, "a", 2)  # as a consumer that starts anew
        with TransactionClients(broker.bootstrap) as clients:
            broker.wait_for("the timeout", lambda: _is_stable(clients, WRITTEN[HOME]))
            broker.wait_for("the marker", lambda: _is_stable(clients, WRITTEN[PREPARED]))
            assert not _is_stable(clients, WRITTEN[AWAY])
        seen = rows_of(capfd, "groups", "--group", "a", data, status=0)
        assert {row["offset"]: row["status"] for row in of_type(seen, "offset")} == {
            7: "unreachable",
            2: "ok",
        }
        assert run(["groups", "--group", "a", "--reset-csv", "now.csv", str(data)]) == 0
        assert Path("now.csv").read_text() == f"{FARES},0,2\n"
        with GroupClients(broker.bootstrap, is_apart=True) as groups:
            groups.tool(*shlex.split(restore.replace("--dry-run", "--execute"))[3:])
            groups.tool(*shlex.split(delete)[3:])
            # as the step says, a broker refuses it until there is a topic of this name, in which consumers then continue
            assert "UnknownTopicOrPartitionException" in groups.tool(*shlex.split(delete_later)[3:])
            broker.create_topic(GONE, 1)
            assert _committed(broker, [FORMER], GONE) == {FORMER: 4}
            groups.tool(*shlex.split(delete_later)[3:])
            assert _committed(broker, [FORMER], GONE) == {FORMER: None}
        assert _committed(broker, [*GROUPS, FORMER]) == {**dict.fromkeys(GROUPS, 7), FORMER: None}
    assert of_type(rows_of(capfd, "doctor", data, status=1), "offset") == []  # the transaction still hangs
