"""Several processes that scan the logs of a partition find the same batches and damage as one process does."""

from __future__ import annotations

import os
import random
import signal
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path

import pytest

from kseg.jobs import part_pool, part_worker
from kseg.jobs.forked_worker import ForkedWorker
from kseg.recovery.verify import parallel_scan
from kseg.recovery.verify.options import VerifyOptions
from kseg.recovery.verify.parallel_scan import ParallelScan, ScannedLog
from kseg.segment import crc, unreadable
from kseg.segment import header_tables as C
from kseg.segment import layout as L
from kseg.segment.files import MappedFile
from kseg.segment.header_tables import Columns
from kseg.segment.kernel import bad_pages
from kseg.segment.scanning.damage import Damage
from kseg.segment.scanning.record_validation import valid_until
from kseg.segment.scanning.scan import Scanner
from tests.support.scan_helpers import batch, file_of
from tests.support.sector_faults import SECTOR_BYTES, BadSectors, bad_sectors

PART_BYTES = 4096
PARTS = 40


@pytest.fixture(autouse=True)
def small_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parallel_scan, "LEAST_SHARED_BYTES", 4 * PART_BYTES)
    monkeypatch.setattr(parallel_scan, "LEAST_LOG_BYTES", PART_BYTES // 4)
    monkeypatch.setattr(parallel_scan, "MIN_PART_BYTES", PART_BYTES)
    monkeypatch.setattr(parallel_scan, "MAX_PART_BYTES", PART_BYTES)
    # can_fork refuses because of the test runner's threads, which hold no locks of ours
    monkeypatch.setattr(parallel_scan, "can_fork", lambda: True)
    # wait for the workers: otherwise this process would scan everything before a worker has begun
    monkeypatch.setattr(part_worker.PartWorker, "is_ready", lambda _worker: True)


@pytest.fixture
def forks(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The ids of the forked processes, in order."""
    forked: list[int] = []
    fork = os.fork

    def counting() -> int:
        number = fork()
        if number:
            forked.append(number)
        return number

    monkeypatch.setattr(os, "fork", counting)
    return forked


class Logs:
    """The logs of a partition in files."""

    def __init__(self, directory: Path, contents: Sequence[bytes]) -> None:
        self.paths = [str(directory / f"{number:020}.log") for number in range(len(contents))]
        for path, content in zip(self.paths, contents, strict=True):
            Path(path).write_bytes(content)

    def blocks(self, jobs: int, level: str = "quick") -> Iterator[Columns | Damage]:
        """The blocks that several processes find, log after log."""
        logs = [ScannedLog(path, 0, os.path.getsize(path)) for path in self.paths]
        with ParallelScan(logs, VerifyOptions(level=level, now_ms=0, jobs=jobs)) as scan:
            for number, path in enumerate(self.paths):
                with MappedFile(path) as file:
                    yield from scan.blocks(number, Scanner.over(file))

    def alone(self) -> list[Damage | tuple[int, ...]]:
        """The pieces that one scanner finds."""
        return [piece for path in self.paths for piece in pieces(Scanner(Path(path).read_bytes()).blocks())]


def log(value_bytes: int = 200, records: int = 3) -> bytes:
    """A log of about PARTS parts."""
    size = len(batch(0, records, b"v" * value_bytes))
    return file_of(
        batch(first * records, records, b"%d" % (first % 10) * value_bytes)
        for first in range(PARTS * PART_BYTES // size)
    )[0]


def pieces(blocks: Iterator[Columns | Damage]) -> list[Damage | tuple[int, ...]]:
    """Every batch (all fields of its header) and every damage."""
    found: list[Damage | tuple[int, ...]] = []
    for item in blocks:
        if isinstance(item, Damage):
            found.append(item)
        else:
            columns = [item.column(field).tolist() for field in range(C.BODY)]
            found += zip(*columns, strict=True)
    return found


def assert_alike(
    directory: Path, *contents: bytes | bytearray, jobs: int = 2
) -> list[Damage | tuple[int, ...]]:
    logs = Logs(directory, [bytes(content) for content in contents])
    alone = logs.alone()
    for level in ("quick", "default", "deep"):
        assert pieces(logs.blocks(jobs, level)) == alone
    return alone


@pytest.mark.slow
@pytest.mark.parametrize("jobs", [2, 3, 7])
@pytest.mark.parametrize("value_bytes", [1, 200, 3000, 6000])
def test_parallel_scan_of_an_undamaged_log(
    value_bytes: int, jobs: int, tmp_path: Path, forks: list[int]
) -> None:
    found = assert_alike(tmp_path, log(value_bytes), jobs=jobs)
    assert not any(isinstance(piece, Damage) for piece in found)
    assert len(forks) == 3 * (jobs - 1)


def test_workers_scan_most_parts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    own: list[int] = []
    produce = part_pool.PartPool._produce

    def counting(self: part_pool.PartPool, part: int) -> list[bytes | memoryview] | None:
        own.append(part)
        return produce(self, part)

    monkeypatch.setattr(part_pool.PartPool, "_produce", counting)
    logs = Logs(tmp_path, [log()])
    assert pieces(logs.blocks(2)) == logs.alone()
    assert 1 <= len(own) < PARTS


def test_process_without_ready_workers_scans_all_parts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(part_worker.PartWorker, "is_ready", lambda _worker: False)
    assert_alike(tmp_path, log(), log(3000))


@pytest.mark.parametrize("jobs", [2, 3])
def test_parallel_scan_of_logs_of_all_sizes(jobs: int, tmp_path: Path) -> None:
    """Logs of a partition of different sizes: empty, smaller than a part, and damaged ones among them."""
    small = file_of(batch(at, 1, b"small") for at in range(5))[0]
    assert_alike(tmp_path, log(), b"", small, small[:-1], log(1), small, b"", log(3000), jobs=jobs)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(12))
def test_parallel_scan_finds_the_same_damage(seed: int, tmp_path: Path) -> None:
    dice = random.Random(seed)
    contents = [bytearray(log(dice.choice([1, 50, 400, 3000]))) for _ in range(dice.choice([1, 3]))]
    for data in contents:
        for _ in range(dice.choice([0, 1, 5, 40])):
            at = dice.randrange(len(data))
            match dice.randrange(4):
                case 0:
                    data[at] ^= 1 << dice.randrange(8)
                case 1:
                    del data[at : at + dice.randrange(3 * PART_BYTES)]
                case 2:
                    data[at:at] = dice.randbytes(dice.randrange(3 * PART_BYTES))
                case _:
                    length = dice.randrange(3 * PART_BYTES)
                    data[at : at + length] = bytes(len(data[at : at + length]))
    found = assert_alike(tmp_path, *contents, jobs=dice.choice([2, 3]))
    sizes = sum(piece.length if isinstance(piece, Damage) else piece[C.SIZE] for piece in found)
    assert sizes == sum(map(len, contents))


@pytest.mark.parametrize("codec", [L.NONE, L.LZ4])
@pytest.mark.parametrize("seed", range(4))
def test_parallel_scan_marks_only_valid_bodies_as_valid(seed: int, codec: int, tmp_path: Path) -> None:
    """Every ninth body is altered and its checksum corrected. A table may only call valid bodies valid, and does so for most of them."""
    dice = random.Random(seed)
    batches = [bytearray(batch(3 * at, 3, dice.randbytes(300), codec=codec)) for at in range(500)]
    for body in batches[::9]:
        body[dice.randrange(61, len(body))] ^= 255
        body[17:21] = crc.crc32c(body[21:]).to_bytes(4, "big")
    data, sound = b"".join(batches), 0
    logs = Logs(tmp_path, [data])
    for table in logs.blocks(2, "deep"):
        assert isinstance(table, Columns)
        for row, known in enumerate(table.column(C.BODY)):
            is_sound = valid_until(memoryview(data), table, row, row + 1) == row + 1
            assert is_sound == (known == C.BODY_SOUND)
            sound += is_sound
    assert sound > 400


@pytest.mark.parametrize("tail", [b"", bytes(5000), b"\x01\x02\x03", batch(10**6, 3, b"v" * 200)[:-1]])
def test_parallel_scan_of_all_kinds_of_log_ends(tail: bytes, tmp_path: Path) -> None:
    assert_alike(tmp_path, log() + tail)


def test_batches_inside_values_are_not_scanned_as_batches(tmp_path: Path) -> None:
    """If a part starts inside such a value, its tables start at a batch that does not belong to the log."""
    inner = file_of(batch(10 * row, 2, b"not a batch of this log") for row in range(60))[0]
    data = file_of(batch(row, 1, inner) for row in range(PARTS))[0]
    assert len(inner) > PART_BYTES
    assert len(assert_alike(tmp_path, data)) == PARTS


def test_part_with_more_tables_than_slots_is_scanned_completely(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(part_worker, "SLOT_BYTES", 4096)
    monkeypatch.setattr(part_worker, "MIN_ROOM_BYTES", 1024)
    assert_alike(tmp_path, log(1), log(1), jobs=3)


def test_log_grown_since_it_was_listed_is_scanned_alone(tmp_path: Path) -> None:
    """A broker appends to the log: this process scans it alone, and the workers help with the others."""
    logs = Logs(tmp_path, [log(), log(), log()])
    listed = [ScannedLog(path, 0, os.path.getsize(path)) for path in logs.paths]
    with open(logs.paths[1], "ab") as file:
        file.write(batch(10**6, 3, b"new"))
    found = []
    with ParallelScan(listed, VerifyOptions(level="quick", now_ms=0, jobs=2)) as scan:
        for number, path in enumerate(logs.paths):
            with MappedFile(path) as mapped:
                found += pieces(scan.blocks(number, Scanner.over(mapped)))
    assert found == logs.alone()


def test_bad_sector_in_a_worker_is_read_again_and_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where a worker meets a bad sector, this process reads it again, so that it is reported."""
    disk = bad_sectors(monkeypatch, BadSectors(SECTOR_BYTES, True, False))
    logs = Logs(tmp_path, [log(), log(3000)])
    for path, sectors in zip(logs.paths, ([10, 11, 150, 300], [0, 77]), strict=True):
        disk.spoil(Path(path), sectors)

    def found(jobs: int) -> tuple[list[Damage | tuple[int, ...]], list[list[tuple[int, int]]]]:
        bad_pages.forget()
        blocks = pieces(logs.blocks(jobs))
        identities = [unreadable.identity_of(os.stat(path)) for path in logs.paths]
        areas = [unreadable.areas(identity) for identity in identities]
        return blocks, [[(area.position, area.length) for area in each] for each in areas]

    alone = found(1)
    assert alone[1] == [
        [(10 * SECTOR_BYTES, 2 * SECTOR_BYTES), *((at * SECTOR_BYTES, SECTOR_BYTES) for at in (150, 300))],
        [(0, SECTOR_BYTES), (77 * SECTOR_BYTES, SECTOR_BYTES)],
    ]
    assert found(2) == alone
    assert found(3) == alone


def test_parts_of_a_dead_worker_are_scanned_again(tmp_path: Path, forks: list[int]) -> None:
    logs = Logs(tmp_path, [log(1), log(200)])
    blocks = logs.blocks(2)
    first = pieces(islice(blocks, 1))
    os.kill(forks[0], signal.SIGKILL)
    assert first + pieces(blocks) == logs.alone()


def test_scan_works_if_no_process_can_be_forked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused() -> int:
        raise BlockingIOError

    descriptors = len(os.listdir("/proc/self/fd"))
    monkeypatch.setattr(os, "fork", refused)
    assert_alike(tmp_path, log(), jobs=3)
    assert len(os.listdir("/proc/self/fd")) == descriptors


def test_abandoned_scan_leaves_no_workers(tmp_path: Path, forks: list[int]) -> None:
    descriptors = len(os.listdir("/proc/self/fd"))
    blocks = Logs(tmp_path, [log(1)]).blocks(3)
    next(blocks)
    assert len(forks) == 2
    blocks.close()  # type: ignore[attr-defined]
    for number in forks:
        with pytest.raises(ProcessLookupError):
            os.kill(number, 0)
    assert len(os.listdir("/proc/self/fd")) == descriptors


@pytest.mark.parametrize(("parts", "jobs"), [(PARTS, 1), (3, 2)])
def test_one_job_or_a_small_log_forks_no_workers(
    parts: int, jobs: int, tmp_path: Path, forks: list[int]
) -> None:
    assert_alike(tmp_path, log()[: parts * PART_BYTES], jobs=jobs)
    assert not forks


def test_worker_ends_when_its_parent_hangs_up() -> None:
    def life(reads: int, writes: int) -> None:
        while os.read(reads, 1):
            os.write(writes, b"!")

    first = ForkedWorker(life)
    second = ForkedWorker(life, [first])
    for helper in (first, second):
        os.write(helper.writes, b"?")
        assert os.read(helper.reads, 1) == b"!"
    os.close(first.writes)
    assert os.read(first.reads, 1) == b""
    first.writes = os.dup(first.reads)
    first.kill()
    second.kill()
