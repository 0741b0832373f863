"""Runs of compressed batches: every row once and in order, each body where its bounds say, whatever does not fit or open alone."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from kseg.segment import columns as C
from kseg.segment.codecs.codec import MAX_BODY_BYTES
from kseg.segment.columns import Columns
from kseg.segment.scanning.packed import BODY_BYTES, MAX_BODIES, PackedBodies
from tests.segment.bodies import gzip, sealed

GZIP = 1


def file_of(bodies: Sequence[bytes]) -> tuple[Columns, memoryview]:
    table, file = Columns(C.BATCH_WIDTH, len(bodies)), b""
    for row, body in enumerate(bodies):
        data = sealed(body, 1, attributes=GZIP)
        for column, number in ((C.POSITION, len(file)), (C.SIZE, len(data)), (C.ATTRIBUTES, GZIP)):
            table.cells[column * table.capacity + row] = number
        file += data
    table.count = len(bodies)
    return table, memoryview(file)


def told(
    packed: PackedBodies, contents: Sequence[bytes], bodies: Sequence[bytes], first: int = 0
) -> tuple[list[bytes | None], list[int]]:
    """What each row from `first` on was given as, None where there was a problem; and the sizes of the runs."""
    table, view = file_of(bodies)
    found: list[bytes | None] = []
    sizes = []
    for run in packed.runs(view, table, first, len(contents), MAX_BODY_BYTES):
        assert run.first == first + len(found)
        sizes.append(run.stop - run.first)
        if run.problem is not None:
            assert sizes[-1] == 1
            found.append(None)
            continue
        for at in range(run.stop - run.first):
            found.append(bytes(run.body[run.bounds[2 * at] : run.bounds[2 * at + 1]]))
    return found, sizes


def test_bodies_lie_one_behind_the_other() -> None:
    contents = [b"a" * size for size in (0, 1, 1000, 5)]
    packed = PackedBodies()
    assert told(packed, contents, [gzip(content) for content in contents]) == (contents, [4])
    assert told(packed, contents, [gzip(content) for content in contents], first=2) == (contents[2:], [2])


@pytest.mark.parametrize("count", [MAX_BODIES - 1, MAX_BODIES, MAX_BODIES + 1, 2 * MAX_BODIES + 3])
def test_a_run_ends_where_its_bounds_do(count: int) -> None:
    contents = [b"%d" % number for number in range(count)]
    found, sizes = told(PackedBodies(), contents, [gzip(content) for content in contents])
    assert found == contents
    assert max(sizes) == min(count, MAX_BODIES)


def test_what_does_not_fit_comes_later_or_alone() -> None:
    half, full, large = (bytes([size % 251]) * size for size in (BODY_BYTES // 2, BODY_BYTES, BODY_BYTES + 1))
    contents = [half, half, b"x", half, large, large, b"y", full, b"z"]
    found, sizes = told(PackedBodies(), contents, [gzip(content) for content in contents])
    assert found == contents
    assert sizes == [2, 2, 1, 1, 1, 1, 1]


def test_what_cannot_be_opened_comes_alone() -> None:
    contents = [b"first", b"second", b"third", b"last"]
    bodies = [gzip(content) for content in contents]
    bodies[1], bodies[2] = b"no gzip", bodies[2][:-9]
    found, sizes = told(PackedBodies(), contents, bodies)
    assert found == [b"first", None, None, b"last"]
    assert sizes == [1, 1, 1, 1]
