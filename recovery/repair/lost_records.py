"""What each policy loses, counted in records and offsets that consumers no longer get.

1. The reference is what salvage keeps: the batches of its image, and valid batches that it removes because no log can hold them. Damaged
   records are lost with either policy.
2. Policy kafka loses those that a consumer of the broker's log does not receive (`consumer_view`): because they were truncated, because no
   fetch finds them, or because retention deletes their segment (`retention_after_load`).
3. If the headers in damage do not give the number of records, its offsets are counted, provided that every offset of the log is a record:
   no gaps, no transactions. After a cleaning, or with control records, the count is unknown. The same holds where a closed segment ends in
   damage and more offsets than that are missing before the next one. A gap without damage existed before, and is no loss of either policy.
4. Batches with a valid checksum stay even if consumers do not receive them in full (`verify.unread_batch`); the missing records count for
   both policies.

Segments that both policies leave identical are not opened.
"""

import bisect
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import zip_longest

from kseg.change.plan.directory_image import DirectoryImage
from kseg.recovery.policy import Removed, Repair
from kseg.recovery.repair.consumer_view import ConsumerView, Content, log_names
from kseg.recovery.salvage.image_reader import ImageReader
from kseg.segment import header_tables as C
from kseg.segment import layout as L
from kseg.segment.files import MappedFile
from kseg.segment.header_tables import Columns
from kseg.segment.offset_ranges import OffsetRange, OffsetSet, minus, union
from kseg.segment.partition.names import segment_file_name
from kseg.segment.scanning.lost_offsets import UnreadBatch, plus, records_of
from kseg.segment.scanning.scan import Scanner
from kseg.segment.values import dataclass

_LOST_TAIL = "lost-tail"


@dataclass(frozen=True, slots=True)
class Lost:
    """ranges: lost offsets, in order; they may overlap. records: None when unknown. is_bounded: whether the ranges cover everything that is
    lost, so that there are at most as many records as offsets."""

    ranges: tuple[OffsetRange, ...] = ()
    records: int | None = 0
    is_bounded: bool = True


def lost_by_removal(removed: Iterable[Removed], kept: Sequence[OffsetRange] = ()) -> Lost:
    """Records and offsets lost because their bytes are removed from the logs. kept: offsets of batches that stay; the range of damage may
    contain them if the blocks of a file are not in order."""
    entries = [*removed]
    records: int | None = 0
    for entry in entries:
        records = plus(records, entry.records)
    is_bounded = all(
        entry.records == 0 or None not in (entry.first_offset, entry.last_offset) for entry in entries
    )
    valid = _ranges(entry for entry in entries if entry.batches)
    damaged = _ranges(entry for entry in entries if not entry.batches)
    ranges = [*valid, *(minus(union(damaged), union(kept)) if kept else damaged)]
    return Lost(tuple(sorted(ranges)), records, is_bounded)


def lost_by_reading(unread: Iterable[UnreadBatch]) -> Lost:
    """Records and offsets that consumers do not receive although their batches stay."""
    ranges: list[OffsetRange] = []
    records: int | None = 0
    for batch in unread:
        if batch.lost != 0:
            first = min(batch.first_offset + (batch.given or 0), batch.last_offset)
            ranges.append((first, batch.last_offset))
            records = plus(records, batch.lost)
    return Lost(tuple(sorted(ranges)), records)


def both_lost(one: Lost, other: Lost) -> Lost:
    ranges = tuple(sorted([*one.ranges, *other.ranges]))
    return Lost(ranges, plus(one.records, other.records), one.is_bounded and other.is_bounded)


def lost_by_each(
    directory: str,
    found: Mapping[str, int],
    salvaged: Repair,
    loaded: Repair,
    deleted: frozenset[str] = frozenset(),
    *,
    is_compacted: bool = False,
) -> tuple[Lost, Lost]:
    """(by salvage, by policy kafka).

    found: names and sizes of the files. is_compacted: the topic is known to be compacted. deleted: logs that the broker's retention deletes
    because of wrong time indexes. Raises UnreadableInput, and Refused when there is no room to assemble a large file.
    """
    removed = _removed(directory, found, salvaged, is_compacted)
    valid = [entry for entry in removed if entry.batches and entry.records]
    damage = lost_by_removal((entry for entry in removed if not entry.batches), salvaged.kept)
    comparison = _Comparison(directory, salvaged, loaded, deleted)
    missing = comparison.missing(valid)
    by_salvage = both_lost(
        lost_by_removal(removed, salvaged.kept), lost_by_reading(comparison.unread_by_salvage)
    )
    return by_salvage, both_lost(damage, missing)


def lost_by_salvage(
    directory: str, found: Mapping[str, int], salvaged: Repair, *, is_compacted: bool = False
) -> Lost:
    """The first element of `lost_by_each`, for a log that a broker fails to load. The arguments and exceptions are the same."""
    removed = _removed(directory, found, salvaged, is_compacted)
    return both_lost(lost_by_removal(removed, salvaged.kept), lost_by_reading(salvaged.unread))


