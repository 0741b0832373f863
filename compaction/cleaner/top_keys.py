"""Find the keys whose superseded values take most space: estimated during the pass, looked up afterwards.

A sketch of fixed size keeps one key per slot (`key_verdicts.tally_keys`). A key that shares its slot with a larger one is
therefore not named, and what a key had before it took over its slot is not counted: the figures are lower bounds. The key itself
is read from the log again, at the first old value that was counted.

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
        self._cells = memoryview(array("q", bytes(8 * _WIDTH * _PLACES)))
        self._hashes = memoryview(array("q", bytes(16 * RECORDS_PER_TABLE)))

    def count(self, chunk: Chunk, flags: bytearray, table: Columns, base_offset: int) -> None:
        """Count the filtered records of a chunk of the segment that begins at `base_offset`."""
        records = chunk.records
        hash_rows(chunk.body, records.cells, records.capacity, records.count, *_SEED, self._hashes)
        K.tally_keys(
            *records.raw, records.count, self._hashes, flags, *table.raw, base_offset, self._cells, _PLACES
        )

    def named(self, limit: int, segments: Sequence[CleanerSegment]) -> list[TopKey]:
        """As many keys as one of several sketches has to name so that `heaviest` finds the `limit` heaviest overall."""
        return list(self.top(max(_MIN_KEYS, _KEYS_FOR_ONE * limit), segments))

    def top(self, limit: int, segments: Sequence[CleanerSegment]) -> Iterator[TopKey]:
        """The largest first. segments: those that were counted, in their original state."""
        weights = self._column(_BYTES).tolist()
        by_base = {segment.base_offset: segment for segment in segments}
        first = [self._column(field) for field in (_SEGMENT, _POSITION, _OFFSET)]

        def rank(
            at: int,
        ) -> tuple[int, ...]:  # ties in log order: their slots are arbitrary
            return -weights[at], *(column[at] for column in first)

        least = max(1, min(nlargest(limit, weights), default=1))  # few of the slots have to be ranked
        heaviest = sorted((at for at, weight in enumerate(weights) if weight >= least), key=rank)
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
