"""A node in a shared Java process starts, exits, halts and is killed like one in its own process, and logs the same; a tool in it prints
the same and exits with the same status."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.cli.test_recover_metadata_log import TOPIC, without
from tests.kafka import jars
from tests.kafka.broker import CLIENT_LIMIT_S, Broker
from tests.kafka.conftest import require_kafka
from tests.kafka.shared_java import run_java
from tests.kafka.start_cases import CASES
from tests.kafka.start_directories import Case
from tests.kafka.starting import Observed, observed, observed_apart
from tests.support.trees import copy_tree

pytestmark = pytest.mark.kafka


def halts(data: Path) -> None:
    """The fault handler of the controller or the broker halts the node, whichever reads the record first; each has its own exception."""
    without(data, TOPIC)


ENDS: dict[str, Case] = {"halts": halts, **CASES}
# ends while directories are checked, while logs are loaded, and in a thread that reads metadata
IN_THE_GATE = ("meta.properties-of-tomorrow", "partition_twice", "halts")


@pytest.mark.parametrize("name", ENDS if os.environ.get("KSEG_BROKER_STARTS") == "all" else IN_THE_GATE)
def test_node_in_a_shared_java_process_ends_like_one_in_its_own(
    name: str, capture_small: Path, tmp_path: Path
) -> None:
    require_kafka()
    ours, theirs = (_seen(name, capture_small, tmp_path, is_apart) for is_apart in (False, True))
    assert ours.outcome == theirs.outcome
    assert _ended_by(ours) == _ended_by(theirs) or (name == "halts" and _ended_by(ours) and _ended_by(theirs))
    # otherwise the order of threads decides what is logged before the end
    if ours.outcome != "does-not-start":
        ours.log = theirs.log = ""
        assert ours == theirs


def _seen(name: str, capture_small: Path, root: Path, is_apart: bool) -> Observed:
    data = copy_tree(capture_small / "data", root / "node" / "data")
    more = ENDS[name](data)
    seen = (observed_apart if is_apart else observed)(root, [data] if more is None else [data, more])
    shutil.rmtree(root / "node")
    return seen


def _ended_by(seen: Observed) -> set[str]:
    """The exceptions that are logged as the reason for the end."""
    return set(re.findall(r"fatal (?:exception|fault)[^\n]*\n(?:Caused by: )?([\w.$]+)", seen.log))


def test_killed_node_leaves_what_it_had_written(tmp_path: Path) -> None:
    """No marker of a clean stop, indexes that are as long as they were allocated, and every acknowledged record."""
    require_kafka()
    broker = Broker(tmp_path / "broker")
    partition = broker.data / "fares-0"
    broker.start()
    broker.create_topic("fares", internal_segment_bytes="100000")
    producer = broker.producer()
    for number in range(20):
        producer.produce("fares", b"%d" % number)
    assert producer.flush(CLIENT_LIMIT_S) == 0
    log = (partition / f"{0:020}.log").read_bytes()
    broker.crash()
    assert not (broker.data / ".kafka_cleanshutdown").exists()
    assert (partition / f"{0:020}.index").stat().st_size == 262144
    assert (partition / f"{0:020}.log").read_bytes() == log
    assert not [*broker.data.parent.glob("*.killed")]


def test_tool_in_a_shared_java_process_exits_like_one_in_its_own() -> None:
    require_kafka()
    words = ("kafka.tools.StorageTool", "format", "--cluster-id", "of-no-use")
    theirs = subprocess.run(
        jars.brief_java_command(*words),
        env=jars.java_environment(),
        capture_output=True,
        text=True,
        check=False,
    )
    ours = run_java(*words)
    assert "--config" in theirs.stderr and theirs.returncode == 1
    assert (ours.returncode, ours.stdout, ours.stderr) == (theirs.returncode, theirs.stdout, theirs.stderr)