def _removed(directory: str, found: Mapping[str, int], salvaged: Repair, is_compacted: bool) -> list[Removed]:
    counted = _counted(directory, salvaged, found, is_compacted)
    return [_without_unread(entry, salvaged.unread) for entry in counted]


def _without_unread(entry: Removed, unread: Sequence[UnreadBatch]) -> Removed:
    """Drop offsets that are missing beyond the log end, but keep records of a batch whose header claims a lower last offset."""
    if entry.cause != _LOST_TAIL or entry.first_offset is None or entry.last_offset is None:
        return entry
    held = [
        batch.last_offset for batch in unread if batch.first_offset < entry.first_offset <= batch.last_offset
    ]
    first = max(held, default=entry.first_offset - 1) + 1
    if first > entry.last_offset:
        return replace(entry, first_offset=None, last_offset=None, records=0)
    records = None if entry.records is None else max(0, entry.records - (first - entry.first_offset))
    return replace(entry, first_offset=first, records=records)


def _ranges(removed: Iterable[Removed]) -> Iterator[OffsetRange]:
    for entry in removed:
        if entry.first_offset is not None and entry.last_offset is not None:
            yield entry.first_offset, entry.last_offset


# --- records of what salvage takes out


def _counted(directory: str, salvaged: Repair, found: Mapping[str, int], is_compacted: bool) -> list[Removed]:
    """What salvage removes, with record counts filled in where the entries lack them. found: names and sizes of the original files."""
    counted: list[Removed] = []
    bases = sorted(log.base_offset for log in log_names(found))
    removed = [_with_gap(entry, bases, found) for entry in salvaged.removed]
    is_dense = False if is_compacted else None
    # offsets whose records stay or are counted: what two parts of damage on either side of a misplaced block may have held is lost once
    of_counted = (
        (first, last)
        for entry in removed
        for first, last in _ranges([entry])
        if entry.records == last - first + 1
    )
    known = OffsetSet((*salvaged.kept, *of_counted))
    for entry in removed:
        if entry.records is not None or entry.first_offset is None or entry.last_offset is None:
            counted.append(entry)
        elif entry.batches:
            records: int | None = 0
            for batch in _valid_batches(directory, entry):
                records = plus(records, batch.records)
            counted.append(replace(entry, records=records))
        else:
            if is_dense is None:
                is_dense = _is_dense(directory, salvaged, OffsetSet(_ranges(removed)))
            count = known.add(entry.first_offset, entry.last_offset)
            counted.append(replace(entry, records=count) if is_dense else entry)
    return counted


def _with_gap(entry: Removed, bases: Sequence[int], found: Mapping[str, int]) -> Removed:
    """Damage at the end of a closed segment, extended to the base offset of the next one: more than the partially preserved batch may be
    missing."""
    if entry.batches or entry.last_offset is None or entry.position + entry.length != found.get(entry.file):
        return entry
    at = bisect.bisect_right(bases, entry.last_offset)
    if at == len(bases) or bases[at] == entry.last_offset + 1:
        return entry
    return replace(entry, last_offset=bases[at] - 1, records=None)


def _is_dense(directory: str, salvaged: Repair, lost: OffsetSet) -> bool:
    """Whether every offset of the log that is not lost is a record that consumers receive."""
    reader = ImageReader(directory, salvaged.image)
    expected: int | None = None
    for log in log_names(salvaged.image):
        with reader.open(log.name) as file:
            for table in _tables(file.view, log.base_offset):
                for row in range(table.count):
                    first, last = table.at(C.BASE_OFFSET, row), table.at(C.LAST_OFFSET, row)
                    if not _is_full(table, row):
                        return False
                    if expected is not None and first != expected and not lost.covers(expected, first - 1):
                        return False
                    expected = last + 1
    return expected is not None


def _is_full(table: Columns, row: int) -> bool:
    width = table.at(C.LAST_OFFSET, row) - table.at(C.BASE_OFFSET, row) + 1
    of_transactions = table.at(C.ATTRIBUTES, row) & (L.TRANSACTIONAL_BIT | L.CONTROL_BIT)
    return table.at(C.MAGIC, row) == L.MAGIC_V2 and table.at(C.COUNT, row) == width and not of_transactions


# --- what consumers do not receive of what salvage keeps


@dataclass(frozen=True, slots=True)
class _Batch:
    content: Content
    first_offset: int
    last_offset: int
    records: int | None


