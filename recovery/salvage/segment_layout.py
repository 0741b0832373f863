"""Which segment holds what stays: the stretches in their order become files again.

1. The names give a frame: a segment's range reaches from its base offset to the next one's. Consecutive stretches
   of one log form a group; a group belongs to the range that holds its first offset.
2. In a range, everything from the first to the last group of its own log becomes one file, what lies between
   included: batches that were moved or swapped are put where their offsets belong.
3. A group before or behind that which is all that stays of its log is a file of its own: a segment in a wrong place,
   or one whose beginning another segment holds. A mere part of a log goes into the file beside it.
4. A file keeps the base offset of its name when that lies between the end of the file before and its first batch;
   otherwise it is named by its first batch, as a broker names a new segment. No two files have one name.
5. An offset that lies too far from the base (2^31 - 1), or more bytes than a broker can open (2 GiB), begins a new file
   at that batch, as a broker's split does.
6. A log of which no batch stays: emptied when nothing but damage was in it (a broker does the same, and the offsets
   below its base stay spoken for); gone when other files hold its offsets.
"""

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import groupby

from kseg.recovery.salvage.logs import Logs, ValidRun
from kseg.recovery.verify.header_plausibility import first_of
from kseg.segment import header_tables as C
from kseg.segment import layout as L
from kseg.segment.values import dataclass


@dataclass(frozen=True, slots=True)
class PlannedSegment:
    """One file to be. origin: number of the found log whose name and times it takes on, None for a split's."""

    base_offset: int
    stretches: tuple[ValidRun, ...]
    origin: int | None

    @property
    def end_offset(self) -> int:
        return self.stretches[-1].last_offset + 1 if self.stretches else self.base_offset

    @property
    def size_bytes(self) -> int:
        return sum(stretch.length for stretch in self.stretches)


@dataclass(frozen=True, slots=True)
class _Draft:
    """Stretches for one file, not named yet."""

    origin: int
    stretches: tuple[ValidRun, ...]


@dataclass(frozen=True, slots=True)
class _Group:
    """Consecutive stretches of one log, those that are taken from sources into its damage included."""

    log: int
    stretches: tuple[ValidRun, ...]


def arrange(
    logs: Logs, kept: Sequence[ValidRun], emptied: Iterable[int], max_bytes: int = L.MAX_SEGMENT_BYTES
) -> tuple[PlannedSegment, ...]:
    """kept: in order of their offsets. emptied: logs of which nothing stays and whose name still holds."""
    drafts = [*_drafts(logs, kept)]
    drafts += [_Draft(number, ()) for number in emptied]
    drafts.sort(key=lambda draft: (_first(logs, draft), bool(draft.stretches)))
    segments: list[PlannedSegment] = []
    end, least = 0, 0  # of the offsets before; the least base offset that is free
    for draft in drafts:
        named = logs[draft.origin].base_offset
        first = logs.true_first_offset(draft.stretches[0]) if draft.stretches else named
        if not draft.stretches and (named < end or named < least):
            continue
        # where the inner offsets of an old wrapper reach below what is before it, its file begins behind that
        base = named if max(end, least) <= named <= first else max(first, end)
        for segment in _split(logs, PlannedSegment(base, draft.stretches, draft.origin), max_bytes):
            segments.append(segment)
            end, least = segment.end_offset, segment.base_offset + 1
    return tuple(segments)


def _first(logs: Logs, draft: _Draft) -> int:
    return draft.stretches[0].first_offset if draft.stretches else logs[draft.origin].base_offset


def _drafts(logs: Logs, kept: Sequence[ValidRun]) -> Iterator[_Draft]:
    groups = [
        _Group(home, tuple(group)) for home, group in groupby(kept, key=lambda each: logs.home(each.log))
    ]
    groups_of: dict[int, int] = {}
    for group in groups:
        groups_of[group.log] = groups_of.get(group.log, 0) + 1
    bases = [logs[number].base_offset for number in range(len(logs))]
    ranges = groupby(
        groups, key=lambda group: max(0, bisect_right(bases, group.stretches[0].first_offset) - 1)
    )
    for owner, in_range in ranges:
        yield from _in_range(owner, list(in_range), groups_of)


def _in_range(owner: int, groups: list["_Group"], groups_of: dict[int, int]) -> Iterator[_Draft]:
    """The files of one range of offsets."""
    own = [at for at, group in enumerate(groups) if group.log == owner]
    if own:
        start, stop = own[0], own[-1] + 1
        while start and groups_of[groups[start - 1].log] > 1:
            start -= 1
        while stop < len(groups) and groups_of[groups[stop].log] > 1:
            stop += 1
    else:
        start = stop = len(groups)
    for group in groups[:start]:
        yield _Draft(group.log, group.stretches)
    if own:
        yield _Draft(owner, tuple(stretch for group in groups[start:stop] for stretch in group.stretches))
    for group in groups[stop:]:
        yield _Draft(group.log, group.stretches)


def _split(logs: Logs, segment: PlannedSegment, max_bytes: int) -> Iterator[PlannedSegment]:
    """The segment, or several when a broker could not hold it as one."""
    base, origin = segment.base_offset, segment.origin
    size, parts, is_new = 0, list[ValidRun](), False
    for stretch in segment.stretches:
        rest: ValidRun | None = stretch
        while rest is not None:
            head: ValidRun | None = rest
            if rest.last_offset <= base + L.INT32_MAX and size + rest.length <= max_bytes:
                rest = None
            else:
                head, rest = _cut(logs, rest, max_bytes - size, base + L.INT32_MAX, is_new and not parts)
            if head is not None:
                parts.append(head)
                size += head.length
            if rest is not None:
                least = 0
                if parts:
                    yield PlannedSegment(base, tuple(parts), origin)
                    least = parts[-1].last_offset + 1
                    size, parts, origin = 0, [], None
                base, is_new = max(logs.true_first_offset(rest), least), True
    yield PlannedSegment(base, tuple(parts), origin)


def _cut(
    logs: Logs, stretch: ValidRun, room_bytes: int, reach: int, takes_one: bool
) -> tuple[ValidRun | None, ValidRun | None]:
    """The beginning of a stretch that has room and ends at or below `reach`, and the rest. takes_one: the first batch
    belongs to the beginning whatever its size."""
    batches = 0
    last, epoch = stretch.first_offset - 1, L.NO_LEADER_EPOCH
    for table in logs.tables(stretch):
        for row in range(table.count):
            position = table.at(C.POSITION, row)
            end = position + table.at(C.SIZE, row)
            fits = end - stretch.position <= room_bytes and table.at(C.LAST_OFFSET, row) <= reach
            if fits or (takes_one and not batches):
                batches, last = batches + 1, table.at(C.LAST_OFFSET, row)
                epoch = table.at(C.LEADER_EPOCH, row)
                continue
            length = position - stretch.position
            rest = replace(
                stretch,
                position=position,
                length=stretch.length - length,
                first_offset=first_of(table, row),
                batches=stretch.batches - batches,
                first_epoch=table.at(C.LEADER_EPOCH, row),
            )
            if not batches:
                return None, rest
            return replace(stretch, length=length, last_offset=last, batches=batches, last_epoch=epoch), rest
    return stretch, None
