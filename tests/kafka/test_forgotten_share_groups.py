"""Share groups whose records in `__consumer_offsets` are lost while their states in `__share_group_state` are there: after the steps of
`doctor` they go on where they had stopped; without them they begin anew, or get no record.

Takes forty seconds: two brokers, and five members in processes of their own.
"""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Any

import pytest

from kseg.cli.main import run
from tests.kafka.broker import Broker
from tests.kafka.conftest import require_kafka
from tests.kafka.group_clients import GroupClients, share_broker
from tests.kafka.test_doctor import Doctor, doctor, follow
from tests.support.command_rows import of_type, rows_of
from tests.support.trees import copy_tree

__all__ = ["doctor"]

pytestmark = pytest.mark.kafka

FARES, RIDES, GROUP, OFFSETS = "fares", "rides", "riders", "__consumer_offsets"
READ, MORE = 20, 7
UNFINISHED = [*range(11, READ, 2)]  # released, after the first five of them were delivered too often
REJECTED = [*range(1, 11, 2)]


def _produce(broker: Broker, topic: str, count: int) -> None:
    producer = broker.producer()
    for number in range(count):
        producer.produce(topic, b"value %d" % number, partition=0)
    producer.flush()


def _deliver(broker: Broker, topic: str, count: int) -> list[int]:
    """The offsets that a new member gets, each once."""
    with GroupClients(broker.bootstrap, is_apart=True) as clients:
        read = clients.ask("share", group=GROUP, topic=topic, records=count, rejected=REJECTED)["read"]
    return sorted(dict.fromkeys(read))


def _progress(broker: Broker) -> list[dict[str, Any]]:
    with GroupClients(broker.bootstrap) as clients:
        found = clients.ask("describe")["share_offsets"]
    return sorted(found, key=lambda row: str(row["topic"]))


def _lose_records(data: Path) -> None:
    """The partition begins anew, as on a disk that was replaced."""
    for file in (data / f"{OFFSETS}-0").iterdir():
        if file.suffix in (".log", ".index", ".timeindex", ".snapshot"):
            file.unlink()
    (data / f"{OFFSETS}-0" / f"{0:020}.log").touch()


@pytest.mark.evidence("share-state")
def test_steps_after_records_of_a_share_group_are_lost_keep_its_progress(
    tmp_path: Path, doctor: Doctor, capfd: pytest.CaptureFixture[str]
) -> None:
    require_kafka()
    broker = share_broker(tmp_path)
    data = broker.data
    with broker:
        for topic in (FARES, RIDES):
            broker.create_topic(topic)
            _produce(broker, topic, READ)
            # the state of the second topic is of a later epoch than that of a new group
            assert len(_deliver(broker, topic, READ)) == READ
            _produce(broker, topic, MORE)
        before = _progress(broker)
    assert not of_type(rows_of(capfd, "groups", data, status=0), "finding")
    _lose_records(data)
    without = copy_tree(data, tmp_path / "without")
    typed, _ = follow([data], tmp_path, {}, doctor)
    assert [step for step in typed if step.startswith("printf ")], typed
    assert "share_offset" not in {row["type"] for row in doctor([data])}
    with broker:
        # a broker that has just started lists no groups
        broker.wait_for("the progress before", lambda: _progress(broker) == before)
        assert len(before) == 2
        for topic in (FARES, RIDES):
            assert _deliver(broker, topic, len(UNFINISHED) + MORE) == [*UNFINISHED, *range(READ, READ + MORE)]
    _begin_anew(share_broker(tmp_path / "other", without), capfd)


def _begin_anew(broker: Broker, capfd: pytest.CaptureFixture[str]) -> None:
    assert run(["recover", "--apply", str(broker.data)]) == 0
    rows = rows_of(capfd, "groups", broker.data, status=0)
    assert {(row["topic"], row["status"]) for row in of_type(rows, "share_offset")} == {
        (FARES, "forgotten"),
        (RIDES, "forgotten"),
    }
    reset = f"--reset-offsets --group {GROUP} --topic {RIDES}:0 --to-earliest --execute"
    with broker:
        loaded = f"Finished loading of metadata from {OFFSETS}-0"
        broker.wait_for("loading", lambda: loaded in broker.log_text())
        with GroupClients(broker.bootstrap) as clients:
            assert clients.ask("describe")["groups"] == []
            # what the step of `doctor` says where nothing can be appended
            refused = clients.ask("share_tool", words=shlex.split(reset))["printed"]
            assert "Failed altering group offsets" in refused
            deleted = clients.ask("share_tool", words=["--delete", "--group", GROUP])["printed"]
            assert "was successful" in deleted
            assert GROUP in clients.ask("share_tool", words=shlex.split(reset))["printed"]
        assert [(row["topic"], row["lag"]) for row in _progress(broker)] == [(RIDES, READ + MORE)]
        assert _deliver(broker, FARES, READ)[:READ] == [*range(READ)]
