"""Data directories after an incident (`incident_directories`): a real 4.3.1 broker does what `verify` predicts, before and after `recover
--apply`."""

from __future__ import annotations

import json
import os
import random
from pathlib import Path
from typing import Any

import pytest

from tests.kafka.conftest import require_kafka
from tests.kafka.incident_directories import Incident, strike
from tests.kafka.starting import SETTLE_S, assert_as_foretold, foretold, observed
from tests.kafka.test_broker_start import disks
from tests.support.forked_programs import run_kseg
from tests.support.trees import copy_tree

__all__ = ["disks"]

pytestmark = pytest.mark.kafka

SEED = int(os.environ.get("KSEG_INCIDENTS_SEED", "1"))
INCIDENTS = int(os.environ.get("KSEG_INCIDENTS", "2"))
# logs cut to 4,096 bytes, within a batch
ONCE_FAILED = (6200036,)


@pytest.mark.parametrize("seed", (*range(SEED, SEED + INCIDENTS), *ONCE_FAILED))
def test_forecast_of_a_start_after_an_incident_matches_the_broker(
    seed: int, disks: Path, capture_small: Path, tmp_path: Path
) -> None:
    require_kafka()
    rng = random.Random(f"incident {seed}")
    if rng.random() < 0.25:
        copy_tree(disks, tmp_path / "node")
        log_dirs, before = [tmp_path / "node" / "0", tmp_path / "node" / "1"], None
    else:
        log_dirs = [copy_tree(capture_small / "data", tmp_path / "node" / "data")]
        before = capture_small / "before"
    incident = Incident(rng, log_dirs, before)
    strike(incident)
    is_repaired = rng.random() < 0.5
    properties = tmp_path / "server.properties"
    properties.write_text(
        f"node.id=1\nlog.dirs={','.join(map(str, log_dirs))}\nlog.index.interval.bytes=4096\n"
    )
    try:
        if is_repaired:
            _repair(log_dirs)
        forecast = foretold(log_dirs, "--server-properties", str(properties))
        assert_as_foretold(
            forecast, observed(tmp_path, log_dirs, SETTLE_S, **{"log.index.interval.bytes": "4096"})
        )
    except AssertionError as error:
        error.add_note("; ".join([*incident.done, *["repaired"] * is_repaired]))
        raise


def _repair(log_dirs: list[Path]) -> None:
    """Repair with policy salvage; a second run has nothing to do."""
    status, first = _run("recover", "--apply", *map(str, log_dirs))
    _, again = _run("recover", *map(str, log_dirs))
    steps = [row for row in again if row["type"] == "step"]
    refused = status == 4 or any(row["type"] == "error" for row in first)
    assert refused or not steps, steps[:3]


def _run(*words: str) -> tuple[int, list[dict[str, Any]]]:
    done = run_kseg(words[0], "--json", *words[1:])
    assert done.returncode in (0, 1, 4, 5), (done.returncode, done.stderr)
    return done.returncode, [json.loads(line) for line in done.stdout.splitlines()]
