"""Run a kernel interpreted with checked buffers and then compiled, and generate bytes to run it on."""

from __future__ import annotations

from array import array
from collections.abc import Callable
from types import ModuleType
from typing import Any

from hypothesis import strategies as st

from kseg.cli.version import INLINED
from kseg.segment import header_tables as C
from kseg.segment.kernel import state_fields as S
from tests.support import interpreted_kernels
from tests.support.interpreted_kernels import NAMES, Checked
from tests.support.raw_batches import CASES
from tests.support.scan_helpers import plain_file

COMPILED = interpreted_kernels.compiled()
INTERPRETED = interpreted_kernels.kernels()
SEEDS = [plain_file(4)[0], plain_file(5, 0)[0], plain_file(5, 1)[0], *(case.data for case in CASES)]


@st.composite
def buffers(draw: st.DrawFn) -> bytes:
    """Random bytes, or batches with some bytes changed, removed or moved."""
    if draw(st.integers(0, 4)) == 0:
        return draw(st.binary(max_size=400))
    data = bytearray(b"".join(draw(st.lists(st.sampled_from(SEEDS), min_size=1, max_size=3))))
    for _ in range(draw(st.integers(0, 6))):
        at = draw(st.integers(0, len(data)))
        match draw(st.integers(0, 3)):
            case 0 | 1 if at < len(data):
                data[at] = draw(st.sampled_from([0, 1, 2, 0x7F, 0x80, 0xFF, draw(st.integers(0, 255))]))
            case 2:
                data[at:at] = draw(st.binary(max_size=20))
            case _:
                del data[at : at + draw(st.integers(0, 20))]
    return bytes(data)


def numbers(*values: int) -> array[int]:
    return array("q", values)


def outcome(call: Callable[[], Any]) -> Any:
    """The result or the type of the exception. IndexError is never allowed."""
    try:
        return call()
    except (ValueError, OverflowError) as error:
        return type(error)


def walked(
    kernel: dict[str, ModuleType], wrap: Callable[[Any], Any], data: bytes, end: int, capacity: int
) -> Any:
    """All rows of a walk that is resumed until it ends, and the reason why it ended."""
    cells, state = array("q", bytes(8 * C.BATCH_WIDTH * capacity)), numbers(0, 0)
    tables = []
    while True:
        reason = kernel["batch_walk"].walk(wrap(data), end, wrap(cells), capacity, wrap(state))
        tables.append((reason, state.tolist(), cells.tolist()))
        if reason != kernel["batch_walk"].FULL or not state[1]:
            return tables


def table_of(data: bytes, capacity: int = 16) -> tuple[array[int], int]:
    """The rows of one walk by the interpreted kernel."""
    cells, state = array("q", bytes(8 * C.BATCH_WIDTH * capacity)), numbers(0, 0)
    INTERPRETED["batch_walk"].walk(Checked(data), len(data), Checked(cells), capacity, Checked(state))
    return cells, state[1]


def read_rows(
    kernel: dict[str, ModuleType],
    wrap: Callable[[Any], Any],
    data: bytes,
    batches: array[int],
    count: int,
    cells: array[int],
) -> array[int]:
    """Read the records of `count` uncompressed batches into a table of 64 rows, up to the first problem; returns the state."""
    records, state = kernel["record_walk"], array("q", bytes(48))
    ended = records.BODY_DONE
    while ended == records.BODY_DONE and state[S.WALK_ROW] < count:
        magics = [magic < 2 for magic in batches[C.MAGIC * 16 : C.MAGIC * 16 + count]]
        row = last = state[S.WALK_ROW]
        while last + 1 < count and magics[last + 1] == magics[row]:
            last += 1
        read = kernel["legacy_messages"].read_messages if magics[row] else records.read_plain
        ended = read(wrap(data), last, wrap(batches), 16, wrap(cells), 64, wrap(state))
    return state


def both(run: Callable[[dict[str, ModuleType], Callable[[Any], Any]], Any]) -> Any:
    """Run on the interpreted kernels with checked buffers, then on the compiled ones, and check that the results are equal."""
    found = run(INTERPRETED, Checked)
    if set(NAMES) - set(COMPILED) <= set(INLINED):
        assert run({**INTERPRETED, **COMPILED}, memoryview) == found
    return found
