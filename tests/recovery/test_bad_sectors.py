"""Every command on complete partitions and data directories whose files have bad sectors, compared with what a plain reader finds."""

from __future__ import annotations

import json
import os
import random
import shutil
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from kseg.cli.main import run
from kseg.segment.kernel import bad_pages
from tests.support.reference_reader import batches
from tests.support.sector_faults import BadSectors, bad_sectors
from tests.support.trees import files_in

CASES = int(os.environ.get("KSEG_BAD_SECTOR_RUNS", "8"))
SEED = int(os.environ.get("KSEG_BAD_SECTOR_RUNS_SEED", "1"))
RECORDS = 1200


@pytest.fixture(scope="module")
def partition(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A partition with two segments: a log of about 270 KiB with its indexes, which is mapped, and one that is read."""
    home = tmp_path_factory.mktemp("sectors")
    lines = home / "records.jsonl"
    with lines.open("w") as file:
        for at in range(RECORDS):
            row = {
                "type": "record",
                "key": f"k{at}",
                "value": f"v{at}-" + "x" * 200,
                "timestamp": 1_700_000_000_000 + at,
            }
            file.write(json.dumps(row) + "\n")
    words = [
        "append",
        "--apply",
        "--from",
        str(lines),
        "--topic-id",
        "Pm0fXkDvQ0yTn7Qq3uXJ8A",
        "--batch-records",
        "20",
    ]
    assert run([*words, "--segment-bytes", "256KiB", "--quiet", str(home / "orders-0")]) == 0
    shutil.rmtree(home / "orders-0" / ".kseg")
    assert len(list((home / "orders-0").glob("*.log"))) == 2
    return home / "orders-0"


@dataclass(frozen=True)
class Answer:
    status: int
    out: str
    err: str

    def rows(self, kind: str) -> list[dict[str, Any]]:
        found = [json.loads(line) for line in self.out.splitlines()]
        return [row for row in found if row["type"] == kind]

    @property
    def lost(self) -> set[tuple[str, int, int]]:
        rows = [row for row in self.rows("finding") if row["id"] == "unreadable"]
        assert all(row["severity"] == "error" and row["error"] == "Input/output error" for row in rows)
        return {(Path(row["path"]).name, row["position"], row["length"]) for row in rows}


class Incident:
    """A directory on a bad disk, and the command line called in this process."""

    def __init__(self, disk: BadSectors, root: Path, capfd: pytest.CaptureFixture[str]) -> None:
        self.disk, self.root, self._capfd = disk, root, capfd

    def kseg(self, *words: object) -> Answer:
        # as in a new process, which has not met any bad sectors yet
        bad_pages.forget()
        self._capfd.readouterr()
        command, *rest = map(str, words)
        status = run(
            [command, "--jobs", "1", *rest]
        )  # workers of a process with threads would not inherit the simulated disk
        output = self._capfd.readouterr()
        assert status in (0, 1, 3, 4, 5), output.err
        assert "bug in kseg" not in output.err and "Traceback" not in output.err
        return Answer(status, output.out, output.err)

    def lost(self, *names: str) -> set[tuple[str, int, int]]:
        return {(name, *area) for name in names for area in self.disk.lost(self.root / name)}

    def intact(self, *names: str) -> list[int]:
        """The offsets of batches outside of bad sectors, as a plain reader finds them in the healthy bytes."""
        found: list[int] = []
        for name in names:
            bad = self.disk.lost(self.root / name)
            for batch in batches((self.root / name).read_bytes()):
                end = batch.position + batch.size_bytes
                if not any(start < end and batch.position < start + length for start, length in bad):
                    found += range(batch.base_offset, batch.last_offset + 1)
        return found

    def files(self) -> dict[str, bytes]:
        return files_in(self.root)


@pytest.fixture
def incident(
    partition: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> Iterator[Incident]:
    shutil.copytree(partition, tmp_path / "orders-0")
    yield Incident(bad_sectors(monkeypatch, BadSectors()), tmp_path / "orders-0", capfd)
    bad_pages.forget()


def sectors_of(lots: random.Random, path: Path) -> list[int]:
    last = (path.stat().st_size - 1) // 512
    kinds = ([0], [last], [lots.randrange(last + 1)], [lots.randrange(last + 1) for _ in range(4)])
    start = lots.randrange(last + 1)
    return lots.choice((*kinds, range(start, min(last + 1, start + 12))))  # type: ignore[arg-type]


def offsets(rows: Sequence[dict[str, Any]]) -> list[int]:
    return [row["offset"] for row in rows]


@pytest.mark.slow
@pytest.mark.evidence("unreadable-bytes")
@pytest.mark.parametrize("case", range(CASES))
def test_commands_use_everything_readable_around_bad_sectors(
    incident: Incident, case: int, tmp_path: Path
) -> None:
    lots = random.Random(f"{SEED}-{case}")
    root, disk = incident.root, incident.disk
    disk.sector_bytes = lots.choice((512, 4096))
    disk.is_direct, disk.ends_early = lots.random() < 0.7, lots.random() < 0.5
    names = sorted(path.name for path in root.glob("*.log"))
    damaged = names if lots.random() < 0.3 else [lots.choice(names)]
    for name in damaged:
        disk.spoil(root / name, sectors_of(lots, root / name))
    lost, intact, before = incident.lost(*damaged), incident.intact(*names), incident.files()
    bad_bytes = sum(length for _, _, length in lost)

    verified = incident.kseg("verify", "--json", root)
    assert verified.status == 1 and verified.lost == lost
    assert not {row["id"] for row in verified.rows("finding")} & {
        "torn-tail",
        "zero-tail",
        "bad-crc",
        "bad-length",
    }
    (summary,) = verified.rows("summary")
    assert (summary["records"], summary["bytes_unreadable"]) == (len(intact), bad_bytes)

    dumped = incident.kseg("dump", "--json", "--deep-iteration", *(root / name for name in names))
    assert dumped.status == 1 and dumped.lost == lost and offsets(dumped.rows("record")) == intact

    wanted = lots.choice(intact)
    found = incident.kseg("lookup", "--json", "--offset", wanted, root)
    assert offsets(found.rows("lookup")) == [wanted]
    read = incident.kseg("read", "--json", "--offset", wanted, "--max-bytes", "8KiB", root)
    assert wanted in offsets(read.rows("record")) and set(offsets(read.rows("record"))) <= set(intact)
    listed = incident.kseg("list", "--json", root)
    (counted,) = (
        row["records"] for row in listed.rows("partition")
    )  # counted by headers, without reading the batches
    assert len(intact) <= counted <= RECORDS and listed.lost <= lost
    out = tmp_path / "out"
    exported = incident.kseg("export", "--to", "json", "--no-meta", "--output", out, root)
    assert exported.status == 1 and "cannot be read: Input/output error" in exported.err
    reported = [
        json.loads(line) for path in sorted(out.rglob("*.json*")) for line in path.read_text().splitlines()
    ]
    assert sorted(row["offset"] for row in reported) == intact

    planned = incident.kseg("recover", root)
    assert planned.status == 1 and "--accept-unreadable" in planned.out
    for command in (("recover",), ("compact", "--cleanup-policy", "compact", "--include-active")):
        refused = incident.kseg(*command, "--apply", root)
        assert refused.status == 4, (refused.out, refused.err)
    assert incident.files() == before
    copied = incident.kseg("recover", "--output", tmp_path / "copy", root)
    assert copied.status in (0, 1)
    checked = incident.kseg("verify", "--json", tmp_path / "copy")
    assert not [row for row in checked.rows("finding") if row["severity"] == "error"]
    dumped = incident.kseg("dump", "--json", "--deep-iteration", *sorted((tmp_path / "copy").rglob("*.log")))
    assert offsets(dumped.rows("record")) == intact
    assert incident.files() == before
    accepted = incident.kseg("recover", "--apply", "--accept-unreadable", root)
    assert accepted.status == 0, (accepted.out, accepted.err)
    dumped = incident.kseg("dump", "--json", "--deep-iteration", *sorted(root.glob("*.log")))
    assert offsets(dumped.rows("record")) == intact


SIDE_FILES = [
    "*.index",
    "*.timeindex",
    "*.txnindex",
    "*.snapshot",
    "leader-epoch-checkpoint",
    "partition.metadata",
]


@pytest.mark.parametrize("pattern", SIDE_FILES)
@pytest.mark.parametrize("is_direct", [True, False])
def test_bad_sector_in_a_side_file_loses_no_record(
    capture_small: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
    pattern: str,
    is_direct: bool,
) -> None:
    shutil.copytree(capture_small / "data" / "fares-0", tmp_path / "fares-0")
    incident = Incident(
        bad_sectors(monkeypatch, BadSectors(is_direct=is_direct)), tmp_path / "fares-0", capfd
    )
    root = incident.root
    names = sorted(path.name for path in root.glob(pattern) if path.stat().st_size)
    assert names
    for name in names:
        incident.disk.spoil(root / name, [0])
    healthy = incident.kseg("dump", "--json", *sorted((capture_small / "data" / "fares-0").glob("*.log")))
    verified = incident.kseg("verify", "--json", root)
    assert verified.status == 1 and verified.lost == incident.lost(*names)
    errors = {row["id"] for row in verified.rows("finding") if row["severity"] == "error"}
    # and no finding is about the zeros in their place
    assert errors == {"unreadable"}
    dumped = incident.kseg("dump", "--json", *sorted(root.glob("*.log")))
    assert [(row["base_offset"], row["count"]) for row in dumped.rows("batch")] == [
        (row["base_offset"], row["count"]) for row in healthy.rows("batch")
    ]
    for offset in (0, 50, 100):
        for way in ("lookup", "read"):
            assert incident.kseg(way, "--json", "--offset", offset, root).status in (0, 1)
    for path in sorted(root.glob(pattern)):
        if pattern != "partition.metadata":
            assert incident.kseg("dump", "--json", path).lost <= incident.lost(*names)
    before = incident.files()
    assert incident.kseg("recover", "--apply", root).status in (1, 4)
    assert incident.files() == before
    copied = incident.kseg("recover", "--output", tmp_path / "copy", root)
    assert copied.status in (0, 1)
    checked = incident.kseg("verify", "--json", tmp_path / "copy")
    allowed = {"partition-metadata-corrupt"} if pattern == "partition.metadata" else set()
    assert {row["id"] for row in checked.rows("finding") if row["severity"] == "error"} <= allowed
    assert checked.rows("summary")[0]["records"] == verified.rows("summary")[0]["records"]


@pytest.mark.parametrize(
    ("name", "step"),
    [
        ("__cluster_metadata-0/quorum-state", "Move {} out of the data directory"),
        ("meta.properties", "with the values that meta.properties had"),
    ],
)
def test_doctor_has_a_step_for_an_unreadable_file(
    capture_small: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
    name: str,
    step: str,
) -> None:
    data = Path(shutil.copytree(capture_small / "data", tmp_path / "data"))
    incident = Incident(bad_sectors(monkeypatch, BadSectors()), data, capfd)
    incident.disk.spoil(data / name, [0])
    examined = incident.kseg("doctor", data).out
    assert step.format(data / name) in examined and "The disk is failing" in examined


@pytest.mark.parametrize("pattern", ["*.index", "*.timeindex"])
@pytest.mark.parametrize("size_bytes", [None, 10 << 20])
def test_unreadable_index_is_rebuilt_with_accept_unreadable(
    capture_small: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
    pattern: str,
    size_bytes: int | None,
) -> None:
    """All of its entries are in the bad sector. size_bytes: preallocated, as a broker does for the active segment; then the index is mapped
    and not read at once."""
    whole = capture_small / "data" / "fares-0"
    shutil.copytree(whole, tmp_path / "fares-0")
    incident = Incident(bad_sectors(monkeypatch, BadSectors()), tmp_path / "fares-0", capfd)
    root = incident.root
    path = max(root.glob(pattern))
    content = path.read_bytes()
    assert 0 < len(content) <= 512
    if size_bytes is not None:
        os.truncate(path, size_bytes // 12 * 12 if path.suffix == ".timeindex" else size_bytes)
    incident.disk.spoil(path, [0])
    before = incident.files()
    verified = incident.kseg("verify", "--json", path)
    assert verified.status == 1 and verified.lost == incident.lost(path.name)
    assert {row["id"] for row in verified.rows("finding")} == {"unreadable"}
    planned = incident.kseg("recover", root)
    assert planned.status == 1 and "--accept-unreadable" in planned.out
    refused = incident.kseg("recover", "--apply", root)
    assert refused.status == 4 and "--accept-unreadable" in refused.err
    assert incident.files() == before
    accepted = incident.kseg(
        "recover", "--apply", "--accept-unreadable", "--index-interval-bytes", 1024, root
    )
    assert accepted.status == 0, (accepted.out, accepted.err)
    assert path.read_bytes() == content
    checked = incident.kseg("verify", "--json", root)
    assert not [row for row in checked.rows("finding") if row["severity"] == "error"]
    assert "nothing to repair" in incident.kseg("recover", root).out


LOG_DIR_FILES = [
    "recovery-point-offset-checkpoint",
    "replication-offset-checkpoint",
    "log-start-offset-checkpoint",
    "cleaner-offset-checkpoint",
    "meta.properties",
    ".kafka_cleanshutdown",
]


@pytest.mark.parametrize("name", LOG_DIR_FILES)
def test_bad_sectors_in_data_directory_files_are_reported_and_skipped(
    capture_small: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
    name: str,
) -> None:
    data = tmp_path / "data"
    data.mkdir()
    shutil.copytree(capture_small / "data" / "fares-0", data / "fares-0")
    for path in (capture_small / "data").iterdir():
        if path.is_file():
            shutil.copy2(path, data)
    incident = Incident(bad_sectors(monkeypatch, BadSectors()), data, capfd)
    incident.disk.spoil(data / name, [0])
    before = incident.files()
    verified = incident.kseg("verify", "--json", data)
    assert verified.status == 1 and verified.lost == incident.lost(name)
    assert "-corrupt" not in verified.out
    planned = incident.kseg("recover", data)
    assert planned.status == 1 and "-corrupt" not in planned.out + planned.err
    assert incident.kseg("recover", "--apply", data).status in (1, 4, 5)
    assert incident.files() == before
