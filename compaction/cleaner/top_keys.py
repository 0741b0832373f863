"""Find the keys whose superseded values take most space: estimated during the pass, looked up afterwards.

A sketch of fixed size keeps one key per slot (`key_verdicts.tally_keys`). A key that shares its slot with a larger one is therefore not
named, and what a key had before it took over its slot is not counted: the figures are lower bounds. The key itself is read from the log
again, at the first old value that was counted.

Slots come from a hash with a fixed seed of its own, so that every run names the same keys for the same log. The map that decides
what stays uses a secret instead: there, two keys that are crafted to collide would cost a record; here they cost a name.
"""

from array import array
from collections.abc import Iterable, Iterator, Sequence
from heapq import nlargest

from kseg.compaction.cleaner.segments import CleanerSegment
from kseg.segment import header_tables as C
from kseg.segment.header_tables import Columns
from kseg.segment.kernel import key_verdicts as K
from kseg.segment.kernel import state_fields as S
from kseg.segment.kernel.batch_walk import walk
from kseg.segment.kernel.keymap import hash_rows
from kseg.segment.memory import PrivateMemory
from kseg.segment.scanning.decode import RECORDS_PER_TABLE, Chunk, Decoder, record_at
from kseg.segment.values import dataclass

_PLACES = 1 << 16
_SEED = 0x6B736567, 0x6B657973
_WIDTH = 8
_KEYS_FOR_ONE = 8  # candidates per sketch for each key to be named overall
_MIN_KEYS = 64
_BYTES, _VALUES, _SEGMENT, _POSITION, _OFFSET = range(3, 8)


@dataclass(frozen=True, slots=True)
class TopKey:
    """A key, and the least size (keys and values) of its old values."""

    key: bytes
    bytes_superseded: int
    records: int


class KeySketch:
    """Counts superseded values."""

    def __init__(self) -> None:
        # with a small log, few places are ever touched
        self._cells = PrivateMemory(8 * _WIDTH * _PLACES).view.cast("q")
        self._used = PrivateMemory(8 * (_PLACES + 1)).view.cast("q")
        self._hashes = memoryview(array("q", bytes(16 * RECORDS_PER_TABLE)))

    def count(self, chunk: Chunk, flags: bytearray, table: Columns, base_offset: int) -> None:
        """Count the filtered records of a chunk of the segment that begins at `base_offset`."""
        records = chunk.records
        hash_rows(chunk.body, records.cells, records.capacity, records.count, *_SEED, self._hashes)
        K.tally_keys(
            *records.raw,
            records.count,
            self._hashes,
            flags,
            *table.raw,
            base_offset,
            self._cells,
            self._used,
            _PLACES,
        )

    def named(self, limit: int, segments: Sequence[CleanerSegment]) -> list[TopKey]:
        """As many keys as one of several sketches has to name so that `heaviest` finds the `limit` heaviest overall."""
        return list(self.top(max(_MIN_KEYS, _KEYS_FOR_ONE * limit), segments))

    def top(self, limit: int, segments: Sequence[CleanerSegment]) -> Iterator[TopKey]:
        """The largest first. segments: those that were counted, in their original state."""
        by_base = {segment.base_offset: segment for segment in segments}
        places = self._used[1 : self._used[0] + 1].tolist()
        weights = [self._cells[_WIDTH * place + _BYTES] for place in places]
        least = max(1, min(nlargest(limit, weights), default=1))  # few of the places have to be ranked
        largest = [self._row(place) for place, weight in zip(places, weights, strict=True) if weight >= least]
        for row in sorted(largest, key=_rank)[:limit]:
            key = _key_at(by_base[row[_SEGMENT]], row[_POSITION], row[_OFFSET])
            if key is not None:
                yield TopKey(key, row[_BYTES], row[_VALUES])

    def _row(self, place: int) -> list[int]:
        return self._cells[_WIDTH * place : _WIDTH * (place + 1)].tolist()


def _rank(row: Sequence[int]) -> tuple[int, ...]:
    """Sort key: by bytes; ties in log order, since the slots of keys are arbitrary."""
    return -row[_BYTES], row[_SEGMENT], row[_POSITION], row[_OFFSET]


def _key_at(segment: CleanerSegment, position: int, offset: int) -> bytes | None:
    """The key of a record, from the batch at `position`."""
    with segment.opened() as view:
        table = Columns(C.BATCH_WIDTH, 1)
        state = memoryview(array("q", [position, 0]))
        walk(view, len(view), table.cells, 1, state)
        table.count = state[S.BATCHES_COUNT]
        for chunk in Decoder(view).chunks(table):
            for at in range(chunk.records.count):
                if chunk.records.at(C.R_OFFSET, at) == offset:
                    return record_at(chunk, at).key
    return None


def heaviest(named: Iterable[Sequence[TopKey]], most: int) -> list[TopKey]:
    """The heaviest keys of all sketches together. named: the candidates of each sketch."""
    weights: dict[bytes, TopKey] = {}
    for keys in named:
        for top in keys:
            known = weights.get(top.key, TopKey(top.key, 0, 0))
            total = known.bytes_superseded + top.bytes_superseded
            weights[top.key] = TopKey(top.key, total, known.records + top.records)
    return sorted(weights.values(), key=lambda top: -top.bytes_superseded)[:most]
