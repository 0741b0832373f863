"""A controller with two data directories, neither of which has its metadata log any more, while a broker still has a copy. Given the data
directories of both nodes, `verify` reports it, and after the step of `doctor` the cluster has every record.

Two nodes are started twice, which takes fifteen seconds of processor time.
"""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from tests.kafka.broker import CLIENT_LIMIT_S, Broker
from tests.kafka.cluster_admin import ClusterAdmin
from tests.kafka.conftest import require_kafka
from tests.kafka.joining import JoiningBroker
from tests.support.command_rows import rows_of

pytestmark = pytest.mark.kafka

TOPIC, RECORDS = "orders", 30
LOG = "__cluster_metadata-0"


@pytest.mark.evidence("controller-quorum")
@pytest.mark.parametrize("is_followed", [False, True])
def test_controller_with_two_disks_and_no_metadata_log(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], is_followed: bool
) -> None:
    require_kafka()
    disks = [tmp_path / "first" / name for name in ("a", "b")]
    first = Broker(tmp_path / "first", disks[0], log_dirs=",".join(map(str, disks)))
    second = JoiningBroker(first, tmp_path / "second")
    log_dirs = [*disks, second.data]
    try:
        first.start()
        second.start()
        admin = ClusterAdmin(first.bootstrap)
        try:
            admin.do("create-on", TOPIC, {"0": [2]}, {})
        finally:
            admin.close()
        producer = first.producer(acks="all")
        for number in range(RECORDS):
            producer.produce(TOPIC, b"value %d" % number, partition=0)
        assert producer.flush(CLIENT_LIMIT_S) == 0
        second.stop()
        first.stop()
        shutil.rmtree(disks[0] / LOG)
        (row,) = [row for row in rows_of(capfd, "verify", *log_dirs) if row.get("severity") == "error"]
        assert (row["id"], row["path"]) == ("replica-behind", str(disks[0] / LOG))
        if is_followed:
            for step in [
                row["command"] for row in rows_of(capfd, "doctor", *log_dirs) if row["type"] == "step"
            ]:
                if not step.startswith("kseg "):
                    subprocess.run(step, shell=True, check=True)
            assert not [row for row in rows_of(capfd, "verify", *log_dirs) if row.get("severity") == "error"]
        first.start()
        second.start()
        assert any(second.data.glob(f"{TOPIC}-0.*-stray")) is not is_followed
        if is_followed:
            second.wait_for("the records", lambda: len(second.consume(TOPIC)) == RECORDS)
    finally:
        for node in (second, first):
            if node.is_running():
                node.abandon()
