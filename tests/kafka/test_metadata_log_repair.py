"""`recover --policy kafka` leaves the metadata log as a real node does that starts with it after a clean stop."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

if "CI" not in os.environ:  # there its absence is an error
    pytest.importorskip("confluent_kafka", reason="no broker is started: confluent-kafka is not installed")

from kseg.cli.main import run
from tests.cli.test_recover_metadata_log import LOG, flip
from tests.kafka.conftest import require_kafka
from tests.kafka.starting import observed
from tests.support.trees import copy_tree

pytestmark = pytest.mark.kafka


def test_it_is_left_as_by_a_node(capture_small: Path, tmp_path: Path) -> None:
    require_kafka()
    data = copy_tree(capture_small / "data", tmp_path / "node" / "data")
    flip(data, 100)
    repaired = copy_tree(data, tmp_path / "repaired")
    assert run(["recover", "--policy", "kafka", "--apply", "--quiet", str(repaired)]) == 0

    assert observed(tmp_path, [data]).outcome == "starts"

    ours, real = repaired / "__cluster_metadata-0", data / "__cluster_metadata-0"
    assert (real / LOG).read_bytes().startswith((ours / LOG).read_bytes())  # and it has written more
    for suffix in (".index", ".timeindex"):
        entries = (ours / LOG).with_suffix(suffix).read_bytes()
        assert entries and (real / LOG).with_suffix(suffix).read_bytes().startswith(entries)
    snapshots = {path.name: path.read_bytes() for path in ours.glob("*.snapshot")}
    assert snapshots == {path.name: path.read_bytes() for path in real.glob("*.snapshot")}
