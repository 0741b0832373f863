"""Decide which of the batches around damage have the offsets that they claim: these bound the offsets lost in the damage.

The CRC does not cover the base offset, so a valid batch may claim any. The batches of a log have increasing, disjoint offset ranges, and
the largest set that does so in file order is believed (a longest increasing subsequence). A batch that is altered upwards is above what
follows it, a copy or one altered downwards is below what precedes it; either is dropped as soon as others outnumber it. Of two equally long
sequences the one that ends lower is believed: most bits of an offset are 0, so a flipped bit usually makes it higher.

1. `OffsetOrder` reads the valid batches before damage and keeps the last batch of the longest sequences, as patience sorting
   does: `tails[n]` ends the sequence of n batches that ends lowest (counted from the dropped ones).
2. At the damage a few batches after it are included (`around`): only what follows damage may prove wrong what precedes
   it, and vice versa.
3. Offsets that the segment cannot hold, below its base offset or not below that of its successor, are not believed, unless there are
   no others: then its name is wrong.
4. An altered batch between the damage and the believed batches still has as many offsets as its header declares: it is placed
   where it fits (`offset_fit`), and these offsets are not lost in the damage. A copy has none.

A walk that begins in the middle of a log gets the same answer if it begins with a believed batch.
"""

from bisect import bisect_left
from collections import deque
from collections.abc import Sequence
from itertools import pairwise
from operator import gt, itemgetter, le

from kseg.segment import header_tables as C
from kseg.segment import layout as L
from kseg.segment.header_tables import Columns
from kseg.segment.kernel.batch_walk import highest_offset
from kseg.segment.scanning.offset_fit import NONE, fit_offset, flipped_bit
from kseg.segment.values import dataclass

# REMEMBERED: how many sequences and batches are kept at most. ASKED_BEHIND: how many batches after damage are used at most.
REMEMBERED, ASKED_BEHIND = 16, 4

# first offset, last offset and checksum of a batch: only a batch with the same checksum is a copy
Claim = tuple[int, int, int]
_last = itemgetter(1)


@dataclass(frozen=True, slots=True)
class DamageBounds:
    """last_before: the last offset before the damage, None if no batch precedes it. first_behind: the first offset after it, None
    if unknown. least_before, most_behind: the same bounds if altered batches in between are placed as far from the damage as possible;
    headers in the damage that agree with these are stronger evidence than the positions where such batches seem to fit."""

    last_before: int | None = None
    first_behind: int | None = None
    least_before: int | None = None
    most_behind: int | None = None


def claim_of(table: Columns, row: int) -> Claim:
    """The offsets that the header of a batch claims; a batch of magic 0 or 1 has only its last one."""
    last = table.at(C.LAST_OFFSET, row)
    first = table.at(C.BASE_OFFSET, row) if table.at(C.MAGIC, row) >= L.MAGIC_V2 else last
    return first, last, table.at(C.CRC, row)


def is_misnamed(firsts: Sequence[int], base_offset: int) -> bool:
    """Whether the batches that begin a log belong to another log: the first and one of the next two are below its base offset."""
    below = [first < base_offset for first in firsts[:3]]
    return below[:1] == [True] and any(below[1:])


