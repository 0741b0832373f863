"""Logs in a bucket: the reading commands give the same answers as for the uploaded directory, and a lookup reads next to nothing."""

from __future__ import annotations

import json
import os
import shutil
import socket
import struct
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kseg.segment.crc import crc32c
from kseg.segment.encoding.batch import encode_batch
from kseg.segment.model import NewBatch, Record
from tests.support.archives import tar_of
from tests.support.paths import ROOT
from tests.support.s3_server import BUCKET, S3Server, s3_server
from tests.support.tiered import upload

pytest.importorskip("moto.server", reason="moto is not installed: no S3 server")
pytest.importorskip("pyarrow")
pytest.importorskip("s3fs", reason="s3fs is not installed: kseg[remote]")
# each command is a program that loads an S3 client
pytestmark = pytest.mark.slow

URL = f"s3://{BUCKET}/kafka"
# a worker is a new process that imports an S3 client, which takes longer than most commands; so one command has workers here, and one below
COMMANDS = (
    ["list", "--topic", "*"],
    ["verify", "--json", "--jobs", "2"],
    ["dump", "--print-data-log", "--topic", "metro-*"],
    ["lookup", "--latest", "--json"],
    ["lookup", "--offset", "90", "--topic", "fares", "--explain", "--json"],
    ["read", "--offset", "0", "--topic", "fares", "--json"],
    ["groups", "--json"],
    ["metadata"],
    ["transactions", "--json"],
)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    with s3_server(tmp_path_factory.mktemp("s3")) as server:
        yield server


