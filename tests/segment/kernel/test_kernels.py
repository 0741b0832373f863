"""Compiled kernels and their interpreted sources give the same results on any bytes.

The interpreted run is also the bounds check of the compiled one: its buffers raise at every index outside of them.
"""

from __future__ import annotations

import importlib
import random
import re
from array import array
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kseg.segment import crc
from kseg.segment import header_tables as C
from kseg.segment.kernel import state_fields as S
from tests.support.interpreted_kernels import HOME, IN_C, NAMES, Checked
from tests.support.kernel_variants import (
    INTERPRETED,
    both,
    buffers,
    numbers,
    outcome,
    read_rows,
    table_of,
    walked,
)
from tests.support.scan_helpers import batch


def test_every_kernel_is_tested() -> None:
    readers = {"batch_walk", "record_walk", "legacy_messages", "verify_records", "validate", "checksum"}
    assert readers | {"dump_text", "encode", "buffer_access"} <= set(NAMES)
    assert all(str(module.__file__).endswith(".py") for module in INTERPRETED.values())


@pytest.mark.parametrize(("module", "least"), [("buffer_access", 5), ("keymap_probe", 2), ("arithmetic", 2)])
def test_inlined_function_bodies_equal_the_interpreted_source(module: str, least: int) -> None:
    """The `.pxd` of such a module repeats the bodies of its functions, with C types for their variables."""

    def bodies(source: Path, definition: str) -> dict[str, list[str]]:
        found: dict[str, list[str]] = {}
        lines: list[str] = []
        on_one_line = re.sub(r"^(def \w+\()\n(?:    .*\n)+", r"\1", source.read_text(), flags=re.MULTILINE)
        for line in on_one_line.splitlines():
            if match := re.match(definition, line):
                lines = found.setdefault(match[1], [])
            elif line.startswith("    ") and not line.startswith("    cdef "):
                lines.append(line)
            elif line and not line.startswith("    "):
                lines = []
        return found

    interpreted = bodies(HOME / f"{module}.py", r"def (\w+)\(")
    inlined = bodies(HOME / f"{module}.pxd", r"cdef inline [\w ]+ (\w+)\(.*:$")
    assert inlined == {name: body for name, body in interpreted.items() if name not in IN_C}
    assert len(inlined) >= least


def test_checked_buffer_reports_reads_out_of_bounds() -> None:
    checked = Checked(bytearray(b"abc"))
    assert [checked[0], checked[2], len(checked)] == [97, 99, 3]
    for index in (-1, 3):
        with pytest.raises(IndexError):
            checked[index]
        with pytest.raises(IndexError):
            checked[index] = 1


# --- walk


@given(buffers(), st.integers(1, 9), st.integers(0, 500))
def test_compiled_and_interpreted_batch_walk_agree(data: bytes, capacity: int, cut: int) -> None:
    both(lambda kernel, wrap: walked(kernel, wrap, data, max(0, len(data) - cut), capacity))


@given(buffers(), st.integers(-(2**63), 2**63 - 1), st.integers(-(2**63), 2**63 - 1), st.integers(0, 100))
def test_compiled_and_interpreted_first_candidate_agree(
    data: bytes, lowest: int, highest: int, cut: int
) -> None:
    end = max(0, len(data) - cut)

    def run(kernel: dict[str, ModuleType], wrap: Callable[[Any], Any]) -> list[int]:
        found, position = [], -1
        while True:
            position = kernel["batch_walk"].first_candidate(wrap(data), position + 1, end, lowest, highest)
            found.append(position)
            if position < 0:
                return found

    both(run)


@given(buffers(), st.integers(0, 600), st.integers(1, 7))
def test_batch_walk_stops_at_a_position(data: bytes, until: int, capacity: int) -> None:
    """The walk stops at the first batch that starts at or after the position, and is otherwise the same."""

    def run(kernel: dict[str, ModuleType], wrap: Callable[[Any], Any]) -> Any:
        walk = kernel["batch_walk"]
        cells, state = array("q", bytes(8 * C.BATCH_WIDTH * capacity)), numbers(0, 0)
        reason = walk.walk(wrap(data), len(data), wrap(cells), capacity, wrap(state), until)
        everything, at = array("q", bytes(8 * C.BATCH_WIDTH * capacity)), numbers(0, 0)
        whole = walk.walk(wrap(data), len(data), wrap(everything), capacity, wrap(at))
        rows = state[1]
        assert cells[:rows] == everything[:rows]
        if rows < at[1]:
            assert reason == walk.FULL
            assert everything[rows] == state[0] >= until
        else:
            assert reason == whole or state[0] >= until
        assert not rows or cells[rows - 1] < until
        return reason, state.tolist(), cells.tolist()

    both(run)


