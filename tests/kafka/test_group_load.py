"""Which records fail the load of a group coordinator: one of each kind in a partition of its own of a real broker's `__consumer_offsets`,
written while the broker is stopped. When it starts, it fails to load exactly the partitions that `kseg verify` names, and loads them once
these records are left out."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient

from kseg.internal_topics.groups.coordinator_partition import partition_for
from kseg.internal_topics.groups.group_records import CONSUMER_OFFSETS
from kseg.internal_topics.load_findings import FAILS, TORN, TRUNCATED
from tests.internal_topics.coordinator_logs import batch, key, value
from tests.kafka.broker import CLIENT_LIMIT_S, Broker, commit_offsets, consumer_by_hand
from tests.kafka.conftest import require_kafka
from tests.support.command_rows import rows_of
from tests.support.group_dirs import commit
from tests.support.log_ends import append_records
from tests.support.rewritten import rewrite_without_failing

pytestmark = pytest.mark.kafka

Record = tuple[bytes | None, bytes | None]
TOPIC_ID = "AAECAwQFBgcICQoLDA0ODw"


def _group(
    type_id: int, member: str | None = None, *, deleted: bool = False, version: int = 0, **fields: Any
) -> Record:
    names = {"group": "g"} if type_id == 2 else {"groupId": "g"}
    if member is not None:
        names["memberId"] = member
    content = None if deleted else value(CONSUMER_OFFSETS, type_id, version, **fields)
    return key(CONSUMER_OFFSETS, type_id, **names), content


def _classic(
    *instances: str | None, protocol_type: str = "consumer", protocol: str | None = "range"
) -> Record:
    members = [
        {"memberId": f"m{at}", "groupInstanceId": instance, "clientId": "c", "clientHost": "/h", "rebalanceTimeout": 1, "sessionTimeout": 60_000, "subscription": b"", "assignment": b""}
        for at, instance in enumerate(instances)
    ]  # fmt: skip
    return _group(
        2,
        version=3,
        protocolType=protocol_type,
        generation=1,
        protocol=protocol,
        leader=None,
        members=members,
    )


def _current(member: str, epoch: int = 1) -> Record:
    assigned = [{"topicId": TOPIC_ID, "partitions": [0], "assignmentEpochs": None}]
    return _group(8, member, memberEpoch=epoch, previousMemberEpoch=0, assignedPartitions=assigned)


def _member(name: str = "m") -> Record:
    return _group(
        5, name, clientId="c", clientHost="/h", subscribedTopicNames=["t"], classicMemberMetadata=None
    )


def _streams_member() -> Record:
    return _group(19, "m", clientId="c", clientHost="/h", rebalanceTimeoutMs=60_000, processId="p")


def _streams_current(state: int) -> Record:
    return _group(22, "m", memberEpoch=1, state=state)


_TARGET = _group(7, "m", topicPartitions=[{"topicId": TOPIC_ID, "partitions": [0]}])
_COMMIT = commit(4, "g")
assert _COMMIT[1] is not None

# the records of a partition, by the name of the case
CASES: dict[str, Sequence[Record]] = {
    "no key": [(None, b"\0\0")],
    "key too short": [(b"\0", b"\0\0")],
    "unknown type": [(b"\0\x63", b"\0\0")],
    "bytes behind the value": [(_COMMIT[0], _COMMIT[1] + b"more")],
    "value cut": [(_COMMIT[0], _COMMIT[1][:-1])],
    "unknown version": [(_COMMIT[0], b"\0\x05" + _COMMIT[1][2:])],
    "empty value": [(_COMMIT[0], b"")],
    "static member twice": [_classic("i", "i")],
    "members without a protocol type": [_classic(None, protocol_type="")],
    "members without a protocol": [_classic(None, None, protocol=None)],
    "consumer over classic with members": [_classic(None), _group(3, epoch=1)],
    "consumer over classic without members": [_classic(), _group(3, epoch=1)],
    "consumer over simple": [commit(4, "g"), _group(3, epoch=1)],
    "share over simple": [commit(4, "g"), _group(11, epoch=1)],
    "streams over simple": [commit(4, "g"), _group(17, epoch=1)],
    "share over consumer": [_group(3, epoch=1), _group(11, epoch=1)],
    "deletion over simple": [commit(4, "g"), _group(3, deleted=True)],
    "deletion with members": [_group(3, epoch=1), _member(), _group(3, deleted=True)],
    "deletion with an assignment epoch": [_group(3, epoch=1), _group(3, deleted=True)],
    "deletion in order": [_group(3, epoch=1), _group(6, deleted=True), _group(3, deleted=True)],
    "deletion of what is not there": [_group(type_id, deleted=True) for type_id in (2, 3, 6, 11, 15, 17, 23)],
    "member gone before its assignment": [_member(), _current("m"), _group(5, "m", deleted=True)],
    "member gone before its target": [_member(), _TARGET, _group(8, "m", deleted=True), _group(5, "m", deleted=True)],
    "member gone in order": [_member(), _current("m"), _TARGET, *(_group(type_id, "m", deleted=True) for type_id in (8, 7, 5))],
    "partition owned twice": [_member("m"), _current("m"), _member("n"), _current("n")],
    "partition owned later": [_member("m"), _current("m"), _member("n"), _current("n", 2)],
    "negative assignment timestamp": [_group(6, assignmentEpoch=2, assignmentTimestamp=-1)],
    "assignment deleted with targets": [_TARGET, _group(6, deleted=True)],
    "share member gone too early": [_group(10, "m", clientId="c", clientHost="/h"), _group(10, "m", deleted=True)],
    "streams member gone too early": [_group(17, epoch=1), _group(22, "m", memberEpoch=1), _group(19, "m", deleted=True)],
    "streams member with tasks to revoke": [_streams_member(), _streams_current(2)],
    "streams member with tasks to revoke, unknown": [_streams_current(2)],
    "streams member with tasks to revoke, later known": [_streams_current(2), _streams_member()],
    "streams member with tasks to release, unknown": [_streams_current(3)],
    "streams member with tasks to revoke, unknown, its assignment gone": [_streams_current(2), _group(22, "m", deleted=True)],
    "streams member with tasks to revoke, unknown, gone": [_streams_current(2), _group(22, "m", deleted=True), _group(19, "m", deleted=True)],
    "streams member with tasks to revoke, unknown, then stable": [_streams_current(2), _streams_current(1)],
    "consumer member with partitions to revoke, unknown": [_group(8, "m", memberEpoch=1, state=1)],
    "streams over consumer": [_group(3, epoch=1), _group(23, epoch=1)],
    "classic over consumer": [_group(3, epoch=1), _classic(None)],
    "deletion of a group of another type": [_group(3, epoch=1), _group(2, deleted=True)],
    "topic twice in a target": [_group(13, "m", topicPartitions=[{"topicId": TOPIC_ID, "partitions": [0]}] * 2)],
}  # fmt: skip


def _flip(at: int) -> Callable[[bytes], bytes]:
    """Flip a bit after the header of the last batch, which has one record."""
    return lambda data: bytes([*data[:at], data[at] ^ 1, *data[at + 1 :]])


def _moved(data: bytes, offsets: int) -> bytes:
    """The batch with another base offset, which its checksum does not cover."""
    return (int.from_bytes(data[:8], "big") + offsets).to_bytes(8, "big") + data[8:]


# the damage to a batch with one commit, whether the load fails, and what kseg's finding says about a load
_HEADER, _CHECKSUMS, _BEFORE = 61, "accepts what these bytes say, or fails", "loads what is before it"
_FAILS = "; a coordinator fails to load the partition"
_VALUE_AT = batch(0, _COMMIT).index(_COMMIT[1])
DAMAGES: dict[str, tuple[Callable[[bytes], bytes], bool, str]] = {
    "offset flipped": (_flip(_VALUE_AT + 9), False, _CHECKSUMS),
    "version of the value flipped": (_flip(_VALUE_AT), True, _FAILS),
    "length of the key flipped": (_flip(_HEADER + 4), True, _FAILS),
    "record zeroed": (lambda data: data[:_HEADER] + bytes(len(data) - _HEADER), True, _FAILS),
    "time of the commit zeroed": (lambda data: data[:-9] + bytes(9), False, _CHECKSUMS),
    "torn": (lambda data: data[:-20], False, _BEFORE),
    "magic flipped": (_flip(16), True, _FAILS),
    "doubled": (lambda data: data + data, True, _FAILS),
    "beyond the end": (lambda data: data + _moved(data, 1 << 20) + _moved(data, 2), True, _FAILS),
}


def _add_segment(directory: Path, data: bytes) -> None:
    """Add a segment that the broker opens last, so that it sees no other offsets when it starts."""
    base_offset = int.from_bytes(data[:8], "big")
    for suffix, content in ((".log", data), (".index", b""), (".timeindex", b"")):
        (directory / f"{base_offset:020}{suffix}").write_bytes(content)


def _make_topic(broker: Broker) -> None:
    broker.create_topic("t")
    consumer = broker.consumer("first")
    commit_offsets(consumer, [TopicPartition("t", 0, 0)])
    consumer.close()


@pytest.mark.behaviour("G08", "G09", "G10")
def test_records_that_fail_a_group_load_are_those_of_the_broker(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    require_kafka()
    count = len(CASES) + len(DAMAGES)
    broker = Broker(tmp_path, offsets_topic_num_partitions=str(count))
    with broker:
        _make_topic(broker)
    for number, records in enumerate(CASES.values()):
        append_records(broker.data / f"{CONSUMER_OFFSETS}-{number}", *records)
    names = {f"{CONSUMER_OFFSETS}-{at}": name for at, name in enumerate([*CASES, *DAMAGES])}
    said = {}
    for directory, name in list(names.items())[len(CASES) :]:
        log = broker.data / directory / f"{0:020}.log"
        before = log.read_bytes()
        append_records(broker.data / directory, _COMMIT)
        log.write_bytes(before + DAMAGES[name][0](log.read_bytes()[len(before) :]))
        if name == "beyond the end":
            _add_segment(broker.data / directory, batch(3, _COMMIT))
        capfd.readouterr()
        kind = TORN if name == "torn" else FAILS
        rows = rows_of(capfd, "groups", broker.data / directory, status=kind == FAILS)
        (said[name],) = [row["message"] for row in rows if row.get("id") == kind]
    rows = rows_of(capfd, "verify", broker.data)
    ours = {Path(row["path"]).name for row in rows if row.get("id") == FAILS}

    def loads(word: str) -> set[str]:
        return set(re.findall(rf"{word} metadata from ({CONSUMER_OFFSETS}-\d+) ", broker.log_text()))

    with broker:
        failed, finished = r"Failed to load", r"Finished loading of"
        broker.wait_for("loading", lambda: len(loads(failed) | loads(finished)) == count)
        theirs = loads(failed)
    for name in ours:
        rewrite_without_failing(broker.data / name, tmp_path, capfd)
    with broker:
        broker.wait_for("loading", lambda: len(loads(failed) | loads(finished)) == count)
        assert loads(failed) == theirs - ours
    fails = {names[each] for each in theirs}
    assert {names[each] for each in ours} == fails - set(DAMAGES)
    assert {name: (name in fails, DAMAGES[name][2] in message) for name, message in said.items()} == {
        name: (is_fatal, True) for name, (_, is_fatal, _) in DAMAGES.items()
    }
    assert 5 < len(ours) < len(CASES) - 5


def _named(number: int, count: int, kind: str) -> str:
    """A group name that is hashed to this partition."""
    return next(
        name for name in map(f"{kind} {{}}".format, range(999)) if partition_for(name, count) == number
    )


def _log(broker: Broker, number: int) -> Path:
    return max((broker.data / f"{CONSUMER_OFFSETS}-{number}").glob("*.log"))


def _tear(broker: Broker, number: int, group: str) -> None:
    append_records(broker.data / f"{CONSUMER_OFFSETS}-{number}", commit(4, group))
    log = _log(broker, number)
    log.write_bytes(log.read_bytes()[:-20])


def _said(broker: Broker, capfd: pytest.CaptureFixture[str]) -> tuple[dict[str, str], set[str]]:
    """The finding about each partition, and the groups that kseg lists."""
    rows = rows_of(capfd, "groups", broker.data)
    findings = {Path(row["path"]).parent.name: row["id"] for row in rows if row["type"] == "finding"}
    return findings, {row["group"] for row in rows if row["type"] == "group"}


def _served(broker: Broker, *, failed: int = 0) -> set[str]:
    """The groups of a broker that has loaded its two partitions. failed: the number that it could not load."""
    ended = re.compile(rf"(Failed to load|Finished loading of) metadata from ({CONSUMER_OFFSETS}-\d+) ")

    def outcomes() -> dict[str, str]:
        """By partition: on a busy machine a broker may lose its session, and then loads them again."""
        return {partition: outcome for outcome, partition in ended.findall(broker.log_text())}

    broker.wait_for("loading", lambda: len(outcomes()) == 2)
    assert [*outcomes().values()].count("Failed to load") == failed
    admin = AdminClient({"bootstrap.servers": broker.bootstrap, "log_level": 0})
    return {each.group_id for each in admin.list_consumer_groups().result(CLIENT_LIMIT_S).valid}


def test_load_failure_depends_on_whether_the_start_removes_the_damage(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """After an unclean shutdown, a broker truncates its logs before it loads the groups. After a clean one, it appends after a torn batch,
    and the next start loads no group of the partition."""
    require_kafka()
    names = {kind: _named(kind == "torn", 2, kind) for kind in ("before", "damaged", "behind", "torn")}
    broker = Broker(tmp_path, offsets_topic_num_partitions="2")
    with broker:
        _make_topic(broker)
    first = f"{CONSUMER_OFFSETS}-0"
    for kind in ("before", "damaged"):
        append_records(broker.data / first, commit(4, names[kind]))
    data = _log(broker, 0).read_bytes()
    _log(broker, 0).write_bytes(flipped_last(data))
    append_records(broker.data / first, commit(4, names["behind"]))
    _tear(broker, 1, names["torn"])
    (broker.data / ".kafka_cleanshutdown").unlink()
    findings, shown = _said(broker, capfd)
    assert findings == {first: TRUNCATED, f"{CONSUMER_OFFSETS}-1": TORN}
    with broker:
        served = _served(broker)
    assert shown - served == {names["behind"]} and names["before"] in served
    assert _said(broker, capfd) == ({}, served)
    _tear(broker, 1, names["torn"])
    assert _said(broker, capfd) == ({f"{CONSUMER_OFFSETS}-1": TORN}, served)
    with broker:
        assert _served(broker) == served
        consumer = consumer_by_hand(broker, names["torn"])
        commit_offsets(consumer, [TopicPartition("t", 0, 0)])
        consumer.close()
    findings, shown = _said(broker, capfd)
    assert findings == {f"{CONSUMER_OFFSETS}-1": FAILS} and names["torn"] in shown
    with broker:
        assert _served(broker, failed=1) == {each for each in served if partition_for(each, 2) == 0}


def flipped_last(data: bytes) -> bytes:
    """The log with a bit of its last byte, in the last batch, flipped."""
    return bytes([*data[:-1], data[-1] ^ 1])
