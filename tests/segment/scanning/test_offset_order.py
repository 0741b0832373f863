"""Only trusted batches limit the offsets lost to damage; an altered base offset limits nothing."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kseg.segment import header_tables as C
from kseg.segment import layout as L
from kseg.segment.header_tables import Columns
from kseg.segment.scanning.offset_order import Claim, DamageBounds, OffsetOrder, is_misnamed

WIDTH = 10
# stands for the checksum of a magic 1 message
OLD_FORMAT = 99


def batch(number: int) -> Claim:
    """The batch with this number in a log without gaps."""
    return moved(number, number * WIDTH)


def log(*numbers: int) -> list[Claim]:
    return [batch(number) for number in numbers]


def moved(number: int, to: int) -> Claim:
    return to, to + WIDTH - 1, number


def order_of(before: list[Claim], base_offset: int = 0, rows: int = 3) -> OffsetOrder:
    order = OffsetOrder(base_offset)
    fill(order, before, rows)
    return order


def fill(order: OffsetOrder, before: list[Claim], rows: int) -> None:
    """Add batches in tables of `rows` rows."""
    for start in range(0, len(before), rows):
        part = before[start : start + rows]
        table = Columns(C.BATCH_WIDTH, rows)
        table.count = len(part)
        for row, (first, last, checksum) in enumerate(part):
            table.cells[C.MAGIC * rows + row] = 1 if checksum == OLD_FORMAT else L.MAGIC_V2
            table.cells[C.BASE_OFFSET * rows + row] = first
            table.cells[C.LAST_OFFSET * rows + row] = last
            table.cells[C.CRC * rows + row] = checksum
        order.take(table, 0, len(part))


@pytest.mark.parametrize("rows", [1, 3, 100])
@pytest.mark.parametrize("batches", [1, 2, 17, 60])
def test_damage_in_an_ordinary_log_is_bounded_by_its_neighbours(rows: int, batches: int) -> None:
    order = order_of(log(*range(batches)), rows=rows)
    end = batches * WIDTH
    assert order.around() == DamageBounds(end - 1, None, end - 1)
    assert order.around(log(batches + 3, batches + 4)) == DamageBounds(end - 1, end + 30, end - 1, end + 30)
    assert order.around((), 10_000, 10_000) == DamageBounds(end - 1, 10_000, end - 1, 10_000)


class _RowByRow(OffsetOrder):
    """Without the fast path for rows that continue above all others."""

    def _continue(self, table: Columns, first: int, stop: int) -> bool:
        return False


_OFFSETS = st.one_of(
    st.integers(-3, 60), st.sampled_from([L.INT64_MAX, L.INT64_MAX - 1, -(1 << 63), 1 << 31, 1 << 40])
)


@st.composite
def claims(draw: st.DrawFn) -> list[Claim]:
    """Runs of batches in order, some of them altered or of an old format."""
    found: list[Claim] = []
    for start in draw(st.lists(st.integers(-20, 50), max_size=4)):
        begin = max(0, start + (len(found) if draw(st.booleans()) else 0))
        found += log(*range(begin, begin + draw(st.integers(1, 40))))
    for _ in range(draw(st.integers(0, 4)) if found else 0):
        at = draw(
            st.sampled_from(
                [0, len(found) - 1, max(0, len(found) - 16), draw(st.integers(0, len(found) - 1))]
            )
        )
        first, last, checksum = found[at]
        match draw(st.integers(0, 3)):
            case 0:
                found[at] = first, last, OLD_FORMAT
            case 1:
                found[at] = first, L.INT64_MAX, checksum
            case 2:
                found[at] = moved(at, draw(st.integers(0, 600)))
            case _:
                found[at] = draw(_OFFSETS), draw(_OFFSETS), checksum
    return found


@pytest.mark.slow
@settings(max_examples=1000)
@given(
    claims(),
    st.sampled_from([0, 1, 30, 200]),
    st.sampled_from([1, 5, 17, 25, 200]),
    st.booleans(),
)
def test_fast_path_gives_the_row_by_row_result(
    before: list[Claim], base_offset: int, rows: int, is_inside: bool
) -> None:
    fast, slow = OffsetOrder(base_offset), _RowByRow(base_offset)
    for order in (fast, slow):
        if is_inside:
            order.begin_inside()
        fill(order, before, rows)
    assert vars(fast) == vars(slow)


@pytest.mark.parametrize("at", range(12))
@pytest.mark.parametrize("bit", [5, 7, 12, 31, 40, 62])
@pytest.mark.parametrize("rows", [1, 5, 100])
def test_altered_offset_before_damage_moves_no_bound(at: int, bit: int, rows: int) -> None:
    """This holds for any batch, too high or too low."""
    before = log(*range(12))
    first = before[at][0] ^ 1 << bit
    before[at] = moved(at, first)
    bounds = order_of(before, rows=rows).around(log(14, 15, 16, 17))
    assert bounds == DamageBounds(119, 140, 119, 140)


@pytest.mark.parametrize("at", range(2))
@pytest.mark.parametrize("bit", [8, 12, 31, 40, 62])
def test_altered_offset_after_damage_moves_no_bound(at: int, bit: int) -> None:
    behind = log(14, 15, 16, 17)
    behind[at] = moved(at, behind[at][0] ^ 1 << bit)
    bounds = order_of(log(*range(12))).around(behind)
    assert (bounds.last_before, bounds.first_behind) == (119, 140)


def test_negative_offset_moves_no_bound() -> None:
    before = [*log(*range(5)), moved(5, 50 - (1 << 63))]
    assert order_of(before).around(log(8, 9)) == DamageBounds(59, 80, 59, 80)


def test_duplicate_batches_move_no_bound() -> None:
    before = [*log(*range(8)), *log(3, 4, 5)]
    assert order_of(before).around(log(10, 11)) == DamageBounds(79, 100, 79, 100)
    assert order_of(log(*range(8))).around(log(6, 7)) == DamageBounds(79, None, 79)


def test_altered_batch_with_the_offsets_of_another_is_not_a_duplicate() -> None:
    """Of 13 batches with 8 offsets each, bit 5 of the last base offset is flipped."""
    claims = [(number * 8, number * 8 + 7, number) for number in range(16)]
    assert order_of([*claims[:12], (64, 71, 12)]).around(claims[14:]) == DamageBounds(103, 112, 103, 112)
    assert order_of([*claims[:12], claims[8]]).around(claims[14:]) == DamageBounds(95, 112, 95, 112)


def test_more_duplicates_than_are_remembered_move_no_bound() -> None:
    assert order_of(log(*range(40), *range(2, 32))).around(log(45, 46)) == DamageBounds(399, 450, 399, 450)


def test_next_segment_bounds_the_log_end() -> None:
    """The last batch claims an offset beyond the base offset of the next segment."""
    before = [*log(*range(4)), moved(4, 40 + (1 << 20))]
    assert order_of(before).around((), 90, 90) == DamageBounds(49, 90, 49, 90)


def test_only_batch_after_damage_beyond_the_next_segment_is_not_trusted() -> None:
    bounds = order_of(log(*range(4))).around([moved(6, 60 + (1 << 20))], 70, 70)
    assert bounds == DamageBounds(39, 60, 39, 60)


def test_wrong_file_name_proves_no_altered_offset() -> None:
    """Either all batches are below the base offset in the name, or one of them is altered."""
    assert order_of(log(*range(6)), 500).around(log(8, 9), 900, 900) == DamageBounds(59, 80, 59, 80)
    before = [*log(0), moved(1, 10 + (1 << 24)), *log(2, 3)]
    assert order_of(before, 500).around(log(8, 9), 900, 900) == DamageBounds(39, 80, 39, 80)
    assert order_of(log(*range(6)), 0).around(log(8, 9), 30, 30).first_behind in (30, None)
    assert not is_misnamed([600, 0, 10], 500) and not is_misnamed([0], 500)


def test_single_batch_below_the_base_offset_is_not_trusted() -> None:
    """A base offset that was overwritten with zeros, as at the edge of a hole."""
    before = [*log(50, 51), moved(52, 0)]
    assert order_of(before, 500).around(log(55)).last_before == 519


def test_altered_only_batch_before_damage_moves_no_bound() -> None:
    order = order_of([moved(6, 60 + (1 << 40))], 60)
    assert order.around(log(9, 10, 11), 120, 120) == DamageBounds(69, 90, 69, 90)


def test_reading_from_the_middle_gives_the_same_bounds() -> None:
    """A batch after the damage does not become more plausible by claiming an offset near the start."""
    order = OffsetOrder(0)
    order.begin_inside()
    table = Columns(C.BATCH_WIDTH, 1)
    table.count = 1
    table.cells[C.MAGIC], table.cells[C.BASE_OFFSET], table.cells[C.LAST_OFFSET] = L.MAGIC_V2, 40, 49
    order.take(table, 0, 1)
    assert order.around([moved(6, 0), *log(7, 8, 9)]).last_before == 49


@pytest.mark.parametrize("count", [2, 5, 22])
def test_batches_of_another_segment_that_follow_one_another_are_not_taken_for_altered(count: int) -> None:
    """A block with batches of the next segment at the beginning of a file: they have none of the offsets that are missing there."""
    order = order_of([*log(*range(60, 60 + count))])
    assert order.around(log(40, 41, 42, 43), 500, 500) == DamageBounds(None, 400, None, 400)
    # one alone may be altered
    assert order_of(log(60)).around(log(40, 41, 42, 43), 500, 500) != DamageBounds(None, 400, None, 400)
