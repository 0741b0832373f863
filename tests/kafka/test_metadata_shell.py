"""`kseg metadata` on one file of the metadata log, compared with MetadataShell, which shows the image of a snapshot or a segment as a
tree."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.kafka.jars import brief_java_command, java_environment
from tests.support.command_rows import rows_of

_SHELL = "org.apache.kafka.shell.MetadataShell"
_LIST = re.compile(r"(\w+)=\[([^\]]*)\]")
_NUMBER = re.compile(r"(\w+)=(-?\d+|true|false)\b")
_ENDPOINT = re.compile(r"listenerName='([^']*)', securityProtocol=\w+, host='([^']*)', port=(\d+)")

pytestmark = pytest.mark.kafka


@pytest.fixture(scope="module", params=["checkpoint", "log"])
def file(
    request: pytest.FixtureRequest, capture_small: Path, tmp_path_factory: pytest.TempPathFactory
) -> Path:
    """The file alone in a directory, because the shell locks the directory above it."""
    folder = tmp_path_factory.mktemp("shell") / "__cluster_metadata-0"
    folder.mkdir()
    (found,) = (capture_small / "data" / "__cluster_metadata-0").glob(f"*.{request.param}")
    return Path(shutil.copy2(found, folder))


@pytest.fixture(scope="module")
def shown(file: Path) -> Mapping[str, Any]:
    """The shell's tree, with directories as mappings. A leaf has its text under the empty name."""
    command = brief_java_command(_SHELL, "-s", str(file), "tree", "/image")
    # the shell does not wait until what it has read is published
    for _ in range(5):
        done = subprocess.run(command, env=java_environment(), capture_output=True, text=True, check=True)
        tree: Mapping[str, Any] = _tree(done.stdout.splitlines())
        if not tree["provenance"][""].startswith("offset -1,"):
            return tree
    raise AssertionError("the shell shows an empty image")


def _tree(lines: Iterable[str]) -> Any:
    """Parse the output: two blanks a level; a line that ends with a colon is a name, every other line is content."""
    root: dict[str, Any] = {}
    at = [root]
    for line in lines:
        depth = (len(line) - len(line.lstrip())) // 2
        del at[depth + 1 :]
        if line.endswith(":"):
            at.append(at[depth].setdefault(line.strip()[:-1], {}))
        elif line:
            at[depth][""] = line.strip()
    return root


@pytest.fixture
def rows(file: Path, capfd: pytest.CaptureFixture[str]) -> list[dict[str, Any]]:
    return rows_of(capfd, "metadata", file, status=0)


def _of(rows: list[dict[str, Any]], kind: str) -> list[dict[str, Any]]:
    return [row for row in rows if row["type"] == kind]


def test_topics_and_partitions_equal_metadata_shell(
    shown: Mapping[str, Any], rows: list[dict[str, Any]]
) -> None:
    theirs = {}
    for topic, tree in shown["topics"]["byName"].items():
        for number in filter(str.isdigit, tree):
            text = tree[number][""]
            lists = {name: [each for each in of.split(", ") if each] for name, of in _LIST.findall(text)}
            theirs[topic, int(number)] = (tree["id"][""], lists, dict(_NUMBER.findall(text)))
    ours = {}
    for row in _of(rows, "partition"):
        lists = {
            "replicas": row["replicas"],
            "directories": row["directories"],
            "isr": row["isr"],
            "removingReplicas": row["removing_replicas"],
            "addingReplicas": row["adding_replicas"],
            "elr": row["elr"],
            "lastKnownElr": row["last_known_elr"],
        }
        numbers = {
            "leader": str(row["leader"]),
            "leaderEpoch": str(row["leader_epoch"]),
            "partitionEpoch": str(row["partition_epoch"]),
        }
        spelled = {name: [str(each) for each in values] for name, values in lists.items()}
        ours[row["topic"], row["partition"]] = (row["topic_id"], spelled, numbers)
    assert theirs and ours == theirs
    assert {row["topic"]: row["partitions"] for row in _of(rows, "topic")} == {
        topic: sum(map(str.isdigit, tree)) for topic, tree in shown["topics"]["byName"].items()
    }


def test_configurations_equal_metadata_shell(shown: Mapping[str, Any], rows: list[dict[str, Any]]) -> None:
    theirs = {
        (*resource.partition(":")[::2], name, leaf[""])
        for resource, tree in shown["configs"].items()
        for name, leaf in tree.items()
    }
    ours = {
        (row["resource_type"], row["resource_name"], row["name"], row["value"]) for row in _of(rows, "config")
    }
    assert theirs and ours == theirs


def test_features_brokers_and_log_end_equal_metadata_shell(
    shown: Mapping[str, Any], rows: list[dict[str, Any]]
) -> None:
    finalized = {
        name.removeprefix("finalized_"): int(leaf[""])
        for name, leaf in shown["features"].items()
        if name.startswith("finalized_")
    }
    levels = {row["name"]: row["level"] for row in _of(rows, "feature")}
    assert finalized and {name: levels.get(name) for name in finalized} == finalized
    for row in _of(rows, "broker"):
        text = shown["cluster"]["brokers"][str(row["broker_id"])][""]
        numbers = dict(_NUMBER.findall(text))
        assert (str(row["epoch"]), str(row["fenced"]).lower()) == (numbers["epoch"], numbers["fenced"])
        listeners = [(each["name"], each["host"], str(each["port"])) for each in row["listeners"]]
        assert listeners == _ENDPOINT.findall(text)
        assert f"directories=[{', '.join(row['log_dirs'])}]" in text
    assert {str(row["broker_id"]) for row in _of(rows, "broker")} == set(shown["cluster"]["brokers"])
    (end,) = _of(rows, "metadata")
    assert str(end["next_producer_id"]) == shown["producerIds"]["nextProducerId"][""]
    # for a snapshot alone, the shell counts its records
    if not shown["provenance"][""].startswith("offset 56,"):
        assert shown["provenance"][""].startswith(f"offset {end['offset']}, epoch {end['epoch']}, ")