@given(buffers(), st.data())
def test_compiled_and_interpreted_table_queries_agree(data: bytes, draws: st.DataObject) -> None:
    cells, count = table_of(data)
    for row in range(count):
        cells[C.VALID * 16 + row] = draws.draw(st.sampled_from([0, 1, 1, 1]))
    row = draws.draw(st.integers(0, count))

    def run(kernel: dict[str, ModuleType], wrap: Callable[[Any], Any]) -> list[int]:
        walk = kernel["batch_walk"]
        table = wrap(cells)
        return [
            walk.first_invalid(table, 16, count),
            walk.highest_offset(table, 16, count),
            walk.plain_run(table, 16, row, count),
            walk.next_remarkable(table, 16, row, count),
            walk.next_equal(table, 16, C.VALID, row, count, 0),
            walk.zero_run(wrap(data), min(row, len(data)), len(data)),
        ]

    both(run)


@given(buffers(), st.data())
def test_compiled_and_interpreted_row_copies_agree(data: bytes, draws: st.DataObject) -> None:
    """To another table, and to an earlier position in the same one."""
    cells, count = table_of(data)
    first = draws.draw(st.integers(0, count))
    width, row = draws.draw(st.integers(1, 20)), draws.draw(st.integers(0, 6))

    def rows(table: array[int], capacity: int, start: int) -> list[int]:
        return [
            table[field * capacity + at] for at in range(start, start + count - first) for field in range(16)
        ]

    def run(kernel: dict[str, ModuleType], wrap: Callable[[Any], Any]) -> Any:
        copy = kernel["batch_walk"].copy_rows
        other, same = array("q", bytes(8 * C.BATCH_WIDTH * width)), array("q", cells)
        if row + count - first > width:
            with pytest.raises(ValueError):
                copy(wrap(cells), 16, first, count, wrap(other), width, row)
            return None
        copy(wrap(cells), 16, first, count, wrap(other), width, row)
        copy(wrap(same), 16, first, count, wrap(same), 16, 0)
        assert rows(other, width, row) == rows(same, 16, 0) == rows(cells, 16, first)
        return other.tolist(), same.tolist()

    both(run)


# --- checksums


@given(buffers(), st.sampled_from([0, 26, 61, 100, 10**6]))
def test_compiled_and_interpreted_small_batch_checks_agree(data: bytes, limit: int) -> None:
    def run(kernel: dict[str, ModuleType], wrap: Callable[[Any], Any]) -> Any:
        cells, count = table_of(data)
        checksum = kernel["checksum"]
        tables = [wrap(memoryview(checksum.make_tables(p))) for p in (checksum.CASTAGNOLI, checksum.IEEE)]
        left = checksum.verify_small(wrap(data), wrap(cells), 16, count, limit, *tables)
        return left, cells.tolist()

    both(run)


@given(buffers(), st.sampled_from([61, 100]))
def test_large_batch_check_equals_the_small_one(data: bytes, limit: int) -> None:
    def run(kernel: dict[str, ModuleType], wrap: Callable[[Any], Any]) -> Any:
        cells, count = table_of(data)
        checksum = kernel["checksum"]
        tables = [wrap(memoryview(checksum.make_tables(p))) for p in (checksum.CASTAGNOLI, checksum.IEEE)]
        all_small = array("q", cells)
        checksum.verify_small(wrap(data), wrap(all_small), 16, count, 10**6, *tables)
        checksum.verify_small(wrap(data), wrap(cells), 16, count, limit, *tables)
        checksum.verify_large(memoryview(data), wrap(data), wrap(cells), 16, count, crc.crc32c, crc.crc32)
        assert cells == all_small
        return cells.tolist()

    both(run)


