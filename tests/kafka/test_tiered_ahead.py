"""A log with tiered storage that has lost its end after that was copied: what `doctor` says, and what consumers of a real broker get after
its step was typed in, and without it."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from kseg.cli.main import run
from tests.kafka.broker import CLIENT_LIMIT_S, Broker
from tests.kafka.conftest import require_kafka
from tests.kafka.test_doctor import Doctor, doctor, follow
from tests.kafka.test_tiered_broker import in_store, tiered
from tests.support.trees import copy_tree

__all__ = ["doctor"]  # a fixture

pytestmark = pytest.mark.kafka

RECORDS, A_SEGMENT, CUT = 100, 10, 50
COPIED = RECORDS - A_SEGMENT
SETTLED_S = 3


def _value(number: int) -> bytes:
    return b"value %03d " % number + b"x" * 500


def _produce(broker: Broker, numbers: range) -> None:
    producer = broker.producer(compression_type="none")
    for number in numbers:
        producer.produce("orders", value=_value(number), partition=0)
        if number % A_SEGMENT == A_SEGMENT - 1:
            assert producer.flush(CLIENT_LIMIT_S) == 0
    assert producer.flush(CLIENT_LIMIT_S) == 0


def _await_uploads(broker: Broker, root: Path, count: int) -> None:
    broker.wait_for("the uploads", lambda: len(in_store(root, "orders")) == count)


def _consumed(broker: Broker) -> list[tuple[int, int]]:
    """Offset and number of each record."""
    return [
        (record.offset, int(record.value.split()[1]))
        for record in broker.consume("orders")
        if record.value is not None
    ]


def _ids(rows: list[dict[str, object]]) -> set[object]:
    return {row.get("id") for row in rows if row["type"] == "finding"}


@pytest.fixture(scope="module")
def cut(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The root of a broker that lost power after a restart. The log has lost the segments from CUT on, which are in remote storage."""
    require_kafka()
    root = tmp_path_factory.mktemp("cut")
    for numbers in (range(70), range(70, RECORDS)):
        with tiered(root) as broker:
            if not numbers.start:
                broker.create_topic("orders", remote_storage_enable="true", retention_ms="-1")
            _produce(broker, numbers)
            _await_uploads(broker, root, (numbers.stop - 1) // A_SEGMENT)
    for path in (broker.data / "orders-0").iterdir():
        name = path.name.partition(".")[0]
        if path.suffix == ".snapshot" or (name.isdigit() and int(name) >= CUT):
            path.unlink()
    (broker.data / ".kafka_cleanshutdown").unlink()
    return root


@pytest.mark.evidence("remote-ahead")
def test_step_keeps_what_only_remote_storage_has(cut: Path, tmp_path: Path, doctor: Doctor) -> None:
    root = copy_tree(cut, tmp_path / "root")
    data = root / "broker" / "data"
    rows = doctor([data])
    (found,) = [row for row in rows if row.get("id") == "remote-ahead"]
    assert (found["first_offset"], found["last_offset"]) == (CUT, COPIED - 1)
    typed, _ = follow([data], tmp_path, {}, doctor)
    assert any(step.startswith("mv ") for step in typed), typed
    assert "remote-ahead" not in _ids(doctor([data])), typed
    with tiered(root) as broker:
        _produce(broker, range(COPIED, RECORDS + A_SEGMENT))
        assert _consumed(broker) == [(number, number) for number in range(RECORDS + A_SEGMENT)]


def test_broker_continues_before_what_remote_storage_has(cut: Path, tmp_path: Path, doctor: Doctor) -> None:
    root = copy_tree(cut, tmp_path / "root")
    data = root / "broker" / "data"
    assert run(["recover", "--apply", str(data)]) == 0
    # the repaired log no longer has the later leader epoch
    assert "remote-ahead" in _ids(doctor([data]))
    with tiered(root) as broker:
        _produce(broker, range(200, 205))
        time.sleep(SETTLED_S)
        lost = [
            *((number, number) for number in range(CUT)),
            *((number - 150, number) for number in range(200, 205)),
        ]
        assert _consumed(broker) == lost
    # it was continued since then
    assert "remote-ahead" not in _ids(doctor([data]))
