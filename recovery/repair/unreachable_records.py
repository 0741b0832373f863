"""What stays in the logs of a planned directory though no consumer gets it: the part of a policy's price that removes nothing.

A broker that believes a log does not look for damage in it. A fetch walks by headers from the entry of the offset index
that lies at or below its offset (`loading.broker_walk`), and the consumer checks the checksums of what it is given. So these are
lost for readers, by the loader and the fetch path of 4.3 (`tests/kafka/test_recover_price.py`) and a real broker's consumers
(`tests/kafka/test_price_by_consumers.py`):

    a batch with a wrong checksum       the consumer gets an exception until it seeks behind it; what follows can be read
    damage that ends or misleads a      no offset behind it is found, up to the next index entry; consumers that ask for
    walk (lengths, zeros, foreign)      these are given the next segment, or an exception
    a wrong index entry                 offsets before the position that it names are passed over without a word
    what lies at or behind the log end  the broker's log ends where its walk ended, and is written on from there
    a wrong time index                  retention by time deletes segments that are not due (`retention_after_load`)

Only logs that salvage would change, or whose index it would, are looked at; others are sound.
"""

from collections.abc import Iterable, Iterator, Sequence

from kseg.change.plan.directory_image import DirectoryImage
from kseg.recovery.loading.broker_walk import LogWalk
from kseg.recovery.loading.kafka_exceptions import KafkaThrows
from kseg.recovery.repair.rows import Unread
from kseg.recovery.salvage.image_reader import ImageReader
from kseg.segment import header_tables as C
from kseg.segment import layout as L
from kseg.segment.header_tables import Columns
from kseg.segment.partition.names import Role, parse_file_name, segment_file_name
from kseg.segment.scanning.lost_offsets import plus, records_of
from kseg.segment.scanning.scan import Scanner
from kseg.segment.sidecar.index import OffsetIndex
from kseg.segment.values import dataclass

Range = tuple[int, int]


@dataclass(frozen=True, slots=True)
class _Batch:
    position: int
    first_offset: int
    last_offset: int
    records: int | None


def unread(
    directory: str,
    image: DirectoryImage,
    sound: DirectoryImage,
    end_offset: int,
    deleted: frozenset[str] = frozenset(),
) -> Unread:
    """image: as a broker has the directory of a partition. sound: as salvage leaves it. end_offset: of the broker's
    log. deleted: logs that its retention deletes by mistake (`retention_after_load`). Raises UnreadableInput, and Refused when
    there is no room to put a large file together."""
    reader = ImageReader(directory, image)
    ranges: list[Range] = []
    records: int | None = 0
    for name in image:
        parsed = parse_file_name(name)
        if parsed.role is not Role.LOG or not parsed.is_live or parsed.base_offset is None:
            continue
        index_name = segment_file_name(parsed.base_offset, L.OFFSET_INDEX_SUFFIX)
        if name not in deleted and not any(_differs(each, image, sound) for each in (name, index_name)):
            continue
        entries = reader.read_small(index_name) if index_name in image else b""
        with reader.open(name) as file:
            index = OffsetIndex(entries, parsed.base_offset)
            if name in deleted:
                lost = _batches(file.view, parsed.base_offset)
            else:
                lost = _unreached(file.view, name, parsed.base_offset, index, end_offset)
            for batch in lost:
                ranges.append((batch.first_offset, batch.last_offset))
                records = plus(records, batch.records)
    return Unread(tuple(sorted(ranges)), records)


def _differs(name: str, image: DirectoryImage, sound: DirectoryImage) -> bool:
    if name not in image or name not in sound:
        return True
    return image.content(name) != sound.content(name)


def _unreached(
    view: memoryview, name: str, base_offset: int, index: OffsetIndex, end_offset: int
) -> Iterator[_Batch]:
    walk = LogWalk(view, name)
    for group, start in _by_entry(_batches(view, base_offset), index):
        ends = [_is_found(walk, batch, start) for batch in (group[0], group[-1])]
        for batch in group:
            is_found = ends[0] if ends[0] == ends[1] else _is_found(walk, batch, start)
            if not is_found or batch.first_offset >= end_offset:
                yield batch


def _batches(view: memoryview, base_offset: int) -> Iterator[_Batch]:
    for block in Scanner(view, base_offset).blocks():
        if not isinstance(block, Columns):
            continue
        for row in range(block.count):
            first, last = block.at(C.BASE_OFFSET, row), block.at(C.LAST_OFFSET, row)
            yield _Batch(block.at(C.POSITION, row), first, last, records_of(block, row, row + 1))


def _by_entry(batches: Iterable[_Batch], index: OffsetIndex) -> Iterator[tuple[Sequence[_Batch], int]]:
    """Batches that a fetch comes to from the same index entry, and the position that this names."""
    group: list[_Batch] = []
    start = -1
    for batch in batches:
        position = max(0, index.lookup(batch.first_offset).position)
        if group and position != start:
            yield group, start
            group = []
        start = position
        group.append(batch)
    if group:
        yield group, start


def _is_found(walk: LogWalk, batch: _Batch, start: int) -> bool:
    try:
        found = walk.search(batch.first_offset, start)
    except KafkaThrows:
        return False
    return found is not None and found.position == batch.position
