"""Files that are crafted to cost time: the scanner's work is linear in their size, and its memory constant.

Work is counted, not timed: bytes summed, bytes searched, headers walked, candidates examined. A file four times as large may cost little
more than four times as much. The allowance for futile checksums is removed here, because any file below it is fast.
"""

from __future__ import annotations

import random
import tracemalloc
from array import array
from collections import Counter
from collections.abc import Callable

import pytest

from kseg.segment import crc
from kseg.segment import header_tables as C
from kseg.segment.kernel import batch_walk as kernel
from kseg.segment.kernel import checksum
from kseg.segment.scanning import crc_verdicts, resync, scan, table_walk, zero_ranges
from kseg.segment.scanning.range_crc import BLOCK_BYTES
from tests.support.scan_helpers import batch, header, message, scanned

SMALL = 300_000
TIMES = 4


class Work(Counter[str]):
    """The work of a scan, in comparable units."""


@pytest.fixture
def work(monkeypatch: pytest.MonkeyPatch) -> Work:
    done = Work()
    real_walk, real_candidate, real_zeros = kernel.walk, kernel.first_candidate, kernel.zero_run
    real_small, real_large = checksum.verify_small, checksum.verify_large
    sums = {"crc32": crc.crc32, "crc32c": crc.crc32c}

    def walk(
        view: memoryview, end: int, cells: memoryview, capacity: int, state: memoryview, until: int = -1
    ) -> int:
        reason = real_walk(view, end, cells, capacity, state, until)
        done["walked"] += 1 + state[1]
        return reason

    def first_candidate(view: memoryview, position: int, end: int, lowest: int, highest: int) -> int:
        found = real_candidate(view, position, end, lowest, highest)
        done["searched"] += max(0, (end if found < 0 else found) - position)
        done["candidates"] += 1
        return found

    def zero_run(view: memoryview, position: int, end: int) -> int:
        length = real_zeros(view, position, end)
        done["zeros"] += length + 1
        return length

    def verify_small(
        view: memoryview,
        cells: memoryview,
        capacity: int,
        count: int,
        limit: int,
        left: memoryview,
        right: memoryview,
    ) -> int:
        sizes = cells[C.SIZE * capacity : C.SIZE * capacity + count]
        done["summed"] += sum(size for size in sizes if size <= limit)
        return real_small(view, cells, capacity, count, limit, left, right)

    def verify_large(
        view: memoryview,
        buf: memoryview,
        cells: memoryview,
        capacity: int,
        count: int,
        left: Callable[[memoryview], int],
        right: Callable[[memoryview], int],
    ) -> int:
        sizes = cells[C.SIZE * capacity : C.SIZE * capacity + count]
        verdicts = cells[C.VALID * capacity : C.VALID * capacity + count]
        done["summed"] += sum(size for size, verdict in zip(sizes, verdicts, strict=True) if verdict == -1)
        return real_large(view, buf, cells, capacity, count, sums["crc32c"], sums["crc32"])

    def counting(name: str) -> Callable[[memoryview, int], int]:
        def count(data: memoryview, value: int = 0) -> int:
            done["summed"] += len(data)
            return sums[name](data, value)

        return count

    monkeypatch.setattr(table_walk, "walk", walk)
    monkeypatch.setattr(resync, "first_candidate", first_candidate)
    monkeypatch.setattr(zero_ranges, "zero_run", zero_run)
    monkeypatch.setattr(checksum, "verify_small", verify_small)
    monkeypatch.setattr(checksum, "verify_large", verify_large)
    monkeypatch.setattr(crc, "crc32", counting("crc32"))
    monkeypatch.setattr(crc, "crc32c", counting("crc32c"))
    monkeypatch.setattr(crc_verdicts, "MAX_WASTED_BYTES", 0)
    return done


def _filled(size: int, piece: Callable[[int, int], bytes], tail: bytes = b"") -> bytes:
    """Pieces made from (number, bytes left) until the file is full."""
    data, number = bytearray(), 0
    while len(data) < size:
        data += piece(number, size - len(data))
        number += 1
    return bytes(data[:size]) + tail


def false_headers_to_the_end(size: int) -> bytes:
    return _filled(size, lambda number, left: header(number, max(61, left)))


def false_headers_in_a_row(size: int) -> bytes:
    return _filled(size, lambda number, left: header(number, 61))


def false_messages_in_a_row(size: int) -> bytes:
    return _filled(size, lambda number, left: message(number))


