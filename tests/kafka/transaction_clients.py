"""Transactions of a running broker: producers of Kafka's own client and Admin's answers (kseg.oracle.Transactions), batches that no client
would send, and `kafka-transactions.sh`."""

from __future__ import annotations

import json
import socket
import struct
from collections.abc import Sequence
from types import TracebackType
from typing import Any, Self

from tests.kafka.shared_java import SharedTool, run_java

_PRODUCE, _VERSION = 0, 7
_LIMIT_S = 300.0
# the client id that may write to internal topics (KafkaApis)
INTERNAL = "__admin_client"


class TransactionClients:
    """A context manager for the Java clients."""

    def __init__(self, bootstrap: str) -> None:
        self._tool = SharedTool("kseg.oracle.Transactions", bootstrap)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._tool.close()

    def ask(self, *request: Any) -> dict[str, Any]:
        """Send a request and return its answer."""
        answer: dict[str, Any] = json.loads(self._tool.ask(json.dumps(request)))
        return answer


def tool(bootstrap: str, *words: str) -> list[list[str]]:
    """The rows that `kafka-transactions.sh` prints, without the header."""
    done = run_java("org.apache.kafka.tools.TransactionsCommand", "--bootstrap-server", bootstrap, *words)
    assert done.returncode == 0, done.stdout + done.stderr
    return [line.split() for line in done.stdout.splitlines()[1:] if line.strip()]


def produce_raw(bootstrap: str, topic: str, partition: int, batches: bytes, client_id: str = "raw") -> None:
    """Send a produce request with exactly these batches and acks=all. Raises AssertionError with the broker's error code."""
    body = _text("raw") + struct.pack(">hi", -1, 10_000)
    body += struct.pack(">i", 1) + _text(topic) + struct.pack(">ii", 1, partition)
    body += struct.pack(">i", len(batches)) + batches
    request = struct.pack(">hhi", _PRODUCE, _VERSION, 1) + _text(client_id) + body
    host, _, port = bootstrap.rpartition(":")
    with socket.create_connection((host, int(port)), _LIMIT_S) as connection:
        connection.sendall(struct.pack(">i", len(request)) + request)
        (size,) = struct.unpack(">i", _exactly(connection, 4))
        answer = _exactly(connection, size)
    # correlation id, one topic with its name, one partition: index, error code, base offset, …
    at = 4 + 4 + 2 + len(topic.encode()) + 4 + 4
    (error,) = struct.unpack_from(">h", answer, at)
    assert error == 0, error


def _text(text: str) -> bytes:
    data = text.encode()
    return struct.pack(">h", len(data)) + data


def _exactly(connection: socket.socket, count: int) -> bytes:
    data = b""
    while len(data) < count:
        more = connection.recv(count - len(data))
        assert more, "the broker closed the connection"
        data += more
    return data


def words_of(command: str) -> Sequence[str]:
    """The words of a printed `kafka-transactions.sh` line after its bootstrap servers."""
    head = "kafka-transactions.sh --bootstrap-server HOST:PORT "
    assert command.startswith(head), command
    return command.removeprefix(head).split()
