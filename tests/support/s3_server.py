"""An S3 server on loopback, in its own process, that logs what it sends.

    python -m tests.support.s3_server NOTES      prints the port, serves until it is terminated

A line of NOTES is one response: method, path, size of the body. moto implements the protocol over HTTP, ranges, ETags and preconditions
included. A line of NOTES.faults makes later requests fail: a kind from FAULTS, and a part of the path.
"""

from __future__ import annotations

import mmap
import os
import subprocess
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.support.forked_programs import ForkedPrograms, forked_programs
from tests.support.paths import ROOT

BUCKET = "backups"
# moto spools larger objects to a file
LARGE_BYTES = 64 << 20

# status, code and message as S3 sends them; a truncated response ends after half of the body, and the connection is closed
FAULTS = {
    "denied": ("403 Forbidden", "AccessDenied", "Access Denied"),
    "expired": ("400 Bad Request", "ExpiredToken", "The provided token has expired."),
    "wrong-key": (
        "403 Forbidden",
        "SignatureDoesNotMatch",
        "The request signature we calculated does not match the signature you provided.",
    ),
    "overloaded": ("503 Slow Down", "SlowDown", "Please reduce your request rate."),
    "gone": ("404 Not Found", "NoSuchKey", "The specified key does not exist."),
    "cut": None,
}


@dataclass(frozen=True, slots=True)
class S3Server:
    """A running server. client: a boto3 client. environment: lets a program use it as S3."""

    client: Any
    environment: dict[str, str]
    notes: Path
    programs: ForkedPrograms

    def put_tree(self, directory: Path, prefix: str) -> None:
        """Upload all files of a directory as objects."""
        for path in sorted(directory.rglob("*")):
            if path.is_file():
                self.put(f"{prefix}/{path.relative_to(directory)}", path)

    def put(self, key: str, path: Path) -> None:
        with path.open("rb") as body:
            self.client.put_object(Bucket=BUCKET, Key=key, Body=body)

    def answers(self) -> list[tuple[str, str, int]]:
        """(method, path, bytes) of every response so far."""
        lines = [line.split(" ") for line in self.notes.read_text().splitlines()]
        return [(method, path, int(size)) for method, path, size in lines]

    @contextmanager
    def fault(self, kind: str, part: str) -> Iterator[None]:
        """While active, GET requests for paths that contain `part` fail in the given way (FAULTS)."""
        assert kind in FAULTS
        faults = Path(f"{self.notes}.faults")
        faults.write_text(f"{kind} {part}")
        try:
            yield
        finally:
            faults.unlink()

    def kseg(self, *words: str, **more: str) -> subprocess.CompletedProcess[str]:
        """Run the program. more: environment variables. With a PYTHON… variable a new interpreter is started, otherwise a child is
        forked."""
        environment = {**self.environment, **more}
        if not any(name.startswith("PYTHON") for name in more):
            return self.programs.kseg(words, environment)
        command = [sys.executable, "-m", "kseg", *words]
        return subprocess.run(
            command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=600, check=False
        )


@contextmanager
def s3_server(place: Path) -> Iterator[S3Server]:
    """A server with one empty bucket. place: an empty directory for its log, and as a home directory without credentials."""
    import boto3

    notes = place / "answers"
    notes.touch()
    command = [sys.executable, "-m", "tests.support.s3_server", str(notes)]
    server = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    try:
        assert server.stdout is not None
        url = f"http://127.0.0.1:{int(server.stdout.readline())}"
        own = {name: value for name, value in os.environ.items() if not name.startswith(("AWS_", "FSSPEC_"))}
        environment = {
            **own,
            "HOME": str(place),
            "AWS_ENDPOINT_URL": url,
            "AWS_ACCESS_KEY_ID": "key",
            "AWS_SECRET_ACCESS_KEY": "secret",
            "AWS_DEFAULT_REGION": "us-east-1",
            "AWS_EC2_METADATA_DISABLED": "true",
            "AWS_MAX_ATTEMPTS": "1",
        }
        client = boto3.client(
            "s3",
            endpoint_url=url,
            aws_access_key_id="key",
            aws_secret_access_key="secret",
            region_name="us-east-1",
            # checksums of a GiB take seconds in the client and in the server
            config=boto3.session.Config(request_checksum_calculation="when_required"),
        )
        client.create_bucket(Bucket=BUCKET)
        with forked_programs("fsspec", "aiobotocore.session", "tests.support.few_retries") as programs:
            yield S3Server(client, environment, notes, programs)
    finally:
        server.terminate()
        server.communicate(timeout=60)


def _map_large_objects() -> None:
    """Map objects that moto keeps in a file. It would read the complete object for each requested range."""
    from moto.s3.models import FakeKey

    def value(key: Any) -> bytes | mmap.mmap:
        file = key._value_buffer
        if key.contentsize < LARGE_BYTES:
            with key.lock:
                file.seek(0)
                return bytes(file.read())
        return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)

    FakeKey.value = FakeKey.value.getter(value)  # type: ignore[method-assign, attr-defined]  # a property without types


def _serve(notes: str) -> None:
    from moto.moto_server.werkzeug_app import DomainDispatcherApplication, create_backend_app
    from werkzeug.serving import make_server

    _map_large_objects()
    app = DomainDispatcherApplication(create_backend_app)
    log = open(notes, "a", buffering=1)  # noqa: SIM115  (as long as the process)

    def noting(environ: dict[str, Any], start_response: Any) -> Iterable[bytes]:
        sent = 0
        kind = _fault(notes, environ)
        refusal = None if kind is None else FAULTS[kind]
        if refusal is not None:
            status, code, message = refusal
            start_response(status, [("Content-Type", "application/xml")])
            return [f"<Error><Code>{code}</Code><Message>{message}</Message></Error>".encode()]
        parts = list(app(environ, start_response))
        if kind is not None:
            whole = b"".join(parts)
            return [whole[: len(whole) // 2]]
        if environ["REQUEST_METHOD"] != "HEAD":
            sent = sum(map(len, parts))
        log.write(f"{environ['REQUEST_METHOD']} {environ['PATH_INFO']} {sent}\n")
        return parts

    server = make_server("127.0.0.1", 0, noting, threaded=True)
    print(server.server_address[1], flush=True)
    server.serve_forever()


def _fault(notes: str, environ: dict[str, Any]) -> str | None:
    try:
        kind, _, part = Path(f"{notes}.faults").read_text().partition(" ")
    except FileNotFoundError:
        return None
    return kind if environ["REQUEST_METHOD"] == "GET" and part in environ["PATH_INFO"] else None


if __name__ == "__main__":
    _serve(sys.argv[1])
