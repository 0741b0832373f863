"""A broker without the role of a controller that lost the end of its metadata log, or all of it, in a power failure: it fetches what it
lacks before it loads its logs, so nothing becomes stray because of that (tests/kafka/test_replicas_behind.py asks the real one)."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from kseg.segment.partition.names import METADATA_DIRECTORY
from tests.internal_topics.metadata_logs import topic_id
from tests.support.command_lines import Say
from tests.support.known_topics import FILE, set_id
from tests.support.trees import copy_tree

MARKER = ".kafka_cleanshutdown"
UNTIL_S = 4_000_000_000  # after the last record of any metadata log


@pytest.fixture
def node(moving_small: Path, tmp_path: Path) -> Path:
    """Node 2, with two log dirs; the only voter is node 9."""
    return copy_tree(moving_small / "node-2", tmp_path / "node-2")


def strays(say: Say, node: Path) -> set[str]:
    _, rows = say("verify", str(node))
    found = {Path(row["path"]).name for row in rows if row.get("id") == "becomes-stray"}
    (start,) = [row for row in rows if row["type"] == "broker-start"]
    assert {*start["partitions_stray"]} == found
    return found


def test_no_partition_becomes_stray_if_the_metadata_log_is_lost_entirely(node: Path, say: Say) -> None:
    for log_dir in ("data", "more"):
        (node / log_dir / MARKER).unlink()
    metadata_log = node / "data" / METADATA_DIRECTORY
    for path in metadata_log.glob(f"{0:020d}.*"):  # no snapshot was written before
        os.truncate(path, 0)
    for path in metadata_log.glob("*.snapshot"):
        path.unlink()
    assert strays(say, node) == set()
    # a controller that has lost everything fetches nothing
    state = (metadata_log / "quorum-state").read_text()
    (metadata_log / "quorum-state").write_text(state.replace('"voterId":9', '"voterId":2'))
    assert {"alone-0", "old-0", "old-1"} <= strays(say, node)


@pytest.mark.evidence("newer-metadata-log")
def test_no_partition_becomes_stray_if_the_metadata_log_lost_its_end(node: Path, say: Say) -> None:
    """A topic is younger than the last record, and the shutdown was not clean: the end may be missing."""
    partition = node / "data" / "old-0"
    set_id(partition, topic_id(9))
    os.utime(partition / FILE, (UNTIL_S, UNTIL_S))
    assert strays(say, node) == {"old-0"}
    (node / "data" / MARKER).unlink()
    assert strays(say, node) == set()
    os.utime(partition / FILE, (1, 1))  # such as one of another cluster
    assert strays(say, node) == {"old-0"}
