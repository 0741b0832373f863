"""Several processes that scan a large log find the same batches and damage as one."""

from __future__ import annotations

import os
import random
import signal
from collections.abc import Iterator
from itertools import islice

import pytest

from kseg.jobs.forked_worker import ForkedWorker
from kseg.recovery.verify import parallel_scan
from kseg.recovery.verify.parallel_scan import blocks_by_many
from kseg.segment import crc
from kseg.segment import header_tables as C
from kseg.segment import layout as L
from kseg.segment.header_tables import Columns
from kseg.segment.scanning.damage import Damage
from kseg.segment.scanning.prevalidated import ValidatedRecords
from kseg.segment.scanning.record_validation import valid_until
from kseg.segment.scanning.scan import Scanner
from tests.support.scan_helpers import batch, file_of

PART_BYTES = 4096
PARTS = 40


@pytest.fixture(autouse=True)
def small_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parallel_scan, "PART_BYTES", PART_BYTES)
    monkeypatch.setattr(parallel_scan, "RECORDS_PART_BYTES", PART_BYTES)
    # the threads of a test runner wait for nothing of ours
    monkeypatch.setattr(parallel_scan, "can_fork", lambda: True)


@pytest.fixture
def helpers(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The numbers of the processes that were forked, in order."""
    forked: list[int] = []
    fork = os.fork

    def counting() -> int:
        number = fork()
        if number:
            forked.append(number)
        return number

    monkeypatch.setattr(os, "fork", counting)
    return forked


def log(value_bytes: int = 200, records: int = 3) -> bytes:
    """A log of about PARTS parts."""
    size = len(batch(0, records, b"v" * value_bytes))
    return file_of(
        batch(first * records, records, b"%d" % (first % 10) * value_bytes)
        for first in range(PARTS * PART_BYTES // size)
    )[0]


def pieces(blocks: Iterator[Columns | Damage]) -> list[Damage | tuple[int, ...]]:
    """Every batch (all of its columns) and every damage."""
    found: list[Damage | tuple[int, ...]] = []
    for item in blocks:
        if isinstance(item, Damage):
            found.append(item)
        else:
            columns = [item.column(field).tolist() for field in range(C.BATCH_WIDTH)]
            found += zip(*columns, strict=True)
    return found


def assert_alike(data: bytes | bytearray, jobs: int = 2) -> list[Damage | tuple[int, ...]]:
    alone = pieces(Scanner(data).blocks())
    assert alone == pieces(blocks_by_many(Scanner(data), jobs))
    return alone


@pytest.mark.parametrize("jobs", [2, 3, 7])
@pytest.mark.parametrize("value_bytes", [1, 200, 3000, 6000])
def test_a_sound_log(value_bytes: int, jobs: int, helpers: list[int]) -> None:
    found = assert_alike(log(value_bytes), jobs)
    assert not any(isinstance(piece, Damage) for piece in found)
    assert len(helpers) == jobs - 1


def test_the_helpers_do_their_share() -> None:
    data = log()
    scanner = Scanner(data)
    own = []
    fill_valid = scanner.fill_valid

    def counting(table: Columns, position: int, end: int, until: int) -> tuple[int, bool]:
        stopped, is_whole = fill_valid(table, position, end, until)
        own.append(stopped - position)
        return stopped, is_whole

    scanner.fill_valid = counting  # type: ignore[method-assign]
    assert len(pieces(blocks_by_many(scanner, 2))) == len(pieces(Scanner(data).blocks()))
    assert 0.5 < sum(own) / len(data) < 0.7


@pytest.mark.parametrize("seed", range(12))
def test_damage_is_the_same(seed: int) -> None:
    dice = random.Random(seed)
    data = bytearray(log(dice.choice([1, 50, 400, 3000])))
    for _ in range(dice.choice([1, 5, 40])):
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
    found = assert_alike(data, dice.choice([2, 3]))
    assert sum(piece.length if isinstance(piece, Damage) else piece[C.SIZE] for piece in found) == len(data)


@pytest.mark.parametrize("codec", [L.NONE, L.LZ4])
@pytest.mark.parametrize("seed", range(4))
def test_records_that_helpers_found_sound(seed: int, codec: int) -> None:
    """Every ninth body is altered and its checksum corrected. Claims about a table before it is yielded are true, and cover half of it."""
    dice = random.Random(seed)
    batches = [bytearray(batch(3 * at, 3, dice.randbytes(300), codec=codec)) for at in range(500)]
    for body in batches[::9]:
        body[dice.randrange(61, len(body))] ^= 255
        body[17:21] = crc.crc32c(body[21:]).to_bytes(4, "big")
    data = b"".join(batches)
    scanner, records, reported = Scanner(data), ValidatedRecords(), 0
    found = []
    for table in blocks_by_many(scanner, 2, records):
        assert isinstance(table, Columns)
        found += pieces(iter([table]))
        for row, position in enumerate(table.column(C.POSITION)):
            if records.until(position) > position:
                assert valid_until(scanner.view, table, row, row + 1) == row + 1
                reported += 1
    assert found == pieces(Scanner(data).blocks())
    assert reported > 150


@pytest.mark.parametrize("tail", [b"", bytes(5000), b"\x01\x02\x03", batch(10**6, 3, b"v" * 200)[:-1]])
def test_ends_of_all_kinds(tail: bytes) -> None:
    assert_alike(log() + tail)


def test_batches_inside_of_values_are_no_batches() -> None:
    """If a part starts inside such a value, its worker starts at a batch that is not part of the log."""
    inner = file_of(batch(10 * row, 2, b"not a batch of this log") for row in range(60))[0]
    data = file_of(batch(row, 1, inner) for row in range(PARTS))[0]
    assert len(inner) > PART_BYTES
    assert len(assert_alike(data)) == PARTS


def test_more_tables_than_slots(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parallel_scan, "SLOTS", 2)
    monkeypatch.setattr(parallel_scan, "BATCHES_PER_TABLE", 8)
    monkeypatch.setattr(parallel_scan, "_TABLE_BYTES", 8 * (C.BATCH_WIDTH + 1) * 8)
    assert_alike(log(1), 3)


def test_a_helper_that_dies_is_not_missed(helpers: list[int]) -> None:
    data = log(1)
    blocks = blocks_by_many(Scanner(data), 2)
    first = pieces(islice(blocks, 1))
    os.kill(helpers[0], signal.SIGKILL)
    assert first + pieces(blocks) == pieces(Scanner(data).blocks())


def test_without_more_processes_one_is_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    def refused() -> int:
        raise BlockingIOError

    descriptors = len(os.listdir("/proc/self/fd"))
    monkeypatch.setattr(os, "fork", refused)
    assert_alike(log(), 3)
    assert len(os.listdir("/proc/self/fd")) == descriptors


def test_who_leaves_early_leaves_nobody_behind(helpers: list[int]) -> None:
    descriptors = len(os.listdir("/proc/self/fd"))
    blocks = blocks_by_many(Scanner(log(1)), 3)
    next(blocks)
    assert len(helpers) == 2
    blocks.close()  # type: ignore[attr-defined]
    for number in helpers:
        with pytest.raises(ProcessLookupError):
            os.kill(number, 0)
    assert len(os.listdir("/proc/self/fd")) == descriptors


@pytest.mark.parametrize(("parts", "jobs"), [(PARTS, 1), (3, 2)])
def test_one_process_where_that_is_asked_for_or_enough(parts: int, jobs: int, helpers: list[int]) -> None:
    data = log()[: parts * PART_BYTES]
    assert pieces(blocks_by_many(Scanner(data), jobs)) == pieces(Scanner(data).blocks())
    assert not helpers


def test_a_helper_ends_when_its_parent_hangs_up() -> None:
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
