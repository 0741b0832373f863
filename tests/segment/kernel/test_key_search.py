"""The search for a key, compiled and interpreted, gives the same results on any bytes, and skips a batch only if decoding it finds
nothing."""

from __future__ import annotations

from array import array
from types import ModuleType
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kseg.segment import header_tables as C
from kseg.segment.kernel import key_search
from kseg.segment.kernel import state_fields as S
from kseg.segment.layout import INT64_MAX
from tests.support.interpreted_kernels import Checked
from tests.support.kernel_variants import INTERPRETED, both, buffers, numbers, outcome, table_of
from tests.support.raw_batches import CASES, record, sealed

EVERYTHING = numbers(-INT64_MAX - 1, INT64_MAX, -INT64_MAX - 1)
KEYS = st.sampled_from([b"k", b"", b"k1", b"key"])


def candidates(data: bytes, key: bytes, limits: array[int]) -> list[int]:
    """The rows at which either kernel stops."""
    table, count = table_of(data)

    def run(kernel: dict[str, ModuleType], wrap: Any) -> Any:
        found, row = [], 0
        search = kernel["key_search"].next_candidate
        while row < count:
            row = search(
                wrap(data), wrap(b""), wrap(numbers()), row, row, count, wrap(table), 16, wrap(limits), wrap(key)
            )  # fmt: skip
            if row < count:
                found.append(row)
            row += 1
        return found

    return list(both(lambda kernel, wrap: outcome(lambda: run(kernel, wrap))))


def decoded_alone(data: bytes, table: array[int], row: int) -> tuple[int, list[bytes | None]]:
    """Why reading a single uncompressed batch of magic 2 ended, and the keys of its records."""
    records = INTERPRETED["record_walk"]
    cells, state = array("q", bytes(8 * 12 * 64)), numbers(row, 0, 0, 0, 0, 0)
    ended = records.read_plain(Checked(data), row, Checked(table), 16, Checked(cells), 64, Checked(state))
    keys = []
    for at in range(state[S.WALK_COUNT]):
        start, length = cells[C.R_KEY_START * 64 + at], cells[C.R_KEY_LENGTH * 64 + at]
        keys.append(None if length < 0 else data[start : start + length])
    return ended, keys


@given(buffers(), KEYS)
def test_key_search_skips_only_batches_without_the_key(data: bytes, key: bytes) -> None:
    table, count = table_of(data)
    found = candidates(data, key, EVERYTHING)
    done = INTERPRETED["record_walk"].BODY_DONE
    for row in range(count):
        attributes = table[C.ATTRIBUTES * 16 + row]
        if table[C.MAGIC * 16 + row] != 2 or table[C.SIZE * 16 + row] < 61:
            assert row in found
        elif attributes & 7:
            assert (row in found) == (table[C.COUNT * 16 + row] != 0)
        else:
            ended, keys = decoded_alone(data, table, row)
            has_key = key in keys and not attributes & 32
            assert (row in found) == (has_key or ended != done)


@pytest.mark.parametrize(
    ("limits", "rows"),
    [
        ((0, INT64_MAX, 0), [0, 1, 2]),
        ((1001, INT64_MAX, 0), [1, 2]),
        ((1000, 1002, 0), [0, 1]),
        ((1003, INT64_MAX, 0), []),
        ((0, INT64_MAX, 1_700_000_000_001), []),
    ],
)
def test_key_search_excludes_batches_by_their_headers(limits: tuple[int, int, int], rows: list[int]) -> None:
    data = b"".join(sealed(record(), 1, base_offset=1000 + at) for at in range(3))
    assert candidates(data, b"k", numbers(*limits)) == rows


@given(st.lists(st.sampled_from([b"k", b"", b"kk", None]), max_size=8), KEYS)
def test_key_search_finds_the_key_in_decoded_records(keys: list[bytes | None], key: bytes) -> None:
    body = b"".join(each or b"" for each in keys)
    cells = array("q", bytes(8 * 12 * 8))
    position = 0
    for at, each in enumerate(keys):
        cells[C.R_KEY_START * 8 + at] = -1 if each is None else position
        cells[C.R_KEY_LENGTH * 8 + at] = -1 if each is None else len(each)
        position += len(each or b"")

    def run(kernel: dict[str, ModuleType], wrap: Any) -> Any:
        search, at, found = kernel["key_search"].next_of_key, 0, []
        while (at := search(wrap(body), wrap(cells), 8, at, len(keys), wrap(key))) < len(keys):
            found.append(at)
            at += 1
        return found

    assert both(run) == [at for at, each in enumerate(keys) if each == key]


def test_key_search_refuses_wrong_tables() -> None:
    data = CASES[0].data
    table, count = table_of(data)
    with pytest.raises(ValueError, match="too small"):
        key_search.run_end(0, 17, table, 16, EVERYTHING)
    with pytest.raises(ValueError, match="outside the buffer"):
        key_search.next_candidate(data[:-1], b"", numbers(), 0, 0, count, table, 16, EVERYTHING, b"x")
    with pytest.raises(ValueError, match="outside its buffer"):
        packed = array("q", table)
        packed[C.ATTRIBUTES * 16] = 1
        key_search.next_candidate(data, b"", numbers(0, 9), 0, 0, 1, packed, 16, EVERYTHING, b"x")
    with pytest.raises(ValueError, match="outside its buffer"):
        cells = array("q", bytes(8 * 12))
        cells[C.R_KEY_LENGTH], cells[C.R_KEY_START] = 1, 5
        key_search.next_of_key(b"kkk", cells, 1, 0, 1, b"k")
