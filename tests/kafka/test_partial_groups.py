"""Groups of which some records are lost, as with a segment of `__consumer_offsets`: `kseg groups` shows them as a broker describes them,
and says which streams groups it fails to describe.

Takes ten seconds: a broker with a restart.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import TopicPartition

from kseg.cli.main import run
from tests.internal_topics.coordinator_logs import key, value
from tests.kafka.broker import Broker, commit_offsets, consumer_by_hand
from tests.kafka.conftest import require_kafka
from tests.kafka.group_clients import GroupClients
from tests.support.command_rows import rows_of
from tests.support.log_ends import append_records

pytestmark = pytest.mark.kafka

OFFSETS, TOPIC_ID = "__consumer_offsets", "AAECAwQFBgcICQoLDA0ODw"
FAILURE = "UnknownServerException"
# session timeouts longer than the test, for members that never connect
_LONG = {
    f"group_{kind}_{name}": "3600000"
    for kind in ("consumer", "share", "streams")
    for name in ("session_timeout_ms", "max_session_timeout_ms")
}
_CLIENT = {"clientId": "c", "clientHost": "/h"}
_STREAMS = {**_CLIENT, "rebalanceTimeoutMs": 60_000, "processId": "p"}
_TOPOLOGY: dict[str, Any] = {"epoch": 1, "subtopologies": []}
_TARGET = [{"topicId": TOPIC_ID, "partitions": [0]}]
# the records of a group, each by its type, and those of one member
GROUPS: dict[str, dict[int, dict[str, Any] | None]] = {
    "consumer current": {3: {"epoch": 1}, 8: {"memberEpoch": 1, "previousMemberEpoch": 0}},
    "consumer target": {3: {"epoch": 1}, 7: {"topicPartitions": _TARGET}},
    "consumer member": {3: {"epoch": 1}, 5: {**_CLIENT, "classicMemberMetadata": None}},
    "share current": {11: {"epoch": 1}, 14: {"memberEpoch": 1}},
    "share target": {11: {"epoch": 1}, 13: {"topicPartitions": _TARGET}},
    "share member": {11: {"epoch": 1}, 10: _CLIENT},
    "streams alone": {17: {"epoch": 1}},
    "streams target": {17: {"epoch": 1}, 21: {}},
    "streams member": {17: {"epoch": 1}, 19: _STREAMS},
    "streams topology": {23: _TOPOLOGY},
    "streams member and topology": {17: {"epoch": 1}, 23: _TOPOLOGY, 19: _STREAMS},
    "streams current and topology": {17: {"epoch": 1}, 23: _TOPOLOGY, 22: {"memberEpoch": 1, "state": 1}},
    "streams member that left": {17: {"epoch": 1}, 23: _TOPOLOGY, 19: _STREAMS, 22: None},
    "streams": {17: {"epoch": 1}, 23: _TOPOLOGY, 19: _STREAMS, 22: {"memberEpoch": 1, "state": 1}},
    "streams without its topology": {17: {"epoch": 1}, 19: _STREAMS, 22: {"memberEpoch": 1, "state": 1}},
}
_OF_MEMBERS = (5, 7, 8, 10, 13, 14, 19, 21, 22)
GROUP = ("group", "group_type", "state")
MEMBER = ("group", "member_id", "client_id", "client_host", "member_epoch")


def _write(directory: Path) -> None:
    for group, records in GROUPS.items():
        for type_id, fields in records.items():
            member = {"memberId": "m"} if type_id in _OF_MEMBERS else {}
            content = None if fields is None else value(OFFSETS, type_id, 0, **fields)
            append_records(directory, (key(OFFSETS, type_id, groupId=group, **member), content))


@pytest.mark.behaviour("G08", "G09")
def test_groups_with_lost_records_are_shown_as_a_broker_describes_them(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    require_kafka()
    broker = Broker(tmp_path, None, **_LONG)
    with broker:
        broker.create_topic("fares")
        consumer = consumer_by_hand(broker, "first")
        commit_offsets(consumer, [TopicPartition("fares", 0, 0)])
        consumer.close()
    _write(broker.data / f"{OFFSETS}-0")
    rows = rows_of(capfd, "groups", broker.data, status=0)
    with broker:
        broker.wait_for(
            "loading", lambda: f"Finished loading of metadata from {OFFSETS}-0" in broker.log_text()
        )
        with GroupClients(broker.bootstrap) as clients:
            truth = clients.ask("describe")
    ours = {row["group"]: row for row in rows if row["type"] == "group"}
    fails = {row["group"] for row in truth["groups"] if row.get("failure") == FAILURE}
    assert {name for name, row in ours.items() if row.get("undescribed") is not None} == fails
    assert {tuple(row[name] for name in GROUP) for row in ours.values()} == {
        tuple(row[name] for name in GROUP) for row in truth["groups"]
    }
    members = [row for row in rows if row["type"] == "member" and row["group"] not in fails]
    assert {tuple(row[name] for name in MEMBER) for row in members} == {
        tuple(row[name] for name in MEMBER) for row in truth["members"]
    }
    assert len(fails) == 6 and len(members) == 6
    run(["groups", "--group", "streams current and topology", str(broker.data)])
    shown = capfd.readouterr().out
    assert (
        "fails to describe it (kafka-streams-groups.sh --describe): member m has no record of its own"
        in shown
    )
    assert "member m (unknown client)" in shown