@pytest.fixture(scope="module")
def data(capture_small: Path, server: S3Server, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A data directory with a damaged log, which is also in the bucket."""
    data = Path(shutil.copytree(capture_small / "data", tmp_path_factory.mktemp("bucket") / "data"))
    log = data / "metro-none-0" / "00000000000000000000.log"
    content = bytearray(log.read_bytes())
    content[700] ^= 1
    log.write_bytes(content)
    server.put_tree(data, "kafka")
    return data


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_reading_commands_give_the_same_output_for_a_bucket(
    server: S3Server, data: Path, command: list[str]
) -> None:
    here = server.kseg(*command, str(data))
    there = server.kseg(*command, URL)
    assert there.returncode == here.returncode, there.stderr
    assert _without_next_command(there.stdout.replace(URL, str(data))) == _without_next_command(here.stdout)
    assert _without_next_command(there.stderr.replace(URL, str(data))) == _without_next_command(here.stderr)


def _without_next_command(text: str) -> list[str]:
    return [line for line in text.splitlines() if not line.startswith("next: ")]


def test_single_objects_and_partitions_of_a_bucket_can_be_given(server: S3Server, data: Path) -> None:
    for path in (
        "fares-0",
        "fares-0/",
        "fares-0/00000000000000000000.log",
        "fares-0/00000000000000000000.index",
    ):
        reported = server.kseg("dump", f"{URL}/{path}")
        assert reported.returncode == 0, reported.stderr
        assert reported.stdout


@pytest.mark.parametrize("name", ["b.tar", "b.tar.zst"])
def test_archive_in_a_bucket_is_read_like_a_directory(
    server: S3Server, data: Path, tmp_path: Path, name: str
) -> None:
    server.put(f"archives/{name}", tar_of(data, tmp_path / name))
    url = f"s3://{BUCKET}/archives/{name}/data"
    here, there = server.kseg("verify", str(data)), server.kseg("verify", url)
    assert there.returncode == here.returncode == 1, there.stderr
    assert _without_next_command(there.stdout.replace(url, str(data))) == _without_next_command(here.stdout)
    assert "next: kseg recover" in here.stdout and "kseg recover" not in there.stdout


@pytest.mark.parametrize("jobs", ["1", "2"])
def test_export_reads_a_bucket(server: S3Server, data: Path, tmp_path: Path, jobs: str) -> None:
    written = []
    for name, path in (("from-disk", str(data)), ("from-bucket", URL)):
        output = str(tmp_path / name)
        command = [
            "export",
            *["--to", "csv", "--no-meta", "--topic", "metro-*", "--partition-by", "topic", "--jobs"],
            jobs,
        ]
        reported = server.kseg(*command, "--output", output, path)
        # status 1, because one log is damaged
        assert reported.returncode == 1, reported.stderr
        written.append({file.parent.name: file.read_bytes() for file in Path(output).rglob("*.csv")})
    assert len(written[0]) == 5
    assert written[0] == written[1]


@pytest.mark.parametrize("compression", [True, False])
def test_segments_uploaded_by_a_tiered_storage_plugin_are_read(
    server: S3Server, data: Path, tmp_path: Path, compression: bool
) -> None:
    upload(data / "metro-zstd-0", tmp_path / "tiered", compression=compression)
    server.put_tree(tmp_path / "tiered", f"tiered-{compression}")
    url = f"tiered:s3://{BUCKET}/tiered-{compression}/metro-zstd-0"
    command = ["dump", "--print-data-log", "--json"]
    log = "00000000000000000000.log"
    here, there = (
        server.kseg(*command, str(data / "metro-zstd-0" / log)),
        server.kseg(*command, f"{url}/{log}"),
    )
    assert there.returncode == here.returncode == 0, there.stderr
    assert there.stdout.replace(url, str(data / "metro-zstd-0")) == here.stdout
    reported = server.kseg("verify", "--jobs", "2", url)
    assert reported.returncode == 0, reported.stderr


# --- what is wrong with a bucket


def test_missing_bucket_or_object_is_reported(server: S3Server, data: Path) -> None:
    reported = server.kseg("list", "s3://no-such-bucket/kafka")
    assert (reported.returncode, reported.stdout) == (3, "")
    assert (
        reported.stderr
        == "kseg: cannot read s3://no-such-bucket/kafka: there is no bucket s3://no-such-bucket\n"
    )
    reported = server.kseg("list", f"s3://{BUCKET}/nothing")
    assert reported.returncode == 3
    assert reported.stderr == f"kseg: cannot read s3://{BUCKET}/nothing: No such file or directory\n"


def test_missing_credentials_are_reported_in_one_sentence(server: S3Server) -> None:
    environment = {name: value for name, value in server.environment.items() if "KEY" not in name}
    reported = subprocess.run(
        [sys.executable, "-m", "kseg", "list", URL],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert reported.returncode == 3
    assert reported.stderr.startswith(
        f"kseg: cannot read {URL}: no credentials for s3://{BUCKET} were found ("
    )
    assert reported.stderr.count("\n") == 1


def test_unreachable_store_is_reported_in_one_sentence(server: S3Server) -> None:
    with socket.socket() as unused:
        # where nothing listens
        unused.bind(("127.0.0.1", 0))
        endpoint = f"http://127.0.0.1:{unused.getsockname()[1]}"
        reported = server.kseg("list", URL, AWS_ENDPOINT_URL=endpoint)
    assert reported.returncode == 3
    assert reported.stderr.startswith(f"kseg: cannot read {URL}: s3://{BUCKET} cannot be reached (")
    assert reported.stderr.count("\n") == 1


def test_unknown_scheme_and_missing_package_are_reported(server: S3Server) -> None:
    reported = server.kseg("list", "nope://bucket/kafka")
    assert (reported.returncode, reported.stderr.count("\n")) == (2, 1)
    assert reported.stderr.startswith("kseg: nope://bucket cannot be read: Protocol not known: nope")
    reported = server.kseg("list", "s3://a/b::simplecache://c")
    assert reported.returncode == 2 and "chained URLs are not supported" in reported.stderr


def test_missing_remote_extra_says_what_to_install(server: S3Server, tmp_path: Path) -> None:
    for missing in ("fsspec", "s3fs"):
        hidden = tmp_path / missing
        hidden.mkdir()
        (hidden / f"{missing}.py").write_text(f'raise ImportError("No module named {missing}")')
        reported = server.kseg("list", URL, PYTHONPATH=str(hidden))
        assert reported.returncode == 3
        assert "pip install 'kseg[remote]'" in reported.stderr
        assert reported.stderr.count("\n") == 1


REFUSALS = {
    "denied": "s3://backups refuses access (Access Denied)",
    "expired": "s3://backups refuses access (The provided token has expired)",
    "wrong-key": "s3://backups refuses access (The request signature we calculated does not match",
    "overloaded": "s3://backups answers with an error (Please reduce your request rate)",
    "gone": "the object was deleted after it was listed; start again",
    "cut": "s3://backups cannot be reached (",
}
# how the store refuses does not depend on whether a worker or this process reads, so only two kinds are tried in workers: with and without
# an answer
IN_WORKERS = {"denied", "cut"}


@pytest.fixture(scope="module")
def two_topics(data: Path, server: S3Server, tmp_path_factory: pytest.TempPathFactory) -> str:
    """The URL of the data directory with only two of its topics, because the forecast of a start reads everything."""
    few = Path(
        shutil.copytree(
            data,
            tmp_path_factory.mktemp("few") / "data",
            ignore=shutil.ignore_patterns("metro-[!z]*", "stations-*", "__consumer*", "__share*", "__trans*"),
        )
    )
    server.put_tree(few, "two-topics")
    return f"s3://{BUCKET}/two-topics"


@pytest.mark.parametrize("kind", REFUSALS)
def test_object_that_the_store_refuses_is_not_damaged(server: S3Server, two_topics: str, kind: str) -> None:
    """If one log cannot be read, requests about the others are answered, and exit status 5 says that one failed."""
    log = "fares-0/00000000000000000068.log"
    sentence = f"kseg: cannot read {two_topics}/{log}: {REFUSALS[kind]}"
    jobs = "2" if kind in IN_WORKERS else "1"
    with server.fault(kind, f"/two-topics/{log}"):
        reported = server.kseg(
            "verify", "--json", "--jobs", jobs, "--topic", "fares", "--topic", "metro-zstd", two_topics
        )
    assert reported.returncode == 5
    rows = [json.loads(line) for line in reported.stdout.splitlines()]
    (failure,) = (row for row in rows if row["type"] == "error")
    assert failure["message"].startswith(sentence.removeprefix("kseg: "))
    assert [row["id"] for row in rows if row["type"] == "finding" and row["severity"] == "error"] == []
    assert reported.stderr.startswith(sentence) and "Traceback" not in reported.stderr


@pytest.mark.parametrize("kind", ["denied", "gone", "cut"])
def test_every_command_continues_without_a_refused_object(
    server: S3Server, two_topics: str, tmp_path: Path, kind: str
) -> None:
    log = "fares-0/00000000000000000068.log"
    sentence = f"kseg: cannot read {two_topics}/{log}: {REFUSALS[kind]}"
    with server.fault(kind, f"/two-topics/{log}"):
        reported = server.kseg("verify", "--topic", "fares", "--topic", "metro-zstd", two_topics)
        assert reported.stderr.count("cannot read") == 1
        assert (
            f"next: kseg verify --topic fares --topic metro-zstd {two_topics}/fares-0"
            in reported.stdout + reported.stderr
        )

        # the forecast of the start reads the same object
        reported = server.kseg("verify", two_topics)
        assert reported.stderr.count(sentence) == 1

        # and so do the indexes of the log
        reported = server.kseg("dump", "--topic", "fares", two_topics)
        assert reported.returncode == 5 and reported.stderr.count(sentence) == 1
        assert f"next: kseg dump --topic fares {two_topics}/fares-0" in reported.stderr + reported.stdout

        output = tmp_path / "out"
        reported = server.kseg("export", "--to", "json", "--topic", "fares", "--topic", "metro-zstd", "--output", str(output), two_topics)  # fmt: skip
        assert reported.returncode == 5 and reported.stderr.startswith(sentence)
        (written,) = output.rglob("*.json*")
        # all of metro-zstd, and no incomplete file
        assert len(written.read_text().splitlines()) == 160

        reported = server.kseg("lookup", "--offset", "70", f"{two_topics}/fares-0")
        assert (reported.returncode, reported.stdout) == (3, "") and reported.stderr.startswith(sentence)


@pytest.mark.parametrize("kind", sorted({*REFUSALS} - {"gone"}))
def test_store_that_refuses_everything_is_reported_in_one_sentence(
    server: S3Server, data: Path, kind: str
) -> None:
    with server.fault(kind, ""):
        reported = server.kseg("verify", URL)
    assert (reported.returncode, reported.stdout) == (3, "")
    assert reported.stderr.startswith(f"kseg: cannot read {URL}: {REFUSALS[kind]}")
    assert reported.stderr.count("\n") == 1


_REPLACED = """
import os, sys
from kseg.segment.files import MappedFile
from kseg.segment.storage import places
import boto3
url, bucket, key = sys.argv[1:]
places.given(url)
client = boto3.client("s3")
with MappedFile(url, random_access=True) as file:
    assert file.is_in_part
    file.need(0, 100)
    client.put_object(Bucket=bucket, Key=key, Body=b"y" * file.size_bytes)
    file.need(500_000, 500_100)
"""


def test_object_replaced_while_it_is_read_is_reported(server: S3Server, tmp_path: Path) -> None:
    (tmp_path / "log").write_bytes(b"x" * 1_000_000)
    server.put("changing/00000000000000000000.log", tmp_path / "log")
    url = f"s3://{BUCKET}/changing/00000000000000000000.log"
    command = [sys.executable, "-c", _REPLACED, url, BUCKET, "changing/00000000000000000000.log"]
    reported = subprocess.run(
        command, cwd=ROOT, env=server.environment, capture_output=True, text=True, check=False
    )
    assert reported.stderr.splitlines()[-1].startswith(
        f"kseg.segment.errors.OutOfReach: cannot read {url}: the object was replaced while it was read"
    )


@pytest.mark.parametrize(
    "command", [["recover"], ["compact"], ["retain"], ["undo"], ["doctor"]], ids=" ".join
)
def test_commands_that_change_directories_refuse_a_bucket(server: S3Server, command: list[str]) -> None:
    before = len(server.answers())
    reported = server.kseg(*command, URL)
    assert (reported.returncode, reported.stdout) == (4, "")
    assert reported.stderr.startswith(
        f"kseg: kseg {command[0]} works on directories on disk only, and {URL} is in"
    )
    # no request was sent
    assert len(server.answers()) == before


# --- ranges

_BATCH_BYTES = 16 << 10
_BATCHES = 65_536  # 1 GiB
_BASE_MS = 1_750_000_000_000


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A partition with one segment of 1 GiB: batches of ten records, a second apart, and index entries as a broker writes them."""
    directory = tmp_path_factory.mktemp("large") / "big-0"
    directory.mkdir()
    write_large(directory, _BATCHES)
    return directory


def write_large(directory: Path, batches: int) -> None:
    """Write batches ten offsets apart, and offset and time indexes with an entry for each batch but the first."""
    batch = bytearray(_one_batch())
    assert len(batch) == _BATCH_BYTES
    stem = str(directory / f"{0:020d}")
    with (
        open(f"{stem}.log", "wb") as log,
        open(f"{stem}.index", "wb") as index,
        open(f"{stem}.timeindex", "wb") as times,
    ):
        for number in range(batches):
            time_ms = _BASE_MS + 1000 * number
            batch[0:8] = struct.pack(">q", 10 * number)
            batch[27:43] = struct.pack(">qq", time_ms, time_ms)
            batch[17:21] = struct.pack(">I", crc32c(memoryview(batch)[21:]))
            log.write(batch)
            if number:
                index.write(struct.pack(">ii", 10 * number + 9, number * _BATCH_BYTES))
                times.write(struct.pack(">qi", time_ms, 10 * number + 9))


def _one_batch() -> bytes:
    def encoded(size: int) -> bytes:
        values = [b"v" * size] + [b"v" * 1500] * 9
        records = tuple(Record(offset, _BASE_MS, b"key", value, ()) for offset, value in enumerate(values))
        return encode_batch(NewBatch(records=records))

    size = 1500
    size += _BATCH_BYTES - len(encoded(size))
    return encoded(size)


@pytest.mark.slow
def test_lookup_in_an_object_of_1_gib_reads_at_most_2_mib(server: S3Server, large: Path) -> None:
    server.put_tree(large, "large/big-0")
    url = f"s3://{BUCKET}/large/big-0"
    middle = _BATCHES // 2 + 17
    asked: dict[str, tuple[int, Any]] = {
        "--offset": (10 * middle + 3, 10 * middle + 3),
        "--timestamp": (_BASE_MS + 1000 * middle - 500, 10 * middle),
    }
    for option, (value, offset) in asked.items():
        before = len(server.answers())
        reported = server.kseg("lookup", option, str(value), "--json", url)
        assert reported.returncode == 0, reported.stderr
        (row,) = (json.loads(line) for line in reported.stdout.splitlines())
        assert row["offset"] == offset
        answers = server.answers()[before:]
        assert sum(size for _, _, size in answers) <= 2 << 20, answers
        # they are sequential, and each costs a round trip
        assert len(answers) <= 40
        here = json.loads(server.kseg("lookup", option, str(value), "--json", str(large)).stdout)
        there = json.loads(reported.stdout.replace(url, str(large)))
        # it differs because of the headers that a range includes
        looked_at = there.pop("bytes_read"), here.pop("bytes_read")
        assert there == here
        assert max(looked_at) < 1 << 20
    before = len(server.answers())
    reported = server.kseg("lookup", "--latest", "--json", url)
    assert json.loads(reported.stdout)["offset"] == 10 * _BATCHES
    assert sum(size for _, _, size in server.answers()[before:]) <= 2 << 20


def test_no_temporary_files_are_left(server: S3Server, data: Path, tmp_path: Path) -> None:
    assert data.exists()
    reported = server.kseg("verify", f"{URL}/fares-0", TMPDIR=os.fspath(tmp_path))
    assert reported.returncode == 0, reported.stderr
    assert list(tmp_path.iterdir()) == []