def huge_claims_between_sound_batches(size: int) -> bytes:
    return _filled(size, lambda number, left: batch(2 * number) + header(2 * number, max(61, left * 3 // 4)))


def claims_that_all_lead_to_one_batch(size: int) -> bytes:
    """Half of the file is one valid batch, and every header before it claims to end there."""
    large = batch(2**20, 1, random.Random(2).randbytes(size // 2))
    front = size - len(large)
    return _filled(
        front, lambda number, left: batch(2 * number) + header(2 * number, max(61, left - 150)), large
    )


def claims_into_zeros(size: int) -> bytes:
    """Half of the file is zeros followed by one byte, and every header before them claims to end among them."""
    half = size // 2
    return _filled(
        half,
        lambda number, left: batch(2 * number) + header(2 * number, left + number % half),
        bytes(half) + b"\1",
    )


def runs_of_zeros(size: int) -> bytes:
    return _filled(size, lambda number, left: batch(2 * number) + bytes(1000) + b"\1")


def one_run_of_zeros(size: int) -> bytes:
    return batch(0) + bytes(size) + b"\1"


def every_second_batch_damaged(size: int) -> bytes:
    def piece(number: int, left: int) -> bytes:
        data = bytearray(batch(2 * number))
        data[-1] ^= number % 2
        return bytes(data)

    return _filled(size, piece)


def short_damage_before_long_batches(size: int) -> bytes:
    """What is examined after damage must not be examined again for each later damage."""
    front = _filled(size // 2, lambda number, left: batch(2 * number) + header(2 * number, 61))
    rows = range(2**20, 2**20 + 8)
    return front + b"".join(batch(row, 1, random.Random(row).randbytes(size // 16)) for row in rows)


def nested_sound_batches(size: int) -> bytes:
    """Each batch contains all that follow, every checksum is valid, and the outermost is damaged at its start."""
    inner = batch(10**6)
    for offset in range(400, 0, -1):
        inner = batch(offset, 1, inner + random.Random(offset).randbytes(max(0, size - len(inner)) // 200))
    return b"\xee" * 20 + inner[20:]


def offsets_that_never_fit(size: int) -> bytes:
    """A valid batch with the highest offset, then damage between valid batches below it."""
    return batch(2**31 - 20) + _filled(size, lambda number, left: batch(2 * number) + b"\xee" * 20)


HOSTILE = [
    false_headers_to_the_end,
    false_headers_in_a_row,
    false_messages_in_a_row,
    huge_claims_between_sound_batches,
    claims_that_all_lead_to_one_batch,
    claims_into_zeros,
    runs_of_zeros,
    one_run_of_zeros,
    every_second_batch_damaged,
    short_damage_before_long_batches,
    nested_sound_batches,
    offsets_that_never_fit,
]


@pytest.mark.slow
@pytest.mark.parametrize("made_by", HOSTILE, ids=lambda function: function.__name__)
def test_scan_of_a_hostile_file_does_linear_work(made_by: Callable[[int], bytes], work: Work) -> None:
    costs = []
    for size in (SMALL, SMALL * TIMES):
        data = made_by(size)
        work.clear()
        scanned(data)
        costs.append(Counter(work))
        # at most this for a candidate every few bytes, however large the ranges that they claim
        assert work["summed"] <= 40 * len(data) + work["candidates"] * 2 * BLOCK_BYTES
        assert work["searched"] <= 4 * len(data)
        assert work["zeros"] <= 4 * len(data)
        assert work["candidates"] + work["walked"] <= len(data)
    for unit in ("searched", "zeros", "candidates", "walked"):
        assert costs[1][unit] <= 1.5 * TIMES * costs[0][unit] + 5000, (unit, costs)
    # sums may cost up to two blocks for each candidate, which small files do not reach; beyond that they are linear
    limit = costs[1]["candidates"] * 2 * BLOCK_BYTES + 40 * SMALL * TIMES
    assert costs[1]["summed"] <= max(limit, 1.5 * TIMES * costs[0]["summed"])


@pytest.mark.slow
def test_scan_memory_does_not_grow_with_the_damage() -> None:
    peaks = []
    for size in (SMALL, SMALL * TIMES):
        data = every_second_batch_damaged(size)
        tracemalloc.start()
        try:
            for _ in scan.Scanner(data).blocks():
                pass
            peaks.append(tracemalloc.get_traced_memory()[1])
        finally:
            tracemalloc.stop()
    # a few tables and the remembered results
    assert peaks[1] < peaks[0] + 600_000


def test_useless_checksums_switch_to_blocks_and_find_the_same(work: Work) -> None:
    data = huge_claims_between_sound_batches(SMALL)
    by_blocks = scanned(data).positions
    summed = work["summed"]
    work.clear()
    crc_verdicts.MAX_WASTED_BYTES = 2**62
    assert scanned(data).positions == by_blocks
    assert work["summed"] > 4 * summed
    assert len(by_blocks) > SMALL // 300


def test_zero_tail_is_searched_for_once() -> None:
    data = b"\1" + bytes(10_000_000)
    scanner = scan.Scanner(data)
    assert scanner.resync(1, len(data)).kind == "zero-tail"
    assert scanner.resync(5000, len(data)).kind == "zero-tail"
    assert array("q", [scanner.resync(0, len(data)).length]) == array("q", [len(data)])
