"""Groups of a running broker: Admin's answers, and clients for protocols that confluent-kafka lacks (for the requests see
kseg.oracle.Groups)."""

from __future__ import annotations

import json
import subprocess
from types import TracebackType
from typing import Any, Self

from tests.kafka import jars

STOP_LIMIT_S = 300.0


class GroupClients:
    """One Java process; use as a context manager."""

    def __init__(self, bootstrap: str) -> None:
        self._bootstrap = bootstrap

    def __enter__(self) -> Self:
        self._process = subprocess.Popen(
            jars.brief_java_command("kseg.oracle.Groups", self._bootstrap),
            env=jars.java_environment(),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            encoding="utf-8",
        )
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait(STOP_LIMIT_S)

    def ask(self, what: str, **values: Any) -> dict[str, Any]:
        """Send a request and return the answer. Raises RuntimeError if the process ended instead."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps({"do": what, **values}) + "\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError(f"kseg.oracle.Groups ended at {what} {values}")
        answer: dict[str, Any] = json.loads(line)
        return answer

    def tool(self, *words: str) -> str:
        """What `kafka-consumer-groups.sh` prints."""
        printed: str = self.ask("tool", words=words)["printed"]
        return printed
