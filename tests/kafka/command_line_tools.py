"""Provide Kafka's command line tools to tests that run printed steps literally: scripts with the tools' names that run the real classes,
and a server.properties.

The classes run in the shared Java process (`shared_java.py`): a script sends its words to the test process, which waits for the step
meanwhile, and prints what the tool has printed. A tool or a broker in a process of its own takes one to three seconds of processor time.
With KSEG_NODE_PROCESSES=1 they have one.
"""

from __future__ import annotations

import os
import shlex
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from tests.kafka import jars, shared_java
from tests.kafka.broker import START_LIMIT_S, STOP_LIMIT_S
from tests.kafka.shared_java import SharedNode, run_java, start_node
from tests.kafka.starting import PlainBroker

_CLASSES = {
    "kafka-storage.sh": "kafka.tools.StorageTool",
    "kafka-topics.sh": "org.apache.kafka.tools.TopicCommand",
}
_LOG, _PID, _PORT = "started.log", "started.pid", "KSEG_TOOLS_PORT"
_START = f"""shift  # -daemon
nohup {{java}} kafka.Kafka "$@" > {_LOG} 2>&1 &
echo $! > {_PID}
for _ in $(seq {START_LIMIT_S * 10:.0f}); do
  grep -q "Kafka Server started" {_LOG} && exit 0
  kill -0 "$(cat {_PID})" || exit 1
  sleep 0.1
done
exit 1"""
_STOP = f"""kill "$(cat {_PID})"
for _ in $(seq {STOP_LIMIT_S * 10:.0f}); do
  kill -0 "$(cat {_PID})" 2> /dev/null || exit 0
  sleep 0.1
done
exit 1"""
# words end with NUL, the request with an empty one; the first line of the answer is the exit status
_SHARED = f"""exec 3<> "/dev/tcp/127.0.0.1/${_PORT}"
printf '%s\\0' "$PWD" {{name}} "$@" "" >&3
read -r status <&3
[ "$status" = 0 ] || exec >&2
cat <&3
exit "$status" """
# nodes that kafka-server-start.sh has started, by the directory in which it was called
_nodes: dict[Path, SharedNode] = {}


def write_tools(root: Path, data: Path, log_dirs: Sequence[Path]) -> str:
    """Write the scripts to root/bin, and root/server.properties for a node with these data directories; returns where clients connect."""
    (root / "bin").mkdir()
    java = shlex.join(jars.brief_java_command("-Dkseg.log.level=INFO"))
    scripts = {name: f'exec {java} {main} "$@"' for name, main in _CLASSES.items()}
    scripts |= {"kafka-server-start.sh": _START.format(java=java), "kafka-server-stop.sh": _STOP}
    for name, lines in scripts.items():
        _script(root / "bin" / name, lines if shared_java.ALWAYS_APART else _SHARED.format(name=name))
    node = PlainBroker(root / "node-of-tools", data, log_dirs=",".join(map(str, log_dirs)))
    node.root.mkdir()
    node._configure()
    (node.root / "server.properties").rename(root / "server.properties")
    return node.bootstrap


def type_in(step: str, root: Path) -> subprocess.CompletedProcess[str]:
    """Run a line of a shell in `root`, with kseg and the scripts in PATH."""
    places = (str(root / "bin"), str(Path(sys.executable).parent), os.environ["PATH"])
    with _serving() as port:
        environment = {**jars.java_environment(), "PATH": os.pathsep.join(places), _PORT: str(port)}
        return subprocess.run(
            step,
            shell=True,
            cwd=root,
            env=environment,
            capture_output=True,
            text=True,
            errors="replace",
            check=False,
        )


@contextmanager
def _serving() -> Iterator[int]:
    """Answer the scripts meanwhile, in a thread. Gives the port."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        thread = threading.Thread(target=_serve, args=(server,))
        thread.start()
        port = server.getsockname()[1]
        try:
            yield port
        finally:
            # a request without words ends the thread
            with socket.create_connection(("127.0.0.1", port)) as last:
                last.sendall(b"\0")
            thread.join()


def _serve(server: socket.socket) -> None:
    while True:
        connection, _ = server.accept()
        with connection, connection.makefile("rb") as file:
            words: list[str] = []
            while word := _word(file.read):
                words.append(word)
            if not words:
                return
            status, printed = _run(Path(words[0]), words[1], words[2:])
            connection.sendall(f"{status}\n{printed}".encode())


def _word(read: Callable[[int], bytes]) -> str:
    data = bytearray()
    while (byte := read(1)) not in (b"", b"\0"):
        data += byte
    return os.fsdecode(bytes(data))


def _run(directory: Path, name: str, words: Sequence[str]) -> tuple[int, str]:
    """Exit status and output of a tool that is called in a directory."""
    if name == "kafka-server-stop.sh":
        node = _nodes.pop(directory)
        node.terminate()
        return node.wait(STOP_LIMIT_S), ""
    # the Java process has another working directory
    absolute = [str(directory / word) if (directory / word).is_file() else word for word in words]
    if name == "kafka-server-start.sh":
        return _start(directory, Path(absolute[1])), ""
    done = run_java(_CLASSES[name], *absolute)
    return done.returncode, done.stdout + done.stderr


def _start(directory: Path, properties: Path) -> int:
    log = directory / _LOG
    log.unlink(missing_ok=True)
    _nodes[directory] = node = start_node(properties, log)
    deadline = time.monotonic() + START_LIMIT_S
    while node.poll() is None and time.monotonic() < deadline:
        if log.exists() and "Kafka Server started" in log.read_text(errors="replace"):
            return 0
        time.sleep(0.1)
    return 1


def _script(path: Path, lines: str) -> None:
    path.write_text(f"#!/bin/bash\n{lines}\n")
    path.chmod(0o755)
