"""Nodes that share one Java process (kseg.oracle.Nodes), in which the classes of Kafka are loaded and compiled once.

A broker of a process of its own takes 1.5 s of processor time to start, and one in a process that has started another 0.2 s. Such a node
can be stopped, and it may end by itself with an exit or a halt, but it cannot be killed or frozen: that takes a process of its own
(`Broker.apart`). So does a test of the lock on a data directory: a process loses its lock on a file (fcntl) as soon as it closes any
descriptor of it, and a node that could not start closes its own some time later. KSEG_NODE_PROCESSES=1 gives one to each node.
"""

from __future__ import annotations

import atexit
import os
import select
import subprocess
import time
from pathlib import Path

from tests.kafka import jars

ALWAYS_APART = bool(os.environ.get("KSEG_NODE_PROCESSES"))
# what those that ended by themselves left in memory goes with the process
NODES_PER_PROCESS = 60
END_LIMIT_S = 120.0
_JVM = (
    "-Xmx1g",
    "-Dkseg.log.level=INFO",
    "-Dlog4j2.isThreadContextMapInheritable=true",  # by it a thread knows its node
)
_current: list[_Java] = []


class SharedNode:
    """One node, with those methods of Popen that `Broker` calls."""

    def __init__(self, java: _Java, name: str) -> None:
        self._java = java
        self.name = name
        self.returncode: int | None = None

    def poll(self) -> int | None:
        """The status with which it has ended, if it has."""
        self._java.read_events(0.0)
        return self.returncode

    def wait(self, limit_s: float | None = None) -> int:
        """Its status, once it has ended. Raises TimeoutExpired."""
        deadline = None if limit_s is None else time.monotonic() + limit_s
        while self.poll() is None:
            left_s = None if deadline is None else deadline - time.monotonic()
            if left_s is not None and left_s <= 0:
                raise subprocess.TimeoutExpired(f"node {self.name}", limit_s or 0.0)
            self._java.read_events(left_s)
        assert self.returncode is not None
        return self.returncode

    def terminate(self) -> None:
        """A clean stop."""
        self._java.command("stop", self.name)

    def kill(self) -> None:
        """Log nothing more. It closes its files, and writes as a stop does."""
        self._java.command("abandon", self.name)


class _Java:
    def __init__(self) -> None:
        self.owner = os.getpid()
        self._errors = jars.TARGET / f"nodes-{os.getpid()}.err"
        self._archive = jars.TARGET / f"nodes-{os.getpid()}.jsa"
        self._makes_archive = not jars.ARCHIVE.exists()
        archive = [f"-XX:ArchiveClassesAtExit={self._archive}"] if self._makes_archive else []
        with self._errors.open("wb") as errors:
            self._process = subprocess.Popen(
                jars.brief_java_command(*archive, *_JVM, "kseg.oracle.Nodes"),
                env=jars.java_environment(),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                bufsize=0,
            )
        self._nodes: list[SharedNode] = []
        self._unread = b""

    @property
    def is_spent(self) -> bool:
        """Whether a next node is to have another process."""
        limit = 1 if self._makes_archive else NODES_PER_PROCESS
        return len(self._nodes) >= limit and all(node.poll() is not None for node in self._nodes)

    def start(self, properties: Path, log: Path) -> SharedNode:
        node = SharedNode(self, str(len(self._nodes)))
        self._nodes.append(node)
        self.command("start", node.name, str(properties), str(log))
        return node

    def command(self, *words: str) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write("\t".join(words).encode() + b"\n")

    def read_events(self, limit_s: float | None) -> None:
        """What has ended, waiting for a first event up to a limit."""
        stdout = self._process.stdout
        assert stdout is not None
        while select.select([stdout], [], [], limit_s)[0]:
            data = stdout.read(4096)
            if not data:
                raise RuntimeError(f"the process of the nodes died\n{self._errors.read_text()[-6000:]}")
            *lines, self._unread = (self._unread + data).split(b"\n")
            for name, status in (line.split() for line in lines):
                self._nodes[int(name)].returncode = int(status)
            limit_s = 0.0

    def end(self) -> None:
        assert self._process.stdin is not None and self._process.stdout is not None
        self.command("leave")  # a process that was forked meanwhile may have its stdin too
        try:
            self._process.wait(END_LIMIT_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._process.stdin.close()
        self._process.stdout.close()
        self._errors.unlink()
        if self._archive.exists():  # made on its way out
            self._archive.replace(jars.ARCHIVE)


def start_node(properties: Path, log: Path) -> SharedNode:
    """Start one in the process of this test process."""
    if _current and _current[0].is_spent:
        end_nodes()
    if not _current:
        _current.append(_Java())
    return _current[0].start(properties, log)


@atexit.register
def end_nodes() -> None:
    """End the process, if there is one of this test process."""
    while _current and _current[-1].owner == os.getpid():
        _current.pop().end()