@given(st.binary(max_size=200), st.integers(0, 200), st.integers(0, 200))
def test_kernel_crc_equals_the_libraries(data: bytes, start: int, stop: int) -> None:
    start, stop = sorted((min(start, len(data)), min(stop, len(data))))

    def run(kernel: dict[str, ModuleType], wrap: Callable[[Any], Any]) -> list[int]:
        checksum = kernel["checksum"]
        return [
            checksum.crc_of(wrap(data), start, stop, wrap(memoryview(checksum.make_tables(p))))
            for p in (checksum.CASTAGNOLI, checksum.IEEE)
        ]

    assert both(run) == [crc.crc32c(data[start:stop]), crc.crc32(data[start:stop])]


def test_crc_by_processor_instructions_equals_the_library() -> None:
    """All lengths up to several rounds of the widest loop, at every alignment, with every implementation that this processor supports."""
    checksum = importlib.import_module("kseg.segment.kernel.checksum")
    data = random.Random(0).randbytes(3000)
    tables = memoryview(checksum.make_tables(checksum.CASTAGNOLI))
    for length in (*range(1100), *range(1100, 2900, 61)):
        start = length % 67
        expected = crc.crc32c(data[start : start + length])
        assert checksum.castagnoli_of(data, start, start + length, tables) == expected
        for way in range(1, checksum.fastest_way() + 1):
            assert checksum.castagnoli_by(way, data, start, start + length) == expected, (way, length)


def test_crc_lane_constants_are_powers_of_x() -> None:
    """To shift a lane by n bits: x^(n - 32) and x^(n + 32) modulo the polynomial, bit-reversed and shifted by one."""

    def power(exponent: int) -> int:
        value = 1 << 31  # x^0, reversed
        for _ in range(exponent):
            value = value >> 1 ^ (INTERPRETED["checksum"].CASTAGNOLI if value & 1 else 0)
        return value << 1

    text = (HOME / "in_c" / "castagnoli.pxd").read_text()
    found = re.findall(r"#define KSEG_BY_(\d+) 0x(\w+), 0x(\w+)", text)
    assert {int(bits): (int(high, 16), int(low, 16)) for bits, high, low in found} == {
        bits: (power(bits - 32), power(bits + 32)) for bits in (128, 256, 384, 512, 2048)
    }


# --- records


@pytest.mark.parametrize("name", ["records", "walk", "checksum", "check", "text"])
def test_too_small_tables_are_refused(name: str) -> None:
    """C does not check bounds, so each entry function compares its tables with the given sizes."""
    data = batch(0)
    batches, _ = table_of(data)
    small, state = numbers(0, 0, 0), array("q", bytes(48))
    undecided = array("q", batches)
    undecided[C.VALID * 16] = -1

    def run(kernel: dict[str, ModuleType], wrap: Callable[[Any], Any]) -> list[Any]:
        tables = wrap(memoryview(kernel["checksum"].make_tables(1)))
        calls: dict[str, list[Callable[[], Any]]] = {
            "walk": [
                lambda: kernel["batch_walk"].walk(wrap(data), len(data), wrap(small), 5, wrap(state)),
                lambda: kernel["batch_walk"].walk(wrap(data), len(data) + 1, wrap(batches), 16, wrap(state)),
                lambda: kernel["batch_walk"].walk(
                    wrap(data), len(data), wrap(batches), 16, wrap(numbers(-1, 0))
                ),
                lambda: kernel["batch_walk"].first_candidate(wrap(data), -1, len(data), 0, 1),
                lambda: kernel["batch_walk"].first_candidate(wrap(data), 0, len(data) + 1, 0, 1),
            ],
            "records": [
                lambda: kernel["record_walk"].read_plain(
                    wrap(data), 0, wrap(batches), 16, wrap(small), 5, wrap(state)
                ),
                lambda: kernel["record_walk"].read_plain(
                    wrap(data), 16, wrap(batches), 16, wrap(numbers(*range(24))), 2, wrap(state)
                ),
                lambda: kernel["record_walk"].read_plain(
                    wrap(data[:40]), 0, wrap(batches), 16, wrap(numbers(*range(24))), 2, wrap(state)
                ),
                lambda: kernel["record_walk"].read_body(
                    wrap(data), 5, len(data) + 1, wrap(batches), 16, wrap(numbers(*range(24))), 2, wrap(state)
                ),
            ],
            "checksum": [
                lambda: kernel["checksum"].verify_small(wrap(data), wrap(small), 5, 1, 99, tables, tables),
                lambda: kernel["checksum"].verify_small(
                    wrap(data), wrap(batches), 16, 17, 99, tables, tables
                ),
                lambda: kernel["checksum"].verify_small(
                    wrap(data[:40]), wrap(batches), 16, 1, 999, tables, tables
                ),
                lambda: kernel["checksum"].verify_large(
                    memoryview(data), wrap(data), wrap(small), 5, 1, len, len
                ),
                lambda: kernel["checksum"].verify_large(
                    memoryview(data), wrap(data), wrap(batches), 16, 17, len, len
                ),
                lambda: kernel["checksum"].verify_large(
                    memoryview(data), wrap(data[:40]), wrap(undecided), 16, 1, len, len
                ),
                lambda: kernel["checksum"].castagnoli_by(1, wrap(data), 5, len(data) + 1),
                lambda: kernel["checksum"].castagnoli_by(1, wrap(data), 6, 5),
            ],
            "check": [
                lambda: kernel["verify_records"].next_offset_entry(
                    wrap(data[:15]), 2, 0, wrap(batches), 16, 1, wrap(numbers(*[0] * 10))
                ),
                lambda: kernel["verify_records"].next_time_entry(
                    wrap(data[:24]), 2, 0, wrap(batches), 16, 1, wrap(numbers(-1, *[0] * 9))
                ),
            ],
            "text": [
                lambda: kernel["dump_text"].format_lines(
                    wrap(data), wrap(small), 5, 0, wrap(small), 0, 0, 0, wrap(bytearray(9999)), 0, wrap(state)
                ),
                lambda: kernel["dump_text"].format_lines(
                    wrap(data),
                    wrap(batches),
                    16,
                    0,
                    wrap(small),
                    5,
                    5,
                    1,
                    wrap(bytearray(999)),
                    0,
                    wrap(state),
                ),
            ],
        }
        return [outcome(call) for call in calls[name]]

    assert set(both(run)) == {ValueError}


