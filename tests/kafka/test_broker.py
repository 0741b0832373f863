"""Test of the broker harness: consumers read what was written, and the files on disk agree."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.kafka.broker import Broker
from tests.kafka.oracle import Oracle
from tests.kafka.scenario import CODECS, COMPACTED_KEYS, FIRST_MS, SINGLE_TOPICS, Written
from tests.support.trees import copy_tree

pytestmark = pytest.mark.kafka


def test_consumers_receive_the_records_of_every_codec(everything: Written) -> None:
    for codec in CODECS:
        records = everything.uncommitted[f"codec-{codec}", 0]
        assert [r.offset for r in records] == list(range(200))
        assert [r.timestamp for r in records] == [FIRST_MS + n * 10 for n in range(200)]
        assert (records[7].key, records[8].key, records[3].value, records[4].value) == (None, b"", None, b"")
        assert records[10].headers == (
            ("trace", b"10"),
            ("none", None),
            ("trace", "\u00fc\u20ac".encode()),
            ("", b""),
        )
        assert everything.committed[f"codec-{codec}", 0] == records


def test_log_append_time_topics_have_the_brokers_timestamps(everything: Written) -> None:
    records = everything.uncommitted["append-time", 0]
    assert len(records) == 60
    assert {r.timestamp_type for r in records} == {2}
    assert min(r.timestamp for r in records) > FIRST_MS + 1


@pytest.mark.evidence("open-transaction")
def test_read_committed_hides_aborted_and_open_transactions(everything: Written) -> None:
    seen = [r.value for r in everything.uncommitted["transactions", 0]]
    committed = [r.value for r in everything.committed["transactions", 0]]
    assert b"never decided" in seen and b"behind the open one" in seen
    assert b"never decided" not in committed and b"behind the open one" not in committed
    aborted = [(turn, n) for turn in range(8) for n in range(2) if (turn + n) % 3 == 0]
    for turn in range(8):
        for number in range(2):
            value = b"turn %d of %d " % (turn, number) * 8
            assert committed.count(value) == (0 if (turn, number) in aborted else turn % 4 + 1)
            assert seen.count(value) == turn % 4 + 1


def test_compacted_topic_has_gaps_and_every_key(everything: Written) -> None:
    records = everything.uncommitted["compacted", 0]
    assert len(records) < 200 and records[-1].offset == 599
    assert {r.key for r in records} == {b"key-%d" % n for n in range(COMPACTED_KEYS)}


@pytest.mark.parametrize("state", ["live", "stopped"])
def test_records_on_disk_equal_those_consumed(oracle: Oracle, everything: Written, state: str) -> None:
    for topic in SINGLE_TOPICS:
        logs = sorted((getattr(everything, state) / f"{topic}-0").glob("*.log"))
        assert len(logs) > 1 or topic == "append-time"
        lines = [line for log in logs for line in oracle.records(log)]
        control = {line["position"] for line in lines if line["type"] == "batch" and line["control"]}
        assert (topic == "transactions") == bool(control)
        data, in_control = [], False
        for line in lines:
            if line["type"] == "batch":
                in_control = line["control"]
            elif not in_control:
                data.append(
                    (line["offset"], line["timestamp"], line["key"], line["value"], tuple(line["headers"]))
                )
        records = everything.uncommitted[topic, 0]
        assert data == [(r.offset, r.timestamp, r.key, r.value, r.headers) for r in records], topic


@pytest.mark.evidence("index-preallocated")
def test_running_broker_preallocates_indexes_and_a_stop_trims_them(everything: Written) -> None:
    sizes = [
        max((d / "codec-none-0").glob("*.index")).stat().st_size
        for d in (everything.live, everything.stopped)
    ]
    assert sizes[0] == 262144 and sizes[1] < 1024
    assert (everything.stopped / ".kafka_cleanshutdown").exists()
    assert not (everything.live / ".kafka_cleanshutdown").exists()


def test_broker_starts_on_a_copy_of_its_data_directory(everything: Written, tmp_path: Path) -> None:
    data = copy_tree(everything.stopped, tmp_path / "data")
    with Broker(tmp_path / "broker", data).apart() as broker:
        assert "Skipping recovery of" in broker.log_text()
        assert broker.consume("codec-zstd") == everything.uncommitted["codec-zstd", 0]
        assert broker.consume("transactions", committed=True) == everything.committed["transactions", 0]
        broker.crash()
    assert not (data / ".kafka_cleanshutdown").exists()
