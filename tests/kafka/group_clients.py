"""Groups of a running broker: Admin's answers, and clients for protocols that confluent-kafka lacks (for the requests see
kseg.oracle.Groups)."""

from __future__ import annotations

import json
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from tests.kafka.broker import Broker
from tests.kafka.shared_java import SharedTool


def share_broker(root: Path, data: Path | None = None) -> Broker:
    """A broker whose share groups lose members that are gone sooner than after 45 seconds."""
    return Broker(
        root / "broker",
        data,
        group_share_session_timeout_ms="3000",
        group_share_min_session_timeout_ms="3000",
        group_share_heartbeat_interval_ms="500",
        group_share_min_heartbeat_interval_ms="500",
    )


class GroupClients:
    """Use as a context manager. is_apart: in a process of their own. That takes a member of a share group, which stays in it until its
    process ends, and a tool that is given a file by a name relative to the working directory."""

    def __init__(self, bootstrap: str, *, is_apart: bool = False) -> None:
        self._bootstrap = bootstrap
        self._is_apart = is_apart

    def __enter__(self) -> Self:
        self._tool = SharedTool("kseg.oracle.Groups", self._bootstrap, is_apart=self._is_apart)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._tool.close()

    def ask(self, what: str, **values: Any) -> dict[str, Any]:
        """Send a request and return the answer. Raises RuntimeError if the clients ended instead."""
        assert what != "share" or self._is_apart
        answer: dict[str, Any] = json.loads(self._tool.ask(json.dumps({"do": what, **values})))
        return answer

    def tool(self, *words: str) -> str:
        """What `kafka-consumer-groups.sh` prints."""
        printed: str = self.ask("tool", words=words)["printed"]
        return printed
