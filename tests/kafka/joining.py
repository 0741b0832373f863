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

    def _configure(self) -> None:
        super()._configure()
        (voters,) = re.findall(
            r"^controller.quorum.voters=.*$",
            (self._first.root / "server.properties").read_text(),
            re.MULTILINE,
        )
        place = f"PLAINTEXT://{self.bootstrap}"
        properties = self.root / "server.properties"
        own = "".join(
            f"{line}\n"
            for line in properties.read_text().splitlines()
            if not line.startswith(("controller.quorum.voters=", "process.roles=", "node.id=", "listeners="))
        )
        properties.write_text(f"{own}process.roles=broker\nnode.id=2\nlisteners={place}\n{voters}\n")

    def _format(self) -> None:
        """Format as `kafka-storage.sh format` does for a broker without a controller."""
        self.data.mkdir(parents=True, exist_ok=True)
        (cluster,) = re.findall(
            r"^cluster\.id=(.*)$", (self._first.data / "meta.properties").read_text(), re.MULTILINE
        )
        (self.data / "meta.properties").write_text(
            f"version=1\nnode.id=2\ncluster.id={cluster}\ndirectory.id=Bz4QkN2vS1m0yXr9TtLw8A\n"
        )
