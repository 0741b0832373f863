"""Logs on a web server with directory listings. A listing has no sizes, so each file is requested separately."""

from __future__ import annotations

import io
import json
import os
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import IO

import pytest

from tests.support.forked_programs import ForkedPrograms, forked_programs

pytest.importorskip("aiohttp", reason="aiohttp is not installed: fsspec reads no http:// without it")
# each command is a program that loads an HTTP client
pytestmark = pytest.mark.slow


class Ranges(SimpleHTTPRequestHandler):
    """Serves ranges, as real web servers do and Python's own does not."""

    has_sizes = True

    def send_head(self) -> IO[bytes] | None:  # type: ignore[override]
        path = self.translate_path(self.path)
        if os.path.isdir(path):
            return super().send_head()
        content = Path(path).read_bytes()
        wanted = re.fullmatch(r"bytes=(\d+)-(\d*)", self.headers.get("Range", ""))
        if wanted is None:
            self.send_response(200)
            part = content
        else:
            first, last = int(wanted[1]), int(wanted[2] or len(content) - 1)
            part = content[first : last + 1]
            self.send_response(206)
            self.send_header("Content-Range", f"bytes {first}-{first + len(part) - 1}/{len(content)}")
        self.send_header("Accept-Ranges", "bytes")
        if self.has_sizes or self.command != "HEAD":
            self.send_header("Content-Length", str(len(part)))
        self.send_header("ETag", f'"{len(content)}"')
        self.end_headers()
        return io.BytesIO(part)

    def log_message(self, format: str, *arguments: object) -> None:
        """Log nothing to stderr."""


class NoSizes(Ranges):
    has_sizes = False

    def do_GET(self) -> None:
        if os.path.isdir(self.translate_path(self.path)):
            super().do_GET()
        else:
            self.send_response(200)
            self.end_headers()


@contextmanager
def served(directory: Path, handler: type[SimpleHTTPRequestHandler] = Ranges) -> Iterator[str]:
    def of_directory(*arguments: object) -> SimpleHTTPRequestHandler:
        return handler(*arguments, directory=str(directory))  # type: ignore[arg-type]

    with ThreadingHTTPServer(("127.0.0.1", 0), of_directory) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()


@pytest.fixture(scope="module")
def programs() -> Iterator[ForkedPrograms]:
    with forked_programs("fsspec.implementations.http") as programs:
        yield programs


@pytest.mark.parametrize(
    "words",
    [
        [
            "verify",
            "--json",
            "--jobs",
            "2",
        ],  # a worker is a new process that imports an HTTP client, so only one command has workers
        ["lookup", "--latest", "--json"],
        ["dump", "--print-data-log"],
        ["groups", "--json"],
    ],
    ids=" ".join,
)
def test_reading_commands_give_the_same_output_for_a_web_server(
    programs: ForkedPrograms, words: list[str], capture_small: Path
) -> None:
    with served(capture_small / "data") as url:
        here, there = (
            programs.kseg([*words, place], os.environ) for place in (str(capture_small / "data"), url)
        )
    assert there.returncode == here.returncode, there.stderr
    assert there.stdout.replace(url, str(capture_small / "data")) == here.stdout != ""


def test_web_server_without_sizes_is_an_error(programs: ForkedPrograms, capture_small: Path) -> None:
    with served(capture_small / "data", NoSizes) as url:
        done = programs.kseg(["verify", "--json", f"{url}/metro-none-0"], os.environ)
    assert done.returncode == 3
    rows = [json.loads(line) for line in done.stdout.splitlines()]
    assert not [row for row in rows if row["type"] == "verified"]
    assert "does not report the size of" in done.stderr + done.stdout
