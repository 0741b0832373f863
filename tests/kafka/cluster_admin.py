"""Use the real Admin client on a broker of the tests: make changes, and describe the cluster as rows of `kseg metadata --json`."""

from __future__ import annotations

import json
import subprocess
from typing import Any

from tests.kafka import jars


class ClusterAdmin:
    """The real Admin client: one Java process for all requests. settings: of the client, in addition to its bootstrap servers."""

    def __init__(self, bootstrap: str, **settings: str) -> None:
        self._process = subprocess.Popen(
            jars.brief_java_command("kseg.oracle.ClusterAdmin"),
            env=jars.java_environment(),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        named = {name.replace("_", "."): value for name, value in settings.items()}
        self._write(json.dumps({"bootstrap.servers": bootstrap, **named}) if named else bootstrap)

    def do(self, *request: Any) -> dict[str, Any]:
        self._write(json.dumps(request))
        assert self._process.stdout is not None
        answer: dict[str, Any] = json.loads(self._process.stdout.readline())
        return answer

    def close(self) -> None:
        self._process.communicate(timeout=600)

    def _write(self, line: str) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(line + "\n")
        self._process.stdin.flush()
