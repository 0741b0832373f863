"""A broker that gets a copy of one partition, together with the copied checkpoint entries, has the same log start, log end and records."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from kseg.cli.main import run
from kseg.segment.sidecar.checkpoint import (
    decode_offset_checkpoint,
    encode_offset_checkpoint,
    offsets_by_partition,
    with_offsets,
)
from tests.kafka.broker import Broker, delete_records, watermarks
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


@pytest.mark.evidence("copied-checkpoints")
def test_broker_serves_a_copied_partition_with_its_copied_checkpoints(
    capture_small: Path, tmp_path: Path
) -> None:
    data = copy_tree(capture_small / "data", tmp_path / "data")
    with Broker(tmp_path / "first", data) as broker:
        delete_records(broker.bootstrap, "metro-none", 0, START)
        ends, records = watermarks(broker.bootstrap, "metro-none", 0), broker.consume("metro-none")
    assert ends == (START, 160)
    output = tmp_path / "out"
    assert run(["recover", "--json", "--output", str(output), str(data / PARTITION)]) == 0

    # the disk is replaced: the partition and its checkpoint lines come from the copy
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
        assert watermarks(broker.bootstrap, "metro-none", 0) == ends
        assert broker.consume("metro-none") == records
    with Broker(tmp_path / "third", bare) as broker:
        # without the checkpoint lines it would be different
        assert watermarks(broker.bootstrap, "metro-none", 0)[0] == 0
