"""Samples of a topic's logs, spread evenly, and the batches in them.

1. The logs of a topic are concatenated and cut into as many equal strata as there are samples.
2. In each stratum a sample begins at a random byte, the same in every run. So large partitions get more samples than small ones, and a
   pattern that repeats along a log is not sampled at the same phase every time.
3. A sample is a run of adjacent batches, from the first one that begins at or after that byte.
4. If the samples would add up to the topic, it is read completely and nothing is estimated.
"""

import random
from collections.abc import Iterator, Mapping, Sequence
from itertools import accumulate

from kseg.segment import header_tables as C
from kseg.segment import layout as L
from kseg.segment.errors import UnreadableInput
from kseg.segment.files import MappedFile
from kseg.segment.header_tables import Columns
from kseg.segment.scanning.damage import Damage
from kseg.segment.scanning.scan import Scanner
from kseg.segment.sidecar.index import OffsetIndex
from kseg.segment.values import dataclass

_BEHIND_BYTES = 2 << 20  # read beyond a place, so that its last batch is complete
_SEED = 0x6B736567


@dataclass(frozen=True, slots=True)
class Place:
    """Where a sample begins, as a position in a `.log`. length: bytes to read; all of the log if the topic is read completely."""

    path: str
    position: int
    length: int


@dataclass(frozen=True, slots=True)
class Sample:
    """The samples of one partition. is_all: they cover all of it."""

    places: tuple[Place, ...]
    is_all: bool


def spread(
    logs: Mapping[str, Sequence[tuple[str, int]]], sample_bytes: int, place_bytes: int
) -> dict[str, Sample]:
    """The samples of one topic, by partition. logs: (path, size) of the `.log` files, by partition. sample_bytes: of all samples
    together."""
    flat = [(partition, path, size) for partition, files in logs.items() for path, size in files if size]
    total = sum(size for _, _, size in flat)
    places: dict[str, list[Place]] = {partition: [] for partition in logs}
    if total <= sample_bytes:
        for partition, path, size in flat:
            places[partition] += (
                Place(path, at, min(place_bytes, size - at)) for at in range(0, size, place_bytes)
            )
        return {partition: Sample(tuple(found), True) for partition, found in places.items()}
    count = max(2, sample_bytes // place_bytes)
    ends = [*accumulate(size for _, _, size in flat)]
    lots = random.Random(_SEED)
    at = 0
    for number in range(count):
        byte = min(total - 1, int((number + lots.random()) * total / count))
        while ends[at] <= byte:
            at += 1
        partition, path, size = flat[at]
        places[partition].append(Place(path, byte - (ends[at] - size), place_bytes))
    return {partition: Sample(tuple(found), False) for partition, found in places.items()}


@dataclass(frozen=True, slots=True)
class Stretch:
    """Adjacent valid batches. view: the bytes that the table's positions refer to. rows: the range in the table."""

    view: memoryview
    table: Columns
    rows: range


def stretches(place: Place, is_all: bool) -> Iterator[Stretch]:
    """The batches of a sample, skipping damage. All stretches share one table, which the next one overwrites. Raises UnreadableInput."""
    with MappedFile(place.path) as file:
        size = len(file.view)
        start = _boundary_before(place)
        stop = min(size, place.position + place.length + _BEHIND_BYTES)
        view = file.view[start:stop]
        wanted, taken = place.position - start, 0
        end = wanted + place.length
        last: Stretch | None = None
        for block in Scanner(view).blocks():
            if isinstance(block, Damage):
                last = None
                continue
            first, after = 0, 0
            for row in range(block.count):
                position = block.at(C.POSITION, row)
                first += position < wanted
                if position >= end or (not is_all and taken >= place.length):
                    break
                after = row + 1
                taken += block.at(C.SIZE, row) if position >= wanted else 0
            if first < after:
                yield Stretch(view, block, range(first, after))
            if after < block.count:
                return
            last = Stretch(view, block, range(block.count - 1, block.count)) if block.count else last
        if not taken and not is_all and last is not None:
            # the sampled position is in the last batch of the log
            yield last


def _boundary_before(place: Place) -> int:
    """The position of the last indexed batch at or before the sample; 0 without an index entry."""
    if not place.position:
        return 0
    try:
        with MappedFile(place.path.removesuffix(L.LOG_SUFFIX) + L.OFFSET_INDEX_SUFFIX) as file:
            index = OffsetIndex(file.view, 0)
            slot = index.slot_at(place.position + 1)
            position = index.entry(slot - 1).position if slot else 0
            return position if 0 <= position <= place.position else 0
    except UnreadableInput:
        return 0