# --- arithmetic


@given(st.integers(-(2**62), 2**62), st.integers(-(2**31), 2**31 - 1), st.integers(-(2**31), 2**31 - 1))
def test_compiled_and_interpreted_32_bit_arithmetic_agree(value: int, sequence: int, increment: int) -> None:
    def run(kernel: dict[str, ModuleType], wrap: Callable[[Any], Any]) -> tuple[int, int]:
        arithmetic = kernel["arithmetic"]
        return arithmetic.to_int(value), arithmetic.add_sequence(sequence, increment)

    assert both(run)[0] == (value + 2**31) % 2**32 - 2**31


# --- what verify asks


@given(buffers(), st.binary(max_size=60), st.data())
def test_compiled_and_interpreted_record_checks_agree(
    data: bytes, index: bytes, draws: st.DataObject
) -> None:
    batches, count = table_of(data)
    for row in range(count):
        batches[C.VALID * 16 + row] = 1
    base = draws.draw(st.integers(0, 10) | st.integers(0, 2**40))
    records = array("q", bytes(8 * 12 * 64))
    state = read_rows(INTERPRETED, Checked, data, batches, count, records)

    def run(kernel: dict[str, ModuleType], wrap: Callable[[Any], Any]) -> list[Any]:
        check, table = kernel["verify_records"], wrap(batches)
        found: list[Any] = []
        seen, row = numbers(-1, -1, 0), 0
        while row < count:
            row = check.next_suspect(table, 16, row, count, wrap(seen)) + 1
            found.append((row, seen.tolist()))
        sums = array("q", bytes(8 * S.SUM_WIDTH))
        check.tally(table, 16, 0, count, 1_700_000_000_001, wrap(sums))
        found.append(sums.tolist())
        found += [check.next_epoch(table, 16, row, count, 0) for row in range(count)]
        for width, entries in ((8, check.next_offset_entry), (12, check.next_time_entry)):
            place = array("q", bytes(8 * S.ENTRY_WIDTH))
            place[S.ENTRY_SEEN], place[S.ENTRY_FORMER_SLOT] = -1, -1
            for _ in range(30):
                why = entries(wrap(index), len(index) // width, base, table, 16, count, wrap(place))
                found.append((why, place.tolist()))
                if why in (check.IN_ORDER, check.MORE):
                    break
        rules, at = array("q", bytes(8 * S.RECORDS_WIDTH)), 0
        rules[S.RECORDS_BATCH] = -1
        read = state[3]
        while at < read:
            at = check.next_record(wrap(records), 64, at, read, table, 16, wrap(rules)) + 1
            found.append((at, rules.tolist()))
        return found

    both(run)
