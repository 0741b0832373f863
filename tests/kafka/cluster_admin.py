"""Use the real Admin client on a broker of the tests: make changes, and describe the cluster as rows of `kseg metadata --json`."""

from __future__ import annotations

import json
from typing import Any

from tests.kafka.shared_java import SharedTool


class ClusterAdmin:
    """The real Admin client for all requests. settings: of the client, in addition to its bootstrap servers."""

    def __init__(self, bootstrap: str, **settings: str) -> None:
        self._tool = SharedTool("kseg.oracle.ClusterAdmin")
        named = {name.replace("_", "."): value for name, value in settings.items()}
        self._tool.tell(json.dumps({"bootstrap.servers": bootstrap, **named}) if named else bootstrap)

    def do(self, *request: Any) -> dict[str, Any]:
        answer: dict[str, Any] = json.loads(self._tool.ask(json.dumps(request)))
        return answer

    def close(self) -> None:
        self._tool.close()
