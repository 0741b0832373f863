"""Run nodes in one shared Java process (kseg.oracle.Nodes), in which Kafka's classes are loaded and compiled once.

A broker in a process of its own takes 1.5 s of processor time to start, one in a process that has started another takes 0.2 s. Such a node
can be stopped, and it may end by itself with an exit or a halt, but it cannot be frozen, nor killed while others are at work: that takes a
process of its own (`Broker.apart`). So does a start on a data directory that another process has locked, because a process loses its lock
on a file (fcntl) as soon as it closes any descriptor of it, and a node that failed to start closes its descriptor some time later.
KSEG_NODE_PROCESSES=1 gives each node its own process.

Kafka's tools and the classes around its clients run there as well (`run_java`, `SharedTool`): a client in a process of its own spends one
to three seconds of processor time on what has been loaded and compiled in the shared one.
"""

from __future__ import annotations

import atexit
import os
import select
import signal
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import IO

from tests.kafka import jars

ALWAYS_APART = bool(os.environ.get("KSEG_NODE_PROCESSES"))
# nodes that exited by themselves leak memory, which ends with the process
NODES_PER_PROCESS = 60
END_LIMIT_S = 120.0
TOOL_LIMIT_S = 300.0
_JVM = (
    "-Xmx1g",
    "-Dkseg.log.level=INFO",
    # tells a thread which node it belongs to
    "-Dlog4j2.isThreadContextMapInheritable=true",
)
_current: list[_Java] = []


class SharedNode:
    """One node, with the methods of Popen that `Broker` calls."""

    def __init__(self, java: _Java, name: str) -> None:
        self._java = java
        self.name = name
        self.returncode: int | None = None

    def poll(self) -> int | None:
        """The exit status, or None while the node runs."""
        self._java.read_events(0.0)
        return self.returncode

    def wait(self, limit_s: float | None = None) -> int:
        """The exit status, once the node has ended. Raises TimeoutExpired."""
        deadline = None if limit_s is None else time.monotonic() + limit_s
        while self.poll() is None:
            left_s = None if deadline is None else deadline - time.monotonic()
            if left_s is not None and left_s <= 0:
                raise subprocess.TimeoutExpired(f"node {self.name}", limit_s or 0.0)
            self._java.read_events(left_s)
        assert self.returncode is not None
        return self.returncode

    def terminate(self) -> None:
        """Stop the node cleanly."""
        self._java.command("stop", self.name)

    def kill(self) -> None:
        """Suppress further log output. The node closes its files and writes as in a stop."""
        self._java.command("abandon", self.name)

    def frozen(self) -> AbstractContextManager[None]:
        """Stop the Java process with all of its nodes meanwhile, so that no thread of them writes."""
        return self._java.frozen()


class _ToolFiles:
    """Where a tool reads its input and writes its output."""

    def __init__(self) -> None:
        self._stem = jars.TARGET / f"tool-{os.getpid()}-{time.monotonic_ns()}"
        self.stdin, self.stdout, self.stderr = (
            self._stem.with_suffix(f".{name}") for name in ("in", "out", "err")
        )

    def remove(self) -> None:
        for path in (self.stdin, self.stdout, self.stderr):
            path.unlink(missing_ok=True)


def run_java(
    *words: str, stdin: str | bytes = "", limit_s: float = TOOL_LIMIT_S
) -> subprocess.CompletedProcess[str]:
    """Run the main of a class that ends by itself. words: the class and its arguments. Raises TimeoutExpired."""
    given = stdin.encode() if isinstance(stdin, str) else stdin
    if ALWAYS_APART:
        command = jars.brief_java_command(*words)
        done = subprocess.run(
            command,
            env=jars.java_environment(),
            input=given,
            capture_output=True,
            check=False,
            timeout=limit_s,
        )
        return subprocess.CompletedProcess(words, done.returncode, done.stdout.decode(), done.stderr.decode())
    jars.class_path()
    files = _ToolFiles()
    try:
        files.stdin.write_bytes(given)
        status = _java().run(files, words).wait(limit_s)
        return subprocess.CompletedProcess(
            words, status, files.stdout.read_text("utf-8"), files.stderr.read_text("utf-8")
        )
    finally:
        files.remove()


