"""A large log exported to text by several processes: the files are the same as by one process."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyarrow")

from kseg.cli.main import run
from kseg.inspection.export import sinks
from kseg.jobs import log_parts, part_worker
from kseg.segment import layout as L
from kseg.segment.encoding.batch import encode_batch
from kseg.segment.model import NewBatch, Record
from tests.support.command_lines import Capfd

BATCHES = 120


@pytest.fixture
def answers() -> list[bool]:
    """For each part that was received from a helper, whether it has a text: a helper that fails gives the part up, and the output is the
    same."""
    return []


@pytest.fixture(autouse=True)
def helpers(monkeypatch: pytest.MonkeyPatch, answers: list[bool]) -> list[int]:
    """Make parts small, and wait for helpers. Returns the number that were started."""
    started: list[int] = []
    monkeypatch.setattr(log_parts, "PART_BYTES", 2048)
    monkeypatch.setattr(log_parts, "can_fork", lambda: True)
    monkeypatch.setattr(log_parts, "has_free_processor", lambda: True)
    monkeypatch.setattr(sinks, "has_free_processor", lambda: True)
    monkeypatch.setattr(part_worker.PartWorker, "is_ready", lambda _worker: True)
    begin, receive = part_worker.PartWorker.__init__, part_worker.PartWorker.receive

    def note(self: Any, *words: Any) -> None:
        started.append(1)
        begin(self, *words)

    def received(self: Any) -> list[bytes | memoryview] | None:
        pieces = receive(self)
        answers.append(pieces is not None)
        return pieces

    monkeypatch.setattr(part_worker.PartWorker, "__init__", note)
    monkeypatch.setattr(part_worker.PartWorker, "receive", received)
    return started


def log(codec: int = L.ZSTD) -> bytearray:
    chance = random.Random(7)
    batches = []
    for first in range(0, BATCHES * 10, 10):
        records = tuple(
            Record(
                n,
                1000 + n,
                None if n % 13 == 0 else b"k,%d" % n,
                None
                if n % 17 == 0
                else chance.randbytes(60)
                if n % 3
                else b'two\nlines, "quoted" \xe4 %d' % n,
                ((b"h", b"\n"),) if n % 5 == 0 else (),
            )
            for n in range(first, first + 10)
        )
        batches.append(encode_batch(NewBatch(records=records, codec=codec)))
    return bytearray(b"".join(batches))


def write(directory: Path, data: bytes | bytearray) -> Path:
    directory.mkdir()
    (directory / f"{0:020d}.log").write_bytes(data)
    return directory


def exported(partition: Path, output: Path, jobs: int, *words: str) -> tuple[int, bytes]:
    """The exit status, and the content of all files."""
    where = ["--jobs", str(jobs), "--no-progress", "--output", str(output), str(partition)]
    status = run(["export", *words, "--json", *where])
    return status, b"".join(path.read_bytes() for path in sorted(output.rglob("part-*")))


def rows_of(out: str) -> list[dict[str, Any]]:
    rows = [json.loads(line) for line in out.splitlines()]
    for row in rows:
        row.pop("output", None)
        row.pop("files", None)
    return rows


def compare(
    partition: Path, tmp_path: Path, capfd: Capfd, words: list[str], helpers: list[int]
) -> list[dict[str, Any]]:
    """Export with one and with three processes and check that everything is equal; returns the rows of --json."""
    alone = exported(partition, tmp_path / "alone", 1, *words)
    reported = rows_of(capfd.readouterr().out)
    assert not helpers
    together = exported(partition, tmp_path / "together", 3, *words)
    assert together == alone and rows_of(capfd.readouterr().out) == reported
    return reported


@pytest.mark.slow
@pytest.mark.parametrize(
    "words",
    [
        ["--to", "json"],
        ["--to", "json", "--bytes", "auto", "--compression", "gzip"],
        ["--to", "csv"],
        ["--to", "csv", "--bytes", "hex", "--no-meta"],
        ["--to", "csv", "--key-regex", "7", "--from-offset", "0"],
        ["--to", "json", "--value-format", "string", "--bytes", "utf8"],
    ],
    ids=" ".join,
)
@pytest.mark.parametrize("codec", [L.NONE, L.ZSTD])
def test_parallel_export_writes_the_same_files(
    tmp_path: Path, capfd: Capfd, helpers: list[int], answers: list[bool], codec: int, words: list[str]
) -> None:
    partition = write(tmp_path / "t-0", log(codec))
    reported = compare(partition, tmp_path, capfd, words, helpers)
    assert len(helpers) == 2 and answers and all(answers)
    assert (reported[-1]["records"] == BATCHES * 10) == ("--key-regex" not in words)


@pytest.mark.slow
@pytest.mark.parametrize("at", [0, 40, 41, BATCHES - 1])
@pytest.mark.parametrize("kind", ["bad-crc", "zero-filled"])
@pytest.mark.parametrize("form", ["json", "csv"])
def test_parallel_export_reports_damage_like_one_process(
    tmp_path: Path, capfd: Capfd, helpers: list[int], form: str, kind: str, at: int
) -> None:
    data = log()
    starts = [0]
    while len(starts) < BATCHES:
        starts.append(starts[-1] + 12 + int.from_bytes(data[starts[-1] + 8 : starts[-1] + 12], "big"))
    if kind == "bad-crc":
        data[starts[at] + 100] ^= 0xFF
    else:
        end = starts[at + 1] if at + 1 < BATCHES else len(data)
        data[starts[at] : end] = bytes(end - starts[at])
    reported = compare(write(tmp_path / "t-0", data), tmp_path, capfd, ["--to", form], helpers)
    (found,) = (row["id"] for row in reported if row["type"] == "finding")
    assert found == (kind if at + 1 < BATCHES or kind == "bad-crc" else "zero-tail")
    assert reported[-1]["records"] == BATCHES * 10 - 10


@pytest.mark.parametrize("slot_bytes", [7, 1000])
@pytest.mark.parametrize("form", ["json", "csv"])
def test_texts_that_continue_in_the_next_slot_are_the_same(
    tmp_path: Path,
    capfd: Capfd,
    helpers: list[int],
    answers: list[bool],
    monkeypatch: pytest.MonkeyPatch,
    slot_bytes: int,
    form: str,
) -> None:
    """Slots that hold neither a text nor the 16 bytes in front of it."""
    monkeypatch.setattr(part_worker, "SLOT_BYTES", slot_bytes)
    reported = compare(write(tmp_path / "t-0", log()), tmp_path, capfd, ["--to", form], helpers)
    assert len(helpers) == 2 and answers and all(answers)
    assert reported[-1]["records"] == BATCHES * 10


def test_parallel_export_to_stdout_is_the_same(tmp_path: Path, capfd: Capfd, helpers: list[int]) -> None:
    partition = write(tmp_path / "t-0", log())
    words = ["export", "--to", "csv", "--output", "-", "--no-progress", str(partition)]
    assert run([*words, "--jobs", "1"]) == 0
    alone = capfd.readouterr()
    assert run([*words, "--jobs", "2"]) == 0
    assert capfd.readouterr() == alone and helpers


@pytest.mark.parametrize(
    "words",
    [["--to", "json", "--limit", "7"], ["--to", "json", "--partition-by", "hour"], ["--to", "arrow"]],
    ids=" ".join,
)
def test_order_dependent_export_is_made_by_one_process(
    tmp_path: Path, capfd: Capfd, helpers: list[int], words: list[str]
) -> None:
    compare(write(tmp_path / "t-0", log()), tmp_path, capfd, words, helpers)
    assert not helpers


@pytest.mark.parametrize("words", [[], ["--partition-by", "hour"], ["--compression", "zstd"]], ids=" ".join)
def test_row_groups_encoded_by_a_thread_are_the_same(
    tmp_path: Path, capfd: Capfd, helpers: list[int], monkeypatch: pytest.MonkeyPatch, words: list[str]
) -> None:
    from pyarrow import parquet

    from kseg.inspection.export import export

    monkeypatch.setattr(sinks, "ROW_GROUP_ROWS", 200)
    monkeypatch.setattr(export, "RECORDS_PER_BATCH", 50)
    compare(write(tmp_path / "t-0", log()), tmp_path, capfd, ["--to", "parquet", *words], helpers)
    (file, *_) = sorted((tmp_path / "together").rglob("part-*"))
    assert parquet.ParquetFile(file).num_row_groups == 6


@pytest.mark.parametrize("jobs", ["1", "2"])
def test_row_group_that_cannot_be_written_ends_the_export(
    tmp_path: Path, capfd: Capfd, monkeypatch: pytest.MonkeyPatch, jobs: str
) -> None:
    from kseg.inspection.export import export
    from kseg.segment.errors import Refused
    from kseg.segment.new_files import NewFile

    monkeypatch.setattr(sinks, "ROW_GROUP_ROWS", 200)
    monkeypatch.setattr(export, "RECORDS_PER_BATCH", 50)
    original = NewFile.write

    def write_some(file: NewFile, data: Any) -> None:
        if file.size_bytes > 5000:
            raise Refused("the disk is full")
        original(file, data)

    monkeypatch.setattr(NewFile, "write", write_some)
    partition = write(tmp_path / "t-0", log())
    words = ["export", "--to", "parquet", "--jobs", jobs, "--no-progress"]
    assert run([*words, "--output", str(tmp_path / "out"), str(partition)]) == 4
    assert "the disk is full" in capfd.readouterr().err and not (tmp_path / "out").exists()
