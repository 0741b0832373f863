"""A second broker in the cluster of a first one, which holds the only controller."""

from __future__ import annotations

import re
import signal
import subprocess
from pathlib import Path

from tests.kafka.broker import Broker


class JoiningBroker(Broker):
    """Node 2 of the cluster of `first`, which must be running whenever this one starts."""

    def __init__(self, first: Broker, root: Path) -> None:
        super().__init__(root)
        self._first = first

    def freeze(self) -> None:
        """Stop answering until `thaw`. The node, in a process of its own, keeps leading its partitions until its session expires
        (broker.session.timeout.ms of the first)."""
        self._signal(signal.SIGSTOP)

    def thaw(self) -> None:
        """Resume the frozen process."""
        self._signal(signal.SIGCONT)

    def _signal(self, which: signal.Signals) -> None:
        assert isinstance(self._process, subprocess.Popen)
        self._process.send_signal(which)

    def _differing(self, usual: dict[str, str]) -> dict[str, str | None]:
        return {
            "process.roles": "broker",
            "node.id": "2",
            "listeners": f"PLAINTEXT://{self.bootstrap}",
            "controller.quorum.voters": self._first.configured()["controller.quorum.voters"],
        }

    def _format(self) -> None:
        """Format as `kafka-storage.sh format` does for a broker without a controller."""
        self.data.mkdir(parents=True, exist_ok=True)
        (cluster,) = re.findall(
            r"^cluster\.id=(.*)$", (self._first.data / "meta.properties").read_text(), re.MULTILINE
        )
        (self.data / "meta.properties").write_text(
            f"version=1\nnode.id=2\ncluster.id={cluster}\ndirectory.id=Bz4QkN2vS1m0yXr9TtLw8A\n"
        )
