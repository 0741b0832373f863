"""A real 4.3.1 broker does with random data directories what `verify` predicts."""

from __future__ import annotations

import os
import random
from pathlib import Path

import pytest

from tests.kafka.conftest import require_kafka
from tests.kafka.random_starts import Node, damage
from tests.kafka.starting import SETTLE_S, assert_as_foretold, foretold, observed
from tests.kafka.test_broker_start import disks
from tests.support.trees import copy_tree

__all__ = ["disks"]

pytestmark = pytest.mark.kafka

SEED = int(os.environ.get("KSEG_STARTS_SEED", "1"))
STARTS = int(os.environ.get("KSEG_STARTS", "2"))


@pytest.mark.parametrize("seed", range(SEED, SEED + STARTS))
def test_forecast_for_random_data_directories_matches_the_broker(
    seed: int, disks: Path, capture_small: Path, tmp_path: Path
) -> None:
    require_kafka()
    rng = random.Random(seed)
    if rng.random() < 0.5:
        copy_tree(disks, tmp_path / "node")
        log_dirs = [tmp_path / "node" / "0", tmp_path / "node" / "1"]
    else:
        log_dirs = [copy_tree(capture_small / "data", tmp_path / "node" / "data")]
    node = Node(rng, log_dirs)
    damage(node)
    properties = tmp_path / "server.properties"
    # which offsets an index rejects depends on the interval
    properties.write_text(
        f"node.id=1\nlog.dirs={','.join(map(str, log_dirs))}\nlog.index.interval.bytes=4096\n"
    )
    try:
        reported = foretold(log_dirs, "--server-properties", str(properties))
        seen = observed(tmp_path, log_dirs, SETTLE_S, **{"log.index.interval.bytes": "4096"})
        assert_as_foretold(reported, seen)
    except AssertionError as error:
        error.add_note("; ".join(node.done))
        raise
