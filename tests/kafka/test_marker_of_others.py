"""A clean-shutdown marker also covers partitions that a repair does not concern: damage in them that a broker leaves behind the marker, and
at which it truncates the log without one, must not cost records because another partition was repaired.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from fixtures.diseases import bad_crc, batch_spans
from kseg.cli.main import run
from tests.kafka.broker import CLIENT_LIMIT_S, Broker
from tests.kafka.conftest import require_kafka
from tests.support.trees import copy_tree

pytestmark = [pytest.mark.kafka]

MARKER = ".kafka_cleanshutdown"
FIRST = f"{0:020}.log"


@pytest.fixture(scope="module")
def stopped(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A data directory with two partitions of six batches each, after a clean stop."""
    require_kafka()
    with Broker(tmp_path_factory.mktemp("stopped")) as broker:
        broker.create_topic("orders", 2)
        producer = broker.producer()
        for number in range(6):
            for partition in range(2):
                producer.produce("orders", b"%d" % number, partition=partition)
            producer.flush(CLIENT_LIMIT_S)
    return broker.data


@pytest.mark.evidence("marker-goes")
@pytest.mark.parametrize(
    "words", [["--policy", "kafka"], ["--policy", "kafka", "orders-1"], ["orders-1"]], ids=" ".join
)
def test_other_logs_keep_their_records_when_one_is_truncated(
    stopped: Path, tmp_path: Path, words: list[str], capfd: pytest.CaptureFixture[str]
) -> None:
    """In partition 0 the third batch is damaged: behind the marker a broker reads the others. Partition 1 is torn, and has no index."""
    data = copy_tree(stopped, tmp_path / "data")
    bad_crc(data / "orders-0" / FIRST, 2)
    torn = data / "orders-1" / FIRST
    torn.with_suffix(".index").unlink()
    os.truncate(torn, batch_spans(torn)[-1][0] + 20)
    damaged = (data / "orders-0" / FIRST).read_bytes()
    *options, target = words if words[-1] == "orders-1" else [*words, ""]
    assert run(["recover", "--apply", *options, str(data / target)]) in (0, 1)
    capfd.readouterr()
    assert (data / MARKER).read_bytes() == b""
    with Broker(tmp_path / "broker", data) as broker:
        text = broker.log_text()
        assert "Skipping recovery" in text and "Corruption found" not in text
        # it registers as after an unclean stop
        assert "Unable to read the broker epoch" in text
    assert (data / "orders-0" / FIRST).read_bytes() == damaged