class SharedTool:
    """The main of a class that answers line by line until its stdin ends. words: the class and its arguments. is_apart: in a process of its
    own."""

    def __init__(self, *words: str, is_apart: bool = False) -> None:
        self._process: subprocess.Popen[str] | SharedNode
        self._stdin: IO[str] | None
        self._stdout: IO[str] | None
        self._words = words
        self._files = _ToolFiles()
        if is_apart or ALWAYS_APART:
            self._process = subprocess.Popen(
                jars.brief_java_command(*words),
                env=jars.java_environment(),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
                encoding="utf-8",
            )
            self._stdin, self._stdout = self._process.stdin, self._process.stdout
            return
        jars.class_path()
        for pipe in (self._files.stdin, self._files.stdout):
            os.mkfifo(pipe)
        self._process = _java().run(self._files, words)
        # each waits for the other side, which opens them in the same order
        self._stdin = self._files.stdin.open("w", encoding="utf-8")
        self._stdout = self._files.stdout.open(encoding="utf-8")

    def ask(self, line: str) -> str:
        """Send a line and return the answer. Raises RuntimeError if the tool ended instead."""
        self.tell(line)
        assert self._stdout is not None
        answer = self._stdout.readline()
        if not answer:
            said = self._files.stderr.read_text()[-4000:] if self._files.stderr.exists() else ""
            raise RuntimeError(f"{self._words[0]} ended at {line}\n{said}")
        return answer

    def tell(self, line: str) -> None:
        """Send a line that is not answered."""
        assert self._stdin is not None
        self._stdin.write(line + "\n")
        self._stdin.flush()

    def close(self) -> None:
        """End its stdin, and wait until the tool has ended."""
        assert self._stdin is not None and self._stdout is not None
        try:
            self._stdin.close()
            self._process.wait(TOOL_LIMIT_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            raise
        finally:
            self._stdout.close()
            self._files.remove()


class _Java:
    def __init__(self) -> None:
        self.owner = os.getpid()
        self._errors = jars.TARGET / f"nodes-{os.getpid()}.err"
        self._archive = jars.TARGET / f"nodes-{os.getpid()}.jsa"
        self._claim = jars.claim_archive()
        archive = [] if self._claim is None else [f"-XX:ArchiveClassesAtExit={self._archive}"]
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
        self._brokers = 0
        self._unread = b""

    @property
    def is_spent(self) -> bool:
        """Whether the next node should get another process."""
        limit = NODES_PER_PROCESS if self._claim is None else 1
        return self._brokers >= limit and all(node.poll() is not None for node in self._nodes)

    def start(self, properties: Path, log: Path) -> SharedNode:
        node = self._node()
        self._brokers += 1
        self.command("start", node.name, str(properties), str(log))
        return node

    def run(self, files: _ToolFiles, words: Sequence[str]) -> SharedNode:
        node = self._node()
        assert not any("\t" in word or "\n" in word for word in words)
        self.command("run", node.name, *map(str, (files.stdin, files.stdout, files.stderr)), *words)
        return node

    def _node(self) -> SharedNode:
        node = SharedNode(self, str(len(self._nodes)))
        self._nodes.append(node)
        return node

    def command(self, *words: str) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write("\t".join(words).encode() + b"\n")

    def read_events(self, limit_s: float | None) -> None:
        """Record which nodes have ended, waiting for the first event up to a limit."""
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

    @contextmanager
    def frozen(self) -> Iterator[None]:
        """Also in the middle of a call: what its threads have written is what a SIGKILL at this moment would leave."""
        self._process.send_signal(signal.SIGSTOP)
        try:
            os.waitid(os.P_PID, self._process.pid, os.WSTOPPED | os.WNOWAIT)
            yield
        finally:
            self._process.send_signal(signal.SIGCONT)

    def end(self) -> None:
        assert self._process.stdin is not None and self._process.stdout is not None
        # closing stdin does not suffice: a process that was forked meanwhile may have it open as well
        self.command("leave")
        try:
            self._process.wait(END_LIMIT_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._process.stdin.close()
        self._process.stdout.close()
        self._errors.unlink()
        # written when the process exits
        if self._archive.exists():
            self._archive.replace(jars.ARCHIVE)
        if self._claim is not None:
            self._claim.close()


def start_node(properties: Path, log: Path) -> SharedNode:
    """Start a node in the Java process of this test process."""
    if _current and _current[0].is_spent:
        end_nodes()
    return _java().start(properties, log)


def _java() -> _Java:
    if not _current:
        _current.append(_Java())
    return _current[0]


@atexit.register
def end_nodes() -> None:
    """End the Java process of this test process, if there is one."""
    while _current and _current[-1].owner == os.getpid():
        _current.pop().end()