class OffsetOrder:
    """The valid batches before a position of a log. base_offset: from its name."""

    def __init__(self, base_offset: int) -> None:
        self._base_offset = base_offset
        self._tails: list[Claim] = []
        self._recent: deque[Claim] = deque(maxlen=REMEMBERED)
        self._is_cut = False  # shorter sequences were dropped, or precede the first batch read

    def begin_behind(self, last_offset: int) -> None:
        """Start as if preceded by a batch that ends with this offset."""
        self._tails = [(last_offset, last_offset, 0)]

    def begin_inside(self) -> None:
        """Other batches precede the first one that is added."""
        if not self._recent:
            self._is_cut = True

    def take(self, table: Columns, first: int, stop: int) -> None:
        """Add rows first … stop - 1, which follow in the file."""
        begin, last = claim_of(table, first)[0], table.at(C.LAST_OFFSET, stop - 1)
        is_ordered = not self._tails or begin > self._tails[-1][1]
        if is_ordered and last == highest_offset(table.cells, table.capacity, stop):
            first = max(first, stop - REMEMBERED)  # the highest may be one that is altered upwards
            if self._continue(table, first, stop):
                return
        for row in range(first, stop):
            each = claim_of(table, row)
            self._recent.append(each)
            if self._base_offset <= each[0] <= each[1] < L.INT64_MAX:
                self._add(each)
            elif self._base_offset:
                self._doubt_name()
        self._cut()

    def _continue(self, table: Columns, first: int, stop: int) -> bool:
        """Add rows that continue above all sequences, as nearly all rows do: each becomes the end of a longer one. If they do not, returns
        False and adds nothing."""
        firsts, lasts, checksums, magics = (
            table.cells[field * table.capacity + first : field * table.capacity + stop].tolist()
            for field in (C.BASE_OFFSET, C.LAST_OFFSET, C.CRC, C.MAGIC)
        )
        reached = max(self._base_offset - 1, self._tails[-1][1] if self._tails else -1)
        is_rising = all(map(gt, firsts, (reached, *lasts))) and all(map(le, firsts, lasts))
        if not is_rising or lasts[-1] == L.INT64_MAX or min(magics) < L.MAGIC_V2:
            return False
        claims = list(zip(firsts, lasts, checksums, strict=True))
        self._recent.extend(claims)
        self._tails += claims
        self._cut()
        return True

    def _cut(self) -> None:
        if len(self._tails) > REMEMBERED:
            del self._tails[:-REMEMBERED]
            self._is_cut = True

    def _doubt_name(self) -> None:
        """The first batch and one of the next two are below the base offset: the name is wrong."""
        if len(self._recent) <= 3 and is_misnamed([each[0] for each in self._recent], self._base_offset):
            self._base_offset, self._tails = 0, []
            for each in self._recent:
                if 0 <= each[0] <= each[1] < L.INT64_MAX:
                    self._add(each)

    def _add(self, each: Claim) -> None:
        tails = self._tails
        at = bisect_left(tails, each[0], key=_last)
        if at == len(tails):
            tails.append(each)
        elif each[1] < tails[at][1] and (at or not self._is_cut):
            tails[at] = each

    @property
    def least_last_before(self) -> int | None:
        """The lowest offset that may be the last one before what follows: the apparently last batch may be altered."""
        return self._tails[-2 if len(self._tails) > 1 else -1][1] if self._tails else None

    def around(
        self, behind: Sequence[Claim] = (), limit: int = L.INT64_MAX, following: int | None = None
    ) -> DamageBounds:
        """behind: the offsets of the batches after the damage. limit: the segment holds offsets below it. following: the first offset after
        the segment, None if unknown."""
        tails = [tail for tail in self._tails if tail[1] < limit]
        if not tails and (self._tails or len(behind) > 1) and all(each[0] >= limit for each in behind):
            # no batch is within the range of this segment: its name is wrong
            limit, tails = L.INT64_MAX, self._tails
        possible = [
            each for each in behind if each not in tails and self._base_offset <= each[0] <= each[1] < limit
        ]
        best, length, believed = -1, 0, list[Claim]()
        above, run = possible, _longest(possible)
        for number in range(1 if self._is_cut and tails else 0, len(tails) + 1):
            last = tails[number - 1][1] if number else -1
            left = [each for each in above if each[0] > last]  # the tails ascend: narrow the selection
            if len(left) < len(above):
                above, run = left, _longest(left)
            if number + len(run) > best:  # if equally long, the lower one stays
                best, length, believed = number + len(run), number, run
        first = None
        if believed:
            first = believed[0][0]
            behind = behind[: behind.index(believed[0])]
        elif all(each[1] >= limit for each in behind):
            first = following
        return self._placed(tails[:length], behind, first, limit)

    def _placed(
        self, believed: Sequence[Claim], behind: Sequence[Claim], first: int | None, limit: int
    ) -> DamageBounds:
        """The bounds between the last of `believed` and the offset `first`, after the batches between them in the file were placed."""
        last = believed[-1][1] if believed else None
        most, runs = first, _in_runs(behind)
        for each in reversed(behind):
            if first is None or most is None:
                break
            width = each[1] - each[0] + 1
            bounds = (-1 if last is None else last), first
            value = _true_first(each, bounds, believed, limit, first - width, is_of_run=each in runs)
            if value is not None:
                first, most = value, most - width
        reached = least = self._base_offset - 1 if last is None else last
        before = self._behind(believed[-1:])
        runs = _in_runs(before)
        for each in before:
            width = each[1] - each[0] + 1
            room = reached, first
            value = _true_first(each, room, believed, limit, reached + 1, is_of_run=each in runs)
            if value is not None:
                last = reached = value + width - 1
                least += width
        return DamageBounds(last, first, None if last is None else least, most)

    def _behind(self, believed: Sequence[Claim]) -> list[Claim]:
        """The batches that follow the believed one in the file; all if there is none."""
        recent = [*self._recent]
        if not believed:
            return [] if self._is_cut else recent
        at = next((at for at in range(len(recent) - 1, -1, -1) if recent[at] in believed), len(recent))
        return recent[at + 1 :]


def _in_runs(claims: Sequence[Claim]) -> set[Claim]:
    """The batches that continue the one before them or are continued by the one after them: these are rather in the wrong place than
    altered."""
    joined = [(before, after) for before, after in pairwise(claims) if before[1] + 1 == after[0]]
    return {each for pair in joined for each in pair}


def _true_first(
    claimed: Claim,
    bounds: tuple[int, int | None],
    known: Sequence[Claim],
    limit: int,
    default: int,
    *,
    is_of_run: bool,
) -> int | None:
    """The true first offset of a batch that is between two offsets but claims others; None if it has none of the offsets between them.
    Only a single flipped bit distinguishes an altered batch from one that was moved here, unless its segment cannot hold the offsets
    that it claims: then the result is `default` if several values fit. known: other batches."""
    if claimed in known or claimed[1] < claimed[0] or is_of_run:
        return None  # a copy, or moved here with others
    fit = fit_offset(claimed[0], claimed[1] - claimed[0] + 1, *bounds)
    if fit.strength == NONE or (claimed[1] < limit and flipped_bit(claimed[0], fit.value, 64) is None):
        return None
    return default if fit.value is None else fit.value


def _longest(ranges: Sequence[Claim]) -> list[Claim]:
    """The longest sequence of increasing ranges, and of equally long ones the one that ends lowest."""
    found: list[list[Claim]] = []  # by length
    for each in ranges:
        at = bisect_left(found, each[0], key=lambda run: run[-1][1])
        run = [*(found[at - 1] if at else ()), each]
        if at == len(found):
            found.append(run)
        elif each[1] < found[at][-1][1]:
            found[at] = run
    return found[-1] if found else []
