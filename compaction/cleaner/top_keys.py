"""Find the keys whose superseded values take most space: estimated during the pass, looked up afterwards.

A sketch of fixed size keeps one key per slot (`key_verdicts.tally_keys`); so a key that shares its slot with a larger one is not
named, and what a key had before it held its slot is not counted: the figures are lower bounds. The name is
read from the log again, from the first old value that was counted.

Places come from a hash with a seed of its own that never changes, so the same log has the same keys named in every run. The map that
decides what stays has a secret instead: there, two keys that are made to meet would cost a record, and here a name.
"""

from array import array
from collections.abc import Iterable, Iterator, Sequence

from kseg.compaction.cleaner.segments import CleanerSegment
from kseg.segment import header_tables as C
from kseg.segment.header_tables import Columns
from kseg.segment.kernel import key_verdicts as K
from kseg.segment.kernel.batch_walk import walk
from kseg.segment.kernel.keymap import hash_rows
from kseg.segment.scanning.decode import RECORDS_PER_TABLE, Chunk, Decoder, record_at
from kseg.segment.values import dataclass

_PLACES = 1 << 16
_SEED = 0x6B736567, 0x6B657973
_WIDTH = 8
_KEYS_FOR_ONE = 8  # keys that one sketch names for each that the whole is to name
_MIN_KEYS = 64
_BYTES, _VALUES, _SEGMENT, _POSITION, _OFFSET = range(3, 8)


@dataclass(frozen=True, slots=True)
class TopKey:
    """A key, and how many bytes (keys and values) of old values it has at least."""

    key: bytes
    bytes_superseded: int
    records: int


class KeySketch:
    """Counts values that go."""

    def __init__(self) -> None:
        self._cells = memoryview(array("q", bytes(8 * _WIDTH * _PLACES)))
        self._hashes = memoryview(array("q", bytes(16 * RECORDS_PER_TABLE)))

    def count(self, chunk: Chunk, flags: bytearray, table: Columns, base_offset: int) -> None:
        """The judged records of a chunk of the segment that begins at `base_offset`."""
        records = chunk.records
        hash_rows(chunk.body, records.cells, records.capacity, records.count, *_SEED, self._hashes)
        K.tally_keys(
            records.cells,
            records.capacity,
            records.count,
            self._hashes,
            flags,
            table.cells,
            table.capacity,
            base_offset,
            self._cells,
            _PLACES,
        )

    def named(self, limit: int, segments: Sequence[CleanerSegment]) -> list[TopKey]:
        """As many keys as one of several sketches names, so that `heaviest` finds the `limit` weightiest of all."""
        return list(self.top(max(_MIN_KEYS, _KEYS_FOR_ONE * limit), segments))

    def top(self, limit: int, segments: Sequence[CleanerSegment]) -> Iterator[TopKey]:
        """The largest first. segments: those that were counted, as they were."""
        weights = self._column(_BYTES)
        by_base = {segment.base_offset: segment for segment in segments}
        first = [self._column(field) for field in (_SEGMENT, _POSITION, _OFFSET)]

        def rank(
            at: int,
        ) -> tuple[int, ...]:  # equals in the order of the log: their places are a matter of chance
            return -weights[at], *(column[at] for column in first)

        heaviest = sorted((at for at in range(_PLACES) if weights[at]), key=rank)
        for at in heaviest[:limit]:
            segment = by_base[self._column(_SEGMENT)[at]]
            key = _key_at(segment, self._column(_POSITION)[at], self._column(_OFFSET)[at])
            if key is not None:
                yield TopKey(key, weights[at], self._column(_VALUES)[at])

    def _column(self, field: int) -> memoryview:
        return self._cells[field * _PLACES : (field + 1) * _PLACES]


def _key_at(segment: CleanerSegment, position: int, offset: int) -> bytes | None:
    """The key of a record, from the batch at `position`."""
    with segment.opened() as view:
        table = Columns(C.BATCH_WIDTH, 1)
        state = memoryview(array("q", [position, 0]))
        walk(view, len(view), table.cells, 1, state)
        table.count = state[1]
        for chunk in Decoder(view).chunks(table):
            for at in range(chunk.records.count):
                if chunk.records.at(C.R_OFFSET, at) == offset:
                    return record_at(chunk, at).key
    return None


def heaviest(named: Iterable[Sequence[TopKey]], most: int) -> list[TopKey]:
    """The keys that weigh most in all sketches together. named: what each of them names."""
    weights: dict[bytes, TopKey] = {}
    for keys in named:
        for top in keys:
            known = weights.get(top.key, TopKey(top.key, 0, 0))
            total = known.bytes_superseded + top.bytes_superseded
            weights[top.key] = TopKey(top.key, total, known.records + top.records)
    return sorted(weights.values(), key=lambda top: -top.bytes_superseded)[:most]
