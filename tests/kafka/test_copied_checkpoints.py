"""A copy of one partition, given to a broker with the lines of the checkpoints that came with it: the same log start, end and records."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

if "CI" not in os.environ:  # there its absence is an error
    pytest.importorskip("confluent_kafka", reason="no broker is started: confluent-kafka is not installed")

from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import AdminClient

from kseg.cli.main import run
from kseg.segment.sidecar.checkpoint import (
    decode_offset_checkpoint,
    encode_offset_checkpoint,
    offsets_by_partition,
    with_offsets,
)
from tests.kafka.broker import CLIENT_LIMIT_S, Broker
from tests.support.trees import copy_tree

pytestmark = pytest.mark.kafka

START = 30
PARTITION = "metro-none-0"
CHECKPOINTS = (
    "log-start-offset-checkpoint",
    "recovery-point-offset-checkpoint",
    "replication-offset-checkpoint",
    "cleaner-offset-checkpoint",
)


def _ends(broker: Broker) -> tuple[int, int]:
    """(log start, high watermark)"""
    consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": "nobody", "log_level": 0})
    try:
        low, high = consumer.get_watermark_offsets(TopicPartition("metro-none", 0), CLIENT_LIMIT_S)
        return int(low), int(high)
    finally:
        consumer.close()


@pytest.mark.evidence("copied-checkpoints")
def test_a_broker_has_of_the_copy_what_it_had(capture_small: Path, tmp_path: Path) -> None:
    data = copy_tree(capture_small / "data", tmp_path / "data")
    with Broker(tmp_path / "first", data) as broker:
        admin = AdminClient({"bootstrap.servers": broker.bootstrap, "log_level": 0})
        for future in admin.delete_records([TopicPartition("metro-none", 0, START)]).values():
            future.result(CLIENT_LIMIT_S)
        ends, records = _ends(broker), broker.consume("metro-none")
    assert ends == (START, 160)
    output = tmp_path / "out"
    assert run(["recover", "--json", "--output", str(output), str(data / PARTITION)]) == 0

    # the disk is replaced: its partition and the lines of its checkpoints come from the copy
    shutil.rmtree(data / PARTITION)
    for name in CHECKPOINTS:
        found = decode_offset_checkpoint((data / name).read_bytes())
        (data / name).write_bytes(encode_offset_checkpoint(with_offsets(found, {("metro-none", 0): None})))
    bare = copy_tree(data, tmp_path / "bare")
    for target in (data, bare):
        shutil.copytree(output / PARTITION, target / PARTITION)
    for name in CHECKPOINTS:
        brought = offsets_by_partition(decode_offset_checkpoint((output / name).read_bytes()))
        found = decode_offset_checkpoint((data / name).read_bytes())
        (data / name).write_bytes(encode_offset_checkpoint(with_offsets(found, dict(brought))))
    with Broker(tmp_path / "second", data) as broker:
        assert _ends(broker) == ends
        assert broker.consume("metro-none") == records
    with Broker(tmp_path / "third", bare) as broker:
        assert _ends(broker)[0] == 0  # what the lines are for
