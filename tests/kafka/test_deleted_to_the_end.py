"""A broker that is killed right after DeleteRecords up to the log end: the state it leaves, and what its next load makes of it. The test
takes more than ten seconds because the broker has its own process and starts twice."""

from __future__ import annotations

from pathlib import Path

import pytest

from kseg.cli.main import run
from kseg.segment.sidecar.checkpoint import decode_leader_epochs
from tests.kafka.broker import Broker, delete_records, watermarks

RECORDS = 50
# the deleted records come back only if the broker is killed before it writes the log start to the checkpoint
NO_CHECKPOINTS_MS = "600000"


def epochs_in(data: Path) -> list[tuple[int, int]]:
    entries = decode_leader_epochs((data / "orders-0" / "leader-epoch-checkpoint").read_bytes())
    return [(entry.epoch, entry.start_offset) for entry in entries]


@pytest.mark.evidence("epochs-empty")
def test_broker_forgets_the_epoch_of_deleted_records_that_reappear(tmp_path: Path) -> None:
    with Broker(tmp_path, log_initial_task_delay_ms=NO_CHECKPOINTS_MS) as broker:
        broker.create_topic("orders")
        producer = broker.producer()
        for number in range(RECORDS):
            producer.produce("orders", b"%d" % number)
        producer.flush()
        delete_records(broker.bootstrap, "orders", 0, RECORDS)
        broker.crash()
        assert epochs_in(broker.data) == [(0, RECORDS)]
        ours = broker.copy_data(tmp_path / "ours")
        broker.start()
        assert watermarks(broker.bootstrap, "orders", 0) == (0, RECORDS)
        ((epoch, start),) = epochs_in(broker.data)
        assert epoch > 0 and start == RECORDS, "the load removed epoch 0, and the leader began another one"
    assert run(["recover", "--policy", "kafka", "--apply", str(ours / "orders-0")]) == 0
    assert epochs_in(ours) == []
    assert run(["verify", str(ours / "orders-0")]) == 0
