"""Copies of the cluster whose nodes were killed or stopped (capture `electing-small`), for tests that damage its data directories, follow
the steps of `doctor`, and may start it.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.kafka.two_replicas import TwoReplicas
from tests.support.command_rows import rows_of
from tests.support.doctor_helpers import commands
from tests.support.trees import copy_tree

BROKERS = (1, 2, 3)
# CLICKS allows unclean elections; each batch of both has ten records
ORDERS, CLICKS = "orders", "clicks"
ABOUT_ELECTIONS = ("replica-behind", "replica-shorter", "unclean-election-ahead", "replica-diverged")


def typed(step: str, before: str = "") -> subprocess.CompletedProcess[str]:
    """Run a step as it is printed. before: a command of the shell that runs first."""
    command = before + re.sub(r"\bkseg (?=dump|append|recover)", f"{sys.executable} -m kseg ", step)
    return subprocess.run(command, shell=True, check=False, capture_output=True, text=True)


class ElectingCluster(TwoReplicas):
    """A copy of one of the states in the capture."""

    def __init__(self, state: Path, root: Path, capfd: pytest.CaptureFixture[str]) -> None:
        super().__init__(copy_tree(state, root / "cluster"), BROKERS)
        self._capfd = capfd

    def lose_end(self, node_id: int, *, batches: int) -> None:
        """Leave this number of batches in the logs of a node."""
        for topic in (ORDERS, CLICKS):
            log, ends = self.batches_of(node_id, topic)
            os.truncate(log, ends[batches - 1])

    def damage(self, node_id: int, batch: int) -> None:
        """Damage a batch of ORDERS, which is no longer readable."""
        log, ends = self.batches_of(node_id, ORDERS)
        data = bytearray(log.read_bytes())
        data[ends[batch] - 80 : ends[batch]] = bytes(80)
        log.write_bytes(data)

    def batches_of(self, node_id: int, topic: str) -> tuple[Path, list[int]]:
        """The only segment of a topic, and the positions at which its batches end."""
        (log,) = (self.data(node_id) / f"{topic}-0").glob("*.log")
        data, ends = log.read_bytes(), [0]
        while ends[-1] < len(data):
            ends.append(ends[-1] + 12 + int.from_bytes(data[ends[-1] + 8 : ends[-1] + 12]))
        return log, ends[1:]

    def asked(self, command: str, *options: str) -> list[dict[str, Any]]:
        return rows_of(self._capfd, command, *options, *map(self.data, self.nodes))

    def found(self, topic: str, *options: str) -> dict[int, tuple[str, int, int, int]]:
        """The findings about replicas of a topic by node: finding, end, the other node, and the end there."""
        rows = [row for row in self.asked("verify", *options) if row.get("id") in ABOUT_ELECTIONS]
        return {
            node_id: (row["id"], row["end_offset"], row["node"], row["other_end_offset"])
            for node_id in BROKERS
            for row in rows
            if row["path"] == str(self.data(node_id) / f"{topic}-0")
        }

    def steps(self) -> list[str]:
        return commands(self.asked("doctor"))

    def follow(self) -> list[str]:
        """Run the steps exactly as they are printed, up to the one that checks again."""
        steps = [step for step in self.steps() if not step.startswith("kseg ")]
        for step in steps:
            typed(step).check_returncode()
        return steps

    def order(self) -> list[str]:
        """The step about the order of starts."""
        rows = [row for row in self.asked("doctor") if row["type"] == "step"]
        return [row["why"].partition(":")[0] for row in rows if row["command"].startswith("kafka-topics.sh")]


# of "killed" or "stopped"
Electing = Callable[[str], ElectingCluster]
