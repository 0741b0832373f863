"""Damage that no repair can fix is reported as a doubt: the partition does not count as valid, and its data directory is not marked
clean."""

from __future__ import annotations

import json
import shutil
import struct
from pathlib import Path
from typing import Any

import pytest

from kseg.cli.main import run
from kseg.segment.crc import crc32c
from tests.support.salvage_helpers import batches
from tests.support.trees import unchanged

FIRST = f"{0:020}.log"
MARKER = ".kafka_cleanshutdown"


@pytest.fixture
def log_dir(capture_small: Path, tmp_path: Path) -> Path:
    made = tmp_path / "data"
    made.mkdir()
    for name in ("metro-none-0", "gates-append-0", "gates-append-1"):
        shutil.copytree(capture_small / "data" / name, made / name)
    for file in (capture_small / "data").iterdir():
        if file.is_file() and file.name != MARKER:
            shutil.copy2(file, made / file.name)
    return made


def results(capfd: pytest.CaptureFixture[str]) -> dict[str, dict[str, Any]]:
    rows = [json.loads(line) for line in capfd.readouterr().out.splitlines()]
    return {row["partition"]: row for row in rows if row["type"] == "result" and "partition" in row}


def seal(log: Path, field: int, data: bytes) -> None:
    """Change a header field of the second batch, and its checksum with it."""
    content = bytearray(log.read_bytes())
    position, batch = list(batches(log))[1]
    content[position + field : position + field + len(data)] = data
    checksum = crc32c(bytes(content[position + 21 : position + len(batch)]))
    content[position + 17 : position + 21] = struct.pack(">I", checksum)
    log.write_bytes(content)


@pytest.mark.parametrize(
    ("name", "field", "data", "finding"),
    [
        ("metro-none-0", 57, struct.pack(">i", 99), "record-count-mismatch"),
        (
            "gates-append-0",
            21,
            b"\xff\xff",
            "bad-control-record",
        ),  # a broker fails on it (IllegalArgumentException)
    ],
    ids=["count", "attributes"],
)
def test_harmful_batch_that_stays_is_a_doubt(
    log_dir: Path, capfd: pytest.CaptureFixture[str], name: str, field: int, data: bytes, finding: str
) -> None:
    seal(log_dir / name / FIRST, field, data)
    run(["recover", "--json", str(log_dir)])
    found = results(capfd)
    assert finding in found[name]["doubt"]
    assert found[name]["removed"] == []
    assert found["gates-append-1"]["doubt"] is None
    with unchanged(log_dir):
        assert run(["recover", "--apply", "--mark-clean", str(log_dir)]) == 4
    assert f"{name} contains" in capfd.readouterr().err


def test_harmful_batch_that_is_removed_is_no_doubt(log_dir: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """A copy of a segment under another segment's name contains a batch with a wrong count. The original in its own segment is kept."""
    log = log_dir / "metro-none-0" / FIRST
    shutil.copy2(log, log.with_name(f"{5:020}.log"))
    seal(log, 57, struct.pack(">i", 99))
    size = log.stat().st_size
    run(["recover", "--json", "--apply", str(log_dir)])
    found = results(capfd)["metro-none-0"]
    assert sum(removed["length"] for removed in found["removed"]) == size
    assert found["doubt"] is None
    assert run(["verify", str(log_dir / "metro-none-0")]) == 0


@pytest.mark.parametrize("content", [b"", b"rubbish\n", b"version: 0\ntopic_id: xx\n"])
def test_unreadable_topic_id_is_a_doubt(
    log_dir: Path, capfd: pytest.CaptureFixture[str], content: bytes
) -> None:
    """A broker fails on such a file (KafkaStorageException). Another partition of the topic has the id."""
    partition = log_dir / "gates-append-0"
    original = (partition / "partition.metadata").read_bytes()
    topic_id = original.decode().split()[-1]
    (partition / "partition.metadata").write_bytes(content)
    with unchanged(log_dir):
        run(["recover", str(partition)])
        out, err = capfd.readouterr()
        assert f"kseg recover --topic-id {topic_id}" in out + err and "gates-append-1" in out + err
        assert run(["recover", "--apply", "--mark-clean", str(log_dir)]) == 4
    capfd.readouterr()
    run(["recover", "--json", "--apply", "--topic-id", topic_id, str(partition)])
    assert results(capfd)["gates-append-0"]["doubt"] is None
    assert (partition / "partition.metadata").read_bytes() == original
    assert run(["verify", str(partition)]) == 0