class _Comparison:
    """unread_by_salvage: batches that salvage keeps and a consumer does not receive in full, set by `missing`."""

    def __init__(self, directory: str, salvaged: Repair, loaded: Repair, deleted: frozenset[str]) -> None:
        self._directory = directory
        self._salvaged = salvaged
        self._loaded = loaded
        self._unread = {batch.content: batch for batch in salvaged.unread}
        self.unread_by_salvage: list[UnreadBatch] = []
        self._wanted = log_names(salvaged.image)
        self._served = [log for log in log_names(loaded.image) if log.name not in deleted]
        self._end = loaded.log_end_offset
        start = loaded.log_start_offset
        if deleted:
            start = max(start, min((log.base_offset for log in self._served), default=self._end))
        self._start = start

    def missing(self, valid: Sequence[Removed]) -> Lost:
        """What consumers do not receive. valid: batches that salvage removes although they are valid."""
        identical = self._identical()
        reader = ImageReader(self._directory, self._salvaged.image)
        batches: list[_Batch] = []
        for log in self._wanted:
            if log.base_offset not in identical:
                with reader.open(log.name) as file:
                    for table in _tables(file.view, log.base_offset):
                        batches += self._batches(table)
        kept = {batch.content for batch in batches}
        self.unread_by_salvage = [self._unread[b.content] for b in batches if b.content in self._unread]
        for entry in valid:
            batches += (each for each in _valid_batches(self._directory, entry) if each.content not in kept)
        if not batches:
            return Lost()
        bounds = self._start, self._end
        stops = {content for content, batch in self._unread.items() if batch.stops_reader}
        image = self._loaded.image
        with ConsumerView(self._directory, image, self._served, bounds, identical, stops) as view:
            view.read_from(self._start)
            for batch in batches:
                for offset in (batch.first_offset, batch.last_offset):  # an index entry may hold either
                    given = view.given.get(batch.content, {}).get(batch.first_offset)
                    if given is None or given > offset:
                        view.read_from(offset)
            return self._not_given(batches, view)

    def _batches(self, table: Columns) -> Iterator[_Batch]:
        for batch in _batches(table):
            unread = self._unread.get(batch.content)
            yield batch if unread is None else replace(batch, records=unread.records)

    def _identical(self) -> dict[int, int]:
        """Segments with the same bytes under both policies that a broker serves and a consumer reads completely."""
        images = self._loaded.image, self._salvaged.image
        if self._start != self._salvaged.log_start_offset or not self._served:
            return {}
        identical: dict[int, int] = {}
        after = dict(zip_longest(self._served, self._served[1:]))
        for log, following in zip_longest(self._wanted, self._wanted[1:]):
            if log not in after or after[log] != following:
                continue
            end = self._salvaged.log_end_offset if following is None else following.base_offset
            names = log.name, segment_file_name(log.base_offset, L.OFFSET_INDEX_SUFFIX)
            is_read = not any(log.base_offset <= batch.first_offset < end for batch in self._unread.values())
            if is_read and end <= self._end and not any(_differs(name, *images) for name in names):
                identical[log.base_offset] = end
        return identical

    def _not_given(self, batches: Sequence[_Batch], view: ConsumerView) -> Lost:
        given, elsewhere, unread = view.given, list[_Batch](), list[UnreadBatch]()
        ranges: list[OffsetRange] = []
        records: int | None = 0
        for is_second in (False, True):
            for batch in elsewhere if is_second else batches:
                found = given.get(batch.content, {})
                first = batch.first_offset if batch.first_offset in found or not found else min(found)
                if not is_second and first != batch.first_offset:
                    elsewhere.append(batch)  # batches that are returned with their own offset come first
                    continue
                from_offset = found.pop(first, None)
                missing = _missing(batch, None if from_offset is None else from_offset - first)
                if missing is not None:
                    ranges.append(missing[0])
                    records = plus(records, missing[1])
                if from_offset is not None and batch.content in self._unread:
                    unread.append(self._unread[batch.content])
        return both_lost(Lost(tuple(sorted(ranges)), records), lost_by_reading(unread))


def _missing(batch: _Batch, delta: int | None) -> tuple[OffsetRange, int | None] | None:
    """(offsets, records) of a batch that are not returned; delta: where the returned part begins, None if nothing is returned."""
    if delta is None:
        return (batch.first_offset, batch.last_offset), batch.records
    if delta <= 0:
        return None
    is_full = batch.records == batch.last_offset - batch.first_offset + 1
    records = delta if is_full else 0 if batch.records == 0 else None
    return (batch.first_offset, batch.first_offset + delta - 1), records


def _differs(name: str, image: DirectoryImage, other: DirectoryImage) -> bool:
    if name not in image or name not in other:
        return (name in image) != (name in other)
    return image.content(name) != other.content(name)


def _tables(view: memoryview, base_offset: int) -> Iterator[Columns]:
    return (block for block in Scanner(view, base_offset).blocks() if isinstance(block, Columns))


def _batches(table: Columns) -> Iterator[_Batch]:
    for row in range(table.count):
        content = table.at(C.CRC, row), table.at(C.SIZE, row)
        first, last = table.at(C.BASE_OFFSET, row), table.at(C.LAST_OFFSET, row)
        yield _Batch(content, first, last, records_of(table, row, row + 1))


def _valid_batches(directory: str, removed: Removed) -> list[_Batch]:
    """The valid batches in a range that salvage removes."""
    found: list[_Batch] = []
    with MappedFile(os.path.join(directory, removed.file)) as file:
        scanner = Scanner(file.view)
        for table in scanner.valid_within(removed.position, removed.position + removed.length):
            found += _batches(table)
    return found
