"""Replicas of one partition, in the data directories of several nodes, have the same name: texts tell them apart by their directories."""

from __future__ import annotations

from pathlib import Path

import pytest

from kseg.cli.main import run
from kseg.cli.text.common import partition_words
from tests.support.command_lines import Capfd
from tests.support.trees import copy_tree

NAMES = ("node-1/more/old-0", "node-2/data/old-0")


@pytest.fixture
def nodes(moving_small: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The cluster with the same batch damaged in both replicas of old-0."""
    cluster = copy_tree(moving_small, tmp_path / "cluster")
    for name in NAMES:
        with (cluster / name / f"{0:020d}.log").open("r+b") as log:
            log.seek(300)
            log.write(b"damage")
    monkeypatch.chdir(cluster)
    return cluster


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (["verify"], f"2 damaged: {NAMES[0]}, {NAMES[1]};"),
        (["recover"], f"\n{NAMES[1]}: a repair is due: "),
        (["doctor", "--now", "2026-11-29T12:00:00Z"], f"\n  {NAMES[1]}: `recover` loses "),
        (["retain", "--retention-ms", "1", "--now", "2027-01-01"], "\nnode-2/more/old-1: 1 segment "),
    ],
    ids=["verify", "recover", "doctor", "retain"],
)
def test_replicas_are_called_by_their_directories(
    nodes: Path, words: list[str], line: str, capfd: Capfd
) -> None:
    run([*words, "node-1", "node-2"])
    text = capfd.readouterr().out
    assert line in text
    assert "\nold-0: " not in text or words[0] == "retain"  # one of them cannot be planned


def test_only_partitions_that_share_a_name_are_called_by_their_directories() -> None:
    first, second, third = ("a-0", "x/a-0"), ("a-0", "y/a-0"), ("b-0", "x/b-0")
    assert partition_words([first, third, first]) == {first: "a-0", third: "b-0"}
    assert partition_words([first, second, third]) == {first: "x/a-0", second: "y/a-0", third: "b-0"}
