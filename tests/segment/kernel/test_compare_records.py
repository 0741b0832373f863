"""Comparing tables of records, compiled and interpreted, gives the same results for real records and for arbitrary numbers."""

from __future__ import annotations

from array import array
from types import ModuleType
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from kseg.segment.layout import INT64_MAX
from tests.support.kernel_variants import both, buffers, numbers, outcome, table_of

ROWS = 64


def read(kernel: dict[str, ModuleType], wrap: Any, data: bytes) -> tuple[array[int], array[int], int]:
    """The tables of batches and records, and the number of records, as far as the bytes can be walked."""
    table, count = table_of(data)
    cells, state = array("q", bytes(8 * 12 * ROWS)), numbers(0, 0, 0, 0, 0, 0)
    if count:
        kernel["record_walk"].read_plain(
            wrap(data), count - 1, wrap(table), 16, wrap(cells), ROWS, wrap(state)
        )
    return table, cells, state[3]


@given(
    buffers(),
    buffers(),
    st.booleans(),
    st.lists(st.tuples(st.integers(0, 12 * ROWS - 1), st.integers(-3, 80))),
)
def test_compiled_and_interpreted_comparison_agree(
    a: bytes, b: bytes, is_same: bool, changes: list[tuple[int, int]]
) -> None:
    if is_same:
        b = a

    def run(kernel: dict[str, ModuleType], wrap: Any) -> Any:
        compare = kernel["compare_records"]
        (batches_a, records_a, count_a), (batches_b, records_b, count_b) = (
            read(kernel, wrap, data) for data in (a, b)
        )
        for at, value in changes:
            records_a[at] = value
        flags_a, flags_b = bytearray(ROWS), bytearray(ROWS)
        state = numbers(0, 0, 0, INT64_MAX, -1, -1, 0, 0)
        result = compare.compare_rows(
            *(wrap(a), wrap(batches_a), 16, wrap(records_a), ROWS, count_a),
            *(wrap(b), wrap(batches_b), 16, wrap(records_b), ROWS, count_b),
            *(wrap(flags_a), wrap(flags_b), wrap(state)),
        )
        bounds = numbers(0, 0, 0)
        compare.flag_rest(wrap(records_a), ROWS, state[0], count_a, 0, 90, wrap(flags_a))
        behind = compare.flagged_range(wrap(records_a), ROWS, 0, count_a, wrap(flags_a), wrap(bounds))
        hashes, slots = array("q", range(2 * ROWS)), array("q", [0, 1, 70, 0, 0, 0, 0, 0, 0])
        left = compare.unflag_superseded(
            wrap(records_a), ROWS, count_a, wrap(hashes), wrap(slots), 3, 0, wrap(flags_a)
        )
        return result, list(state), bytes(flags_a), bytes(flags_b), behind, list(bounds), left

    found = both(lambda kernel, wrap: outcome(lambda: run(kernel, wrap)))
    if is_same and not changes and not isinstance(found, type):
        assert found[0] == 0 and not any(found[3])
