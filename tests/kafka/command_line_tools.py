"""Provide Kafka's command line tools to tests that run printed steps literally: scripts with the tools' names that run the real classes,
and a server.properties."""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path

from tests.kafka import jars
from tests.kafka.broker import START_LIMIT_S, STOP_LIMIT_S
from tests.kafka.starting import PlainBroker

_CLASSES = {
    "kafka-storage.sh": "kafka.tools.StorageTool",
    "kafka-topics.sh": "org.apache.kafka.tools.TopicCommand",
}
_LOG, _PID = "started.log", "started.pid"
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


def write_tools(root: Path, data: Path, log_dirs: Sequence[Path]) -> str:
    """Write the scripts to root/bin, and root/server.properties for a node with these data directories; returns where clients connect."""
    (root / "bin").mkdir()
    java = shlex.join(jars.brief_java_command("-Dkseg.log.level=INFO"))
    for name, main in _CLASSES.items():
        _script(root / "bin" / name, f'exec {java} {main} "$@"')
    _script(root / "bin" / "kafka-server-start.sh", _START.format(java=java))
    _script(root / "bin" / "kafka-server-stop.sh", _STOP)
    node = PlainBroker(root / "node-of-tools", data, log_dirs=",".join(map(str, log_dirs)))
    node.root.mkdir()
    node._configure()
    (node.root / "server.properties").rename(root / "server.properties")
    return node.bootstrap


def environment_for(root: Path) -> dict[str, str]:
    """An environment with kseg and the scripts in PATH."""
    places = (str(root / "bin"), str(Path(sys.executable).parent), os.environ["PATH"])
    return {**jars.java_environment(), "PATH": os.pathsep.join(places)}


def _script(path: Path, lines: str) -> None:
    path.write_text(f"#!/bin/bash\n{lines}\n")
    path.chmod(0o755)
