"""Nodes of a cluster that have lost their metadata logs, while another node has it. Every outcome was observed with 4.3.1."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

# where CI is set, the imports below fail instead of skipping the tests
if "CI" not in os.environ:
    pytest.importorskip("confluent_kafka", reason="no broker is started: confluent-kafka is not installed")

from kseg.segment.partition.names import METADATA_DIRECTORY
from tests.kafka.test_elections import BROKERS, Cluster

pytestmark = pytest.mark.kafka


@pytest.mark.evidence("broker-start")
def test_nodes_without_metadata_logs_are_separate(
    electing_small: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """None of them has registered as many log dirs as are examined."""
    cluster = Cluster(electing_small / "killed", tmp_path, capfd)
    for node_id in BROKERS:
        shutil.rmtree(cluster.data(node_id) / METADATA_DIRECTORY)
    starts = [row for row in cluster.asked("doctor") if row["type"] == "broker-start"]
    assert {row["node_id"]: row["outcome"] for row in starts} == dict.fromkeys(cluster.nodes, "starts")
