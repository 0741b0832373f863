"""`doctor` names committed offsets that expire soon after a start; tests/kafka/test_offsets_after_start.py asks a coordinator."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

from fixtures.diseases import bad_crc
from kseg.cli.main import run
from kseg.internal_topics.groups.group_records import CONSUMER_OFFSETS
from tests.internal_topics.coordinator_logs import T0, batch, key, value, write_segment
from tests.internal_topics.metadata_logs import record, topic_id
from tests.support.command_lines import Capfd
from tests.support.command_rows import Rows, of_type, rows_of
from tests.support.doctor_helpers import commands, text_of
from tests.support.group_dirs import FARES, broker, commit
from tests.support.known_topics import append
from tests.support.lock_holders import child, running_broker

MINUTE_MS = 60_000
DAY_MS = 24 * 60 * MINUTE_MS
WEEK_LATER = T0 + 7 * DAY_MS
Pair = tuple[bytes, bytes | None]


def _subscription(*topics: str) -> bytes:
    """A subscription of version 0: the version, an array of topics, no user data."""
    named = b"".join(len(topic).to_bytes(2, "big") + topic.encode() for topic in topics)
    return b"\0\0" + len(topics).to_bytes(4, "big") + named + b"\xff\xff\xff\xff"


def classic(
    group: str,
    state_ms: int,
    *subscriptions: tuple[str, ...],
    members: int = 0,
    protocol_type: str = "consumer",
) -> Pair:
    """subscriptions: of the members. Members without one have bytes that cannot be parsed."""
    member = {
        "groupInstanceId": None,
        "clientId": "c",
        "clientHost": "/h",
        "rebalanceTimeout": 1,
        "sessionTimeout": 1,
        "subscription": b"",
        "assignment": b"",
    }
    fields: dict[str, Any] = {
        "protocolType": protocol_type,
        "generation": 1,
        "protocol": "range" if members else None,
        "leader": None,
        "currentStateTimestamp": state_ms,
        "members": [{"memberId": f"m{number}", **member} for number in range(members)],
    }
    for made, topics in zip(fields["members"], subscriptions, strict=False):
        made["subscription"] = _subscription(*topics)
    return key(CONSUMER_OFFSETS, 2, group=group), value(CONSUMER_OFFSETS, 2, 3, **fields)


def consumer(group: str, *, members: int = 0) -> list[Pair]:
    made: list[Pair] = [(key(CONSUMER_OFFSETS, 3, groupId=group), value(CONSUMER_OFFSETS, 3, 0, epoch=1))]
    fields = {"clientId": "c", "clientHost": "/h", "rebalanceTimeout": 1, "serverAssignor": None}
    for number in range(members):
        name = key(CONSUMER_OFFSETS, 5, groupId=group, memberId=f"m{number}")
        made.append((name, value(CONSUMER_OFFSETS, 5, 0, **fields)))
    return made


def with_own_expiry(group: str, expires_ms: int) -> Pair:
    fields = {"offset": 3, "metadata": "", "commitTimestamp": T0, "expireTimestamp": expires_ms}
    return commit(3, group)[0], value(CONSUMER_OFFSETS, 1, 1, **fields)


def sound(root: Path, *batches: bytes) -> Path:
    """A log dir with these batches in `__consumer_offsets-0`, in the state that a broker leaves."""
    data = broker(root, *batches)
    write_segment(data / "fares-1")
    for directory, number in (("fares-0", 5), ("fares-1", 5), (f"{CONSUMER_OFFSETS}-0", 6)):
        (data / directory / "partition.metadata").write_text(f"version: 0\ntopic_id: {topic_id(number)}")
    assert run(["recover", "--quiet", "--apply", str(data)]) == 0
    return data


def doctor(capfd: Capfd, now_ms: int, *words: object, status: int = 0) -> Rows:
    return rows_of(capfd, "doctor", "--now", now_ms, *words, status=status)


def told(rows: Rows) -> dict[str, int]:
    return {row["group"]: row["offsets"] for row in of_type(rows, "expiring_offsets")}


@pytest.mark.evidence("due-offsets")
def test_offset_expiry_starts_at_the_time_kafka_uses_for_the_group_type(tmp_path: Path, capfd: Capfd) -> None:
    """Kafka: ClassicGroup.offsetExpirationCondition and those of the other groups, OffsetExpirationConditionImpl."""
    records = [
        *(commit(1, group) for group in ("simple", "stateless", "empty", "no-time", "busy", "connect")),
        classic("stateless", T0 + 1, protocol_type=""),
        classic("empty", T0 + MINUTE_MS),
        classic("no-time", -1),
        classic("busy", T0, members=1),
        classic("connect", T0, protocol_type="connect"),
        *consumer("new"),
        *consumer("new-busy", members=1),
        commit(1, "new"),
        commit(1, "new-busy"),
        commit(1, "partly"),
        commit(0, "partly", partition=1, commitTimestamp=T0 + DAY_MS),
        with_own_expiry("own", T0 + DAY_MS),
        with_own_expiry("own-later", T0 + 9 * DAY_MS),
    ]
    data = sound(tmp_path, batch(0, *records))
    ages = {"simple": 1, "stateless": 1, "no-time": 1, "connect": 1, "new": 1, "new-busy": 1, "partly": 1}
    assert told(doctor(capfd, WEEK_LATER - 1, data)) == {"own": 1}
    assert told(doctor(capfd, WEEK_LATER, data)) == {"own": 1, **ages}
    assert told(doctor(capfd, WEEK_LATER + MINUTE_MS, data)) == {"own": 1, "empty": 1, **ages}
    later = doctor(capfd, T0 + 9 * DAY_MS, data)
    assert told(later) == {"own": 1, "own-later": 1, "empty": 1, **ages, "partly": 2}
    (row,) = [row for row in of_type(later, "expiring_offsets") if row["group"] == "new-busy"]
    assert (row["group_type"], row["members"], row["lag"]) == ("consumer", 1, 9)


def test_expiring_offsets_have_a_row_and_steps(tmp_path: Path, capfd: Capfd) -> None:
    data = sound(tmp_path, batch(0, commit(4), commit(0, partition=1), classic("billing", T0)))
    rows = doctor(capfd, T0 + 30 * DAY_MS, data)
    assert of_type(rows, "expiring_offsets") == [
        {
            "type": "expiring_offsets",
            "group": "billing",
            "group_type": "classic",
            "state": "Empty",
            "members": 0,
            "topics": ["fares"],
            "offsets": 2,
            "lag": 6,
            "unused_since": T0,
            "of_own_expiry": 0,
            "partitions": [
                {"topic": "fares", "partition": 0, "offset": 4, "lag": 6, "since": T0},
                {"topic": "fares", "partition": 1, "offset": 0, "lag": 0, "since": T0},
            ],
            "in_transactions": 0,
            "assumes_default": True,
            "needs_return": False,
        }
    ]
    assert not any(step["due"] for step in of_type(rows, "step"))
    text = text_of(capfd, "--now", T0 + 30 * DAY_MS, data)
    at = text.index("committed offsets that expire after it:")
    assert text[at + 1 : at + 3] == [
        "  billing: 2 offsets in fares, 6 records behind, unused since 2026-11-21T08:43:00.883Z",
        "  with Kafka's default of 7 days (--server-properties gives the broker's)",
    ]
    assert commands(rows)[-2:] == [
        f"kseg groups --reset-csv offsets.csv --group billing {data}",
        f"printf '\\noffsets.retention.minutes=%s\\n' {37 * 24 * 60} >> server.properties",
    ]


def test_offset_expiry_uses_the_retention_of_server_properties(tmp_path: Path, capfd: Capfd) -> None:
    data = sound(tmp_path, batch(0, commit(4)))
    file = tmp_path / "node.properties"

    def with_minutes(text: str, now_ms: int) -> Rows:
        file.write_text(f"node.id=1\nlog.dirs={data}\noffsets.retention.minutes={text}\n")
        return doctor(capfd, now_ms, "--server-properties", file, data)

    assert not told(with_minutes(" 60 ", T0 + 60 * MINUTE_MS - 1))
    rows = with_minutes(" 60 ", T0 + 60 * MINUTE_MS)
    assert told(rows) == {"billing": 1}
    assert not of_type(rows, "expiring_offsets")[0]["assumes_default"]
    assert commands(rows)[-1] == f"printf '\\noffsets.retention.minutes=%s\\n' 120 >> {file}"
    assert "billing 10 min after it has loaded" in of_type(rows, "step")[-2]["why"]
    often = with_minutes("60\noffsets.retention.check.interval.ms=30000", T0 + DAY_MS)
    assert "billing 30 s after it has loaded" in of_type(often, "step")[-2]["why"]
    for wrong in ("0", "a week", "2147483648", "60\noffsets.retention.check.interval.ms=0"):
        assert not told(with_minutes(wrong, T0 + 30 * DAY_MS))


def test_open_transaction_keeps_an_offset_until_it_ends(tmp_path: Path, capfd: Capfd) -> None:
    later = batch(1, commit(7), producer_id=7, producer_epoch=0, base_sequence=0, transactional=True)
    data = sound(tmp_path, batch(0, commit(4)), later)
    (row,) = of_type(doctor(capfd, WEEK_LATER, data), "expiring_offsets")
    assert (row["offsets"], row["in_transactions"], row["partitions"][0]["offset"]) == (1, 1, 4)


def test_offsets_of_a_group_with_some_returning_members(tmp_path: Path, capfd: Capfd) -> None:
    """A member that comes back keeps the offsets of the topics that it subscribes to (tests/kafka/test_offsets_after_start.py asks a
    coordinator)."""
    records = [
        *(
            commit(1, group, topic)
            for group in ("mixed", "same", "odd")
            for topic in ("fares", "rides", "old")
        ),
        classic("mixed", T0, ("fares", "rides"), ("fares",), members=2),
        classic("same", T0, ("fares", "rides"), ("rides", "fares"), members=2),
        classic("odd", T0, ("fares",), members=2),
    ]
    data = sound(tmp_path, batch(0, *records))
    rows = of_type(doctor(capfd, WEEK_LATER, data), "expiring_offsets")
    assert [(row["group"], row["topics"], row["needs_return"]) for row in rows] == [
        ("mixed", ["old", "rides"], True),
        ("same", ["old"], True),
    ]
    data = sound(tmp_path / "one", batch(0, commit(1, "g"), classic("g", T0, ("rides",), members=1)))
    text = text_of(capfd, "--now", WEEK_LATER, data)
    assert any(line.endswith(", if only consumers of other topics come back") for line in text)
    assert "(those of g only if consumers of other topics are back by then)" in "".join(text)


def test_offsets_of_deleted_topics_need_no_step(tmp_path: Path, capfd: Capfd) -> None:
    data = sound(tmp_path, batch(0, commit(4, topic="rides")))
    rows = doctor(capfd, WEEK_LATER, data)
    assert told(rows) == {"billing": 1}
    assert not any("offsets" in command for command in commands(rows))


def test_offsets_that_do_not_expire_after_this_start_have_no_step(tmp_path: Path, capfd: Capfd) -> None:
    """A running broker has checked already, a coordinator fails to load a damaged log, and a replica that is not in sync does not lead."""
    data = sound(tmp_path, batch(0, commit(4)), batch(1, commit(5)))
    assert told(doctor(capfd, WEEK_LATER, data)) == {"billing": 1}
    with child(running_broker(data)) as other:
        assert other.output() == "in"
        assert not told(doctor(capfd, WEEK_LATER, data))
    damaged = Path(shutil.copytree(data, tmp_path / "damaged"))
    (damaged / ".kafka_cleanshutdown").write_text('{"version":0,"brokerEpoch":1}')
    bad_crc(damaged / f"{CONSUMER_OFFSETS}-0" / f"{0:020}.log")
    assert not told(doctor(capfd, WEEK_LATER, damaged, status=1))
    (cost,) = [line for line in text_of(capfd, damaged) if line.startswith(f"  {CONSUMER_OFFSETS}-0: ")]
    assert cost.endswith(
        "damaged bytes, and a coordinator that reads them loads no group of the partition, or wrong values: it does not verify checksums"
    )
    torn = Path(shutil.copytree(data, tmp_path / "torn"))
    (torn / ".kafka_cleanshutdown").write_text('{"version":0,"brokerEpoch":1}')
    log = torn / f"{CONSUMER_OFFSETS}-0" / f"{0:020}.log"
    log.write_bytes(log.read_bytes()[:-20])
    (cost,) = [line for line in text_of(capfd, torn) if line.startswith(f"  {CONSUMER_OFFSETS}-0: ")]
    assert cost.endswith(
        "damaged bytes, and appends after them; then a coordinator loads no group of the partition"
    )
    left = record("PartitionChangeRecord", partitionId=0, topicId=topic_id(6), isr=[2], leader=2)
    append(data, left, leader_epoch=1)
    assert not told(doctor(capfd, WEEK_LATER, data))


def test_expiring_offsets_are_limited_to_the_selected_topics(tmp_path: Path, capfd: Capfd) -> None:
    data = sound(tmp_path, batch(0, commit(4), commit(0, partition=1, topicId=FARES)))
    (row,) = of_type(
        doctor(capfd, WEEK_LATER, "--topic", "fares", "--partition", 1, data), "expiring_offsets"
    )
    assert [each["partition"] for each in row["partitions"]] == [1]
