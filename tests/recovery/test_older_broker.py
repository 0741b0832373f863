"""Directories that a 2.8.2 broker with ZooKeeper left: after a kill, and after it had recovered them and was stopped (`older-small`)."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from kseg.cli.main import run
from tests.support.verify_helpers import judge

INTERNAL, TOPICS = "__*", "[!_]*"
# index.interval.bytes of the topics
INTERVALS = {INTERNAL: "4096", TOPICS: "1024"}
BY_LOG = {".log", ".index", ".timeindex", ".txnindex"}


@pytest.mark.parametrize("level", ["quick", "default", "deep"])
@pytest.mark.parametrize("state", ["killed", "clean"])
def test_verify_of_a_2_8_broker_has_no_errors(older_small: Path, state: str, level: str) -> None:
    verdict = judge(older_small / state, level)
    assert verdict.ids("error", "warning") == set()
    assert verdict.of("sequence-gap") == []


def test_recover_of_a_cleanly_stopped_2_8_broker_has_nothing_to_repair(
    older_small: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    assert run(["recover", str(older_small / "clean")]) == 0
    assert "nothing to repair in 8 partitions" in capfd.readouterr().out


@pytest.mark.parametrize("topics", [INTERNAL, TOPICS])
def test_policy_kafka_leaves_logs_and_indexes_like_a_2_8_broker(
    older_small: Path, tmp_path: Path, topics: str
) -> None:
    """For logs and indexes, the rules of 4.3.1 and 2.8.2 are the same. Files that a start as leader and a stop write are left out."""
    data = Path(shutil.copytree(older_small / "killed", tmp_path / "data"))
    options = ["--policy", "kafka", "--apply", "--topic", topics, "--index-interval-bytes", INTERVALS[topics]]
    assert run(["recover", *options, str(data)]) == 0
    left = {
        file.relative_to(data): file.read_bytes()
        for file in data.glob(f"{topics}/*")
        if file.suffix in BY_LOG
    }
    clean = older_small / "clean"
    assert left == {
        file.relative_to(clean): file.read_bytes()
        for file in clean.glob(f"{topics}/*")
        if file.suffix in BY_LOG
    }
    assert len(left) > 5
