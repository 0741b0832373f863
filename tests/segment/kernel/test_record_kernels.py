"""The kernels that read records give equal tables, compiled and interpreted."""

from __future__ import annotations

from array import array
from collections.abc import Callable
from types import ModuleType
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from kseg.segment import header_tables as C
from kseg.segment.kernel import state_fields as S
from tests.support.kernel_variants import both, buffers, outcome, table_of
from tests.support.raw_batches import CASES, sealed
from tests.support.scan_helpers import batch

Kernels = dict[str, ModuleType]


def decoded(
    kernel: dict[str, ModuleType],
    wrap: Callable[[Any], Any],
    read: Callable[[Kernels, Any, Any, Any], int],
    row: int,
    capacity: int,
) -> Any:
    """Every table that a reader of records fills until it is done, and how it ended."""
    records = kernel["record_walk"]
    cells, state = array("q", bytes(8 * 12 * capacity)), array("q", bytes(8 * S.WALK_WIDTH))
    state[S.WALK_ROW] = row
    tables = []
    for _ in range(400):
        state[S.WALK_COUNT] = 0
        ended = outcome(lambda: read(kernel, wrap, wrap(cells), wrap(state)))
        tables.append((ended, state.tolist(), cells.tolist()))
        if ended != records.BODY_FULL:
            break
    return tables


@given(buffers(), st.integers(1, 5))
def test_compiled_and_interpreted_reading_of_plain_batches_agree(data: bytes, capacity: int) -> None:
    batches, count = table_of(data)

    def read_plain(kernel: Kernels, wrap: Any, cells: Any, state: Any) -> int:
        records = kernel["record_walk"]
        return int(records.read_plain(wrap(data), count - 1, wrap(batches), 16, cells, capacity, state))

    def read_messages(kernel: Kernels, wrap: Any, cells: Any, state: Any) -> int:
        messages = kernel["legacy_messages"]
        return int(messages.read_messages(wrap(data), count - 1, wrap(batches), 16, cells, capacity, state))

    for read in (read_plain, read_messages):
        both(lambda kernel, wrap: [decoded(kernel, wrap, read, row, capacity) for row in range(count)])  # noqa: B023


@given(st.binary(max_size=200), st.data())
def test_compiled_and_interpreted_reading_of_bodies_agree(body: bytes, draws: st.DataObject) -> None:
    if draws.draw(st.booleans()):
        case = draws.draw(st.sampled_from([case for case in CASES if case.data[16] == 2]))
        mutated = bytearray(case.data[61:])
        for _ in range(draws.draw(st.integers(0, 3)) if mutated else 0):
            mutated[draws.draw(st.integers(0, len(mutated) - 1))] = draws.draw(st.integers(0, 255))
        body = bytes(mutated)
    int64 = st.integers(-(2**63), 2**63 - 1)
    header = sealed(
        b"",
        draws.draw(st.integers(-1, 6) | st.just(2**31 - 1)),
        base_offset=draws.draw(int64 | st.integers(0, 9)),
        attributes=draws.draw(st.sampled_from([0, 8, 64])),
        base_timestamp=draws.draw(int64 | st.integers(0, 9)),
        max_timestamp=draws.draw(int64),
        producer=(1, 0, draws.draw(st.integers(-(2**31), 2**31 - 1))),
    )
    batches, _ = table_of(header)
    capacity = draws.draw(st.integers(1, 5))
    start = draws.draw(st.integers(0, 3)) if len(body) > 3 else 0

    def read(kernel: Kernels, wrap: Any, cells: Any, state: Any) -> int:
        records = kernel["record_walk"]
        return int(records.read_body(wrap(body), start, len(body), wrap(batches), 16, cells, capacity, state))

    both(lambda kernel, wrap: decoded(kernel, wrap, read, 0, capacity))


@given(buffers(), st.integers(-(2**63), 2**63 - 1), st.sampled_from([0, 1]), st.sampled_from([1, 9]))
def test_compiled_and_interpreted_reading_of_message_sets_agree(
    content: bytes, base_offset: int, magic: int, attributes: int
) -> None:
    batches, _ = table_of(batch(5, 2, magic=magic, codec=1))
    batches[C.ATTRIBUTES * 16] = attributes

    def read(kernel: Kernels, wrap: Any, cells: Any, state: Any) -> int:
        messages = kernel["legacy_messages"]
        return int(messages.read_message_set(wrap(content), base_offset, wrap(batches), 16, cells, 3, state))

    both(lambda kernel, wrap: decoded(kernel, wrap, read, 0, 3))
    both(lambda kernel, wrap: kernel["legacy_messages"].count_messages(wrap(content)))
