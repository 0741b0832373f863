"""Format the text of one large log in several processes, in parts cut at batch boundaries: for `dump`, and `export` to text.

Receiving text costs this process nearly as much as formatting it from uncompressed batches, so those are distributed only
if a line costs more; decompression always pays.

1. Follow the length fields from header to header. If they do not lead to the exact end of the file, it is not split.
2. Cut it at batches about PART_BYTES apart; several processes format the parts (`part_pool`). If other work occupies all processors at
   the start, none is started: it would only take processor time from this process.
3. A part is completed before it is emitted. After a finding in it later lines may depend on earlier ones, and text beyond
   MAX_TEXT_BYTES takes too much memory: then the helpers are ended, and this process continues alone from the start of
   that part, as if there were no parts. The death of a helper is treated like a finding.
"""

from array import array
from collections.abc import Callable, Iterator

from kseg.jobs.events import Event, Text
from kseg.jobs.forked_worker import can_fork, has_free_processor
from kseg.jobs.log_splitting import CannotSplit
from kseg.jobs.part_pool import PartPool
from kseg.jobs.part_worker import Room
from kseg.segment import header_tables as C
from kseg.segment import layout as L
from kseg.segment.header_tables import Columns
from kseg.segment.kernel import state_fields as S
from kseg.segment.kernel.batch_walk import FULL, walk
from kseg.segment.scanning.header_continuity import HeaderContinuity

PART_BYTES = 512 * 1024
MIN_PARTS = 16  # a smaller file is done before a helper has started
MAX_TEXT_BYTES = 64 * 1024 * 1024
_HEADERS_PER_WALK = 1024

# the events of the bytes from one position to another (None: to the end), the same as without parts
MakeText = Callable[[int, int | None], Iterator[Event]]


def in_parts(
    view: memoryview,
    make: MakeText,
    jobs: int,
    *,
    include_uncompressed: bool,
    seen: HeaderContinuity | None = None,
    write_into: Callable[[Room], None] | None = None,
) -> Iterator[Event]:
    """The events of `make(0, None)`, produced by `jobs` processes if that is possible and worthwhile.

    include_uncompressed: also split logs that need no decompression. seen: collects the batch headers during the walk.
    write_into: makes `make` write into the given memory, in a helper.
    """
    was_free = has_free_processor()
    cuts = (
        boundaries(view, seen) if jobs > 1 and pays(view, include_uncompressed=include_uncompressed) else []
    )
    if len(cuts) < MIN_PARTS or not (was_free or has_free_processor()):
        yield from make(0, None)
        return
    ends = [*cuts[1:], len(view)]

    def texts(part: int) -> Iterator[bytes | memoryview]:
        size_bytes = 0
        for event in make(cuts[part], ends[part]):
            if not isinstance(event, Text) or size_bytes > MAX_TEXT_BYTES:
                raise CannotSplit
            yield event.data
            size_bytes += len(event.data)

    pool = PartPool(texts, len(cuts), write_into)
    done = 0
    try:
        pool.start_workers(jobs - 1)
        while done < len(cuts) and (made := pool.take(done)) is not None:
            yield from map(Text, made)
            pool.give_back(done)
            done += 1
    finally:
        pool.kill()
    if done < len(cuts):
        yield from make(cuts[done], None)


def pays(view: memoryview, *, include_uncompressed: bool) -> bool:
    """Whether the log is large enough, and its text costs enough, to be made by several processes; and whether a fork is safe."""
    is_worthwhile = include_uncompressed or _starts_compressed(view)
    return is_worthwhile and len(view) >= MIN_PARTS * PART_BYTES and can_fork()


def _starts_compressed(view: memoryview) -> bool:
    low_byte = L.ATTRIBUTES_POSITION + 1
    return (
        len(view) > low_byte and view[L.MAGIC_POSITION] == L.MAGIC_V2 and bool(view[low_byte] & L.CODEC_MASK)
    )


def boundaries(view: memoryview, seen: HeaderContinuity | None = None) -> list[int]:
    """Positions of batches, about PART_BYTES apart, the first 0; empty if the lengths do not lead to the end."""
    end = len(view)
    table = Columns(C.BATCH_WIDTH, _HEADERS_PER_WALK)
    state = memoryview(array("q", [0, 0]))
    cuts = [0]
    while state[S.BATCHES_END] < end:
        reason = walk(view, end, table.cells, table.capacity, state)
        if reason != FULL and state[S.BATCHES_END] != end:
            return []
        table.count = state[S.BATCHES_COUNT]
        if seen is not None:
            seen.note(table)
        for position in table.column(C.POSITION):
            if position - cuts[-1] >= PART_BYTES:
                cuts.append(position)
    return cuts
