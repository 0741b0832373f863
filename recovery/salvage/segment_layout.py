"""Distribute the salvaged batches over segments.

1. File names define the ranges: a segment covers the offsets from its base offset to the next one. Consecutive valid runs
   of one log form a group; a group belongs to the range that contains its first offset.
2. In a range, everything from the first to the last group of its own log becomes one file, including what is in
   between: moved or swapped batches are put where their offsets belong.
3. A group outside that span becomes a file of its own if it is all that is left of its log: a segment in the wrong place, or one whose
   beginning is in another segment. A group that is only part of a log goes into the adjacent file.
4. A file keeps the base offset of its name when that is between the end of the previous file and its first batch;
   otherwise it is named after its first batch, as a broker names a new segment. No two files have one name.
5. An offset that is too far from the base offset (2^31 - 1), or more bytes than a broker can open (2 GiB), starts a new
   file at that batch, as a broker's split does.
6. A log without any kept batch is truncated to 0 bytes if it contained only damage (a broker does the same, and the offsets
   below its base offset remain used); it is removed if other files have its offsets.
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
    """A planned file. origin: number of the found log whose name and times it takes over, None for a part of a split."""

    base_offset: int
    valid_runs: tuple[ValidRun, ...]
    origin: int | None

    @property
    def end_offset(self) -> int:
        """The next offset. A batch may declare a last offset below 0; no batch can come after it, but snapshots are named by an offset."""
        return max(0, self.valid_runs[-1].last_offset + 1) if self.valid_runs else self.base_offset

    @property
    def size_bytes(self) -> int:
        return sum(valid_run.length for valid_run in self.valid_runs)


@dataclass(frozen=True, slots=True)
class _UnnamedFile:
    """Valid runs for one file that has no name yet."""

    origin: int
    valid_runs: tuple[ValidRun, ...]


@dataclass(frozen=True, slots=True)
class _Group:
    """Consecutive valid runs of one log, including those that sources contribute in place of its damage."""

    log: int
    valid_runs: tuple[ValidRun, ...]


def arrange(
    logs: Logs, kept: Sequence[ValidRun], emptied: Iterable[int], max_bytes: int = L.MAX_SEGMENT_BYTES
) -> tuple[PlannedSegment, ...]:
    """The planned segments. kept: valid runs, in order of their offsets. emptied: logs without a kept batch whose names stay valid."""
    unnamed_files = [*_unnamed_files(logs, kept)]
    unnamed_files += [_UnnamedFile(number, ()) for number in emptied]
    unnamed_files.sort(
        key=lambda working_image: (_first(logs, working_image), bool(working_image.valid_runs))
    )
    segments: list[PlannedSegment] = []
    end, least = 0, 0  # the end of the previous offsets; the least base offset that is free
    for working_image in unnamed_files:
        named = logs[working_image.origin].base_offset
        first = logs.true_first_offset(working_image.valid_runs[0]) if working_image.valid_runs else named
        if not working_image.valid_runs and (named < end or named < least):
            continue
        # if inner offsets of an old wrapper overlap the previous segment, its file begins after that segment
        base = named if max(end, least) <= named <= first else max(first, end)
        origin = working_image.origin
        if segments and segments[-1].base_offset == base and segments[-1].origin is not None:
            origin = segments.pop().origin or 0  # an empty log of this name gets the batches
        for segment in _split(logs, PlannedSegment(base, working_image.valid_runs, origin), max_bytes):
            segments.append(segment)
            end, least = segment.end_offset, segment.base_offset + 1
    return tuple(segments)


def _first(logs: Logs, working_image: _UnnamedFile) -> int:
    return (
        working_image.valid_runs[0].first_offset
        if working_image.valid_runs
        else logs[working_image.origin].base_offset
    )


def _unnamed_files(logs: Logs, kept: Sequence[ValidRun]) -> Iterator[_UnnamedFile]:
    groups = [
        _Group(target_log, tuple(group))
        for target_log, group in groupby(kept, key=lambda each: logs.target_log(each.log))
    ]
    groups_of: dict[int, int] = {}
    for group in groups:
        groups_of[group.log] = groups_of.get(group.log, 0) + 1
    bases = [logs[number].base_offset for number in range(len(logs))]
    ranges = groupby(
        groups, key=lambda group: max(0, bisect_right(bases, group.valid_runs[0].first_offset) - 1)
    )
    for owner, in_range in ranges:
        yield from _in_range(owner, list(in_range), groups_of)


def _in_range(owner: int, groups: list["_Group"], groups_of: dict[int, int]) -> Iterator[_UnnamedFile]:
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
        yield _UnnamedFile(group.log, group.valid_runs)
    if own:
        yield _UnnamedFile(
            owner, tuple(valid_run for group in groups[start:stop] for valid_run in group.valid_runs)
        )
    for group in groups[stop:]:
        yield _UnnamedFile(group.log, group.valid_runs)


def _split(logs: Logs, segment: PlannedSegment, max_bytes: int) -> Iterator[PlannedSegment]:
    """The segment, or several if a broker could not hold it as one."""
    base, origin = segment.base_offset, segment.origin
    size, parts, is_new = 0, list[ValidRun](), False
    for valid_run in segment.valid_runs:
        rest: ValidRun | None = valid_run
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
    logs: Logs, valid_run: ValidRun, free_bytes: int, reach: int, takes_one: bool
) -> tuple[ValidRun | None, ValidRun | None]:
    """Split a valid run into the beginning that has room and ends at or below `reach`, and the rest. takes_one: the beginning gets the
    first batch whatever its size."""
    batches = 0
    last, epoch = valid_run.first_offset - 1, L.NO_LEADER_EPOCH
    for table in logs.tables(valid_run):
        for row in range(table.count):
            position = table.at(C.POSITION, row)
            end = position + table.at(C.SIZE, row)
            fits = end - valid_run.position <= free_bytes and table.at(C.LAST_OFFSET, row) <= reach
            if fits or (takes_one and not batches):
                batches, last = batches + 1, table.at(C.LAST_OFFSET, row)
                epoch = table.at(C.LEADER_EPOCH, row)
                continue
            length = position - valid_run.position
            rest = replace(
                valid_run,
                position=position,
                length=valid_run.length - length,
                first_offset=first_of(table, row),
                batches=valid_run.batches - batches,
                first_epoch=table.at(C.LEADER_EPOCH, row),
            )
            if not batches:
                return None, rest
            return replace(
                valid_run, length=length, last_offset=last, batches=batches, last_epoch=epoch
            ), rest
    return valid_run, None
