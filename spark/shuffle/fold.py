"""One part of the hash space: the latest offset of each key in it, and which records are superseded.

1. Collect all rows of the part. Put those of records that may supersede others into a map; of two with the same key, the earlier is
   superseded.
2. Answer the queries: a record is superseded if the map has a later one with the same key.
3. Send superseded offsets to the group of segments that contains them.

Memory: the rows as received and a map of them; the number of parts is chosen so that both fit into --map-memory.
"""

import pickle
from array import array
from collections.abc import Iterable, Iterator

from kseg.segment.kernel import key_exchange as R
from kseg.segment.kernel import state_fields as S
from kseg.segment.memory import PrivateMemory
from kseg.spark.shuffle.task_messages import ROW_BYTES, Message, ShufflePlan, WorkKind, numbers

_GONE = 1 << 19


def verdicts_of(messages: Iterable[tuple[int, Message]], plan: ShufflePlan) -> Iterator[tuple[int, bytes]]:
    """(group, superseded offsets), and for the slot of the notes (`ShufflePlan.notes_place`) the notes received and the number of keys."""
    router = _Router(plan)
    blobs: dict[WorkKind, list[bytes]] = {WorkKind.PUT: [], WorkKind.ASK: []}
    for _, (kind, data) in messages:
        if kind is WorkKind.GONE:
            offsets = memoryview(data).cast("q")
            yield from router.routed(offsets, len(offsets))
        elif kind is WorkKind.NOTE:
            yield plan.notes_place, data
        else:
            blobs[kind].append(data)
    rows = sum(map(len, blobs[WorkKind.PUT])) // ROW_BYTES
    if not rows:
        return
    memory = PrivateMemory(ROW_BYTES * (rows * 3 // 2 + 2), is_large=True)
    slots = memory.view.cast("q")
    try:
        state = numbers(3)
        yield from _folded(blobs[WorkKind.PUT], slots, state, router)
        yield plan.notes_place, pickle.dumps(state[S.FOLD_SIZE])
        yield from _asked(blobs[WorkKind.ASK], slots, state, router)
    finally:
        slots.release()
        memory.close()


def _folded(
    blobs: list[bytes], slots: memoryview, state: memoryview, router: "_Router"
) -> Iterator[tuple[int, bytes]]:
    slot_count = len(slots) // 3
    gone = numbers(_GONE)
    for rows, count in _stretches(blobs):
        R.fold_rows(rows, 0, count, slots, slot_count, slot_count - 1, state, gone)
        yield from router.routed(gone, state[S.FOLD_GONE])
        state[S.FOLD_GONE] = 0


def _asked(
    blobs: list[bytes], slots: memoryview, state: memoryview, router: "_Router"
) -> Iterator[tuple[int, bytes]]:
    gone = numbers(_GONE)
    for rows, count in _stretches(blobs):
        R.ask_rows(rows, count, slots, len(slots) // 3, state, gone)
        yield from router.routed(gone, state[S.FOLD_GONE])
        state[S.FOLD_GONE] = 0


def _stretches(blobs: list[bytes]) -> Iterator[tuple[memoryview, int]]:
    """The rows in batches of limited size; a message is released after its last row."""
    blobs.reverse()
    while blobs:
        rows = memoryview(blobs.pop()).cast("q")
        for at in range(0, len(rows), 3 * _GONE):
            stretch = rows[at : at + 3 * _GONE]
            yield stretch, len(stretch) // 3


class _Router:
    """Routes offsets to the groups that contain them."""

    def __init__(self, plan: ShufflePlan) -> None:
        self._bases = memoryview(array("q", plan.bases))
        self._bounds = numbers(len(plan.bases) + 1)

    def routed(self, offsets: memoryview, count: int) -> Iterator[tuple[int, bytes]]:
        if not count:
            return
        out, bounds, groups = numbers(count), self._bounds, len(self._bases)
        R.scatter_offsets(offsets, count, self._bases, groups, bounds, out)
        for group in range(groups):
            if bounds[group] < bounds[group + 1]:
                yield group, out[bounds[group] : bounds[group + 1]].tobytes()
