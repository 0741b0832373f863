"""Make text of one large log in several processes, in parts cut at batch boundaries: for `dump`, and `export` to text.

Receiving text costs this process nearly as much as making it from uncompressed batches, so those are distributed only
where a line costs more; decompression always pays.

1. Follow the length fields from header to header. Where they do not lead to the exact end of the file, it is not split.
2. Cut it at batches about PART_BYTES apart and fork a helper for each process more than this one.
3. Each helper has up to QUEUED parts to make. This process makes parts too, and emits all of them in order: while the
   next one is not ready, it makes later ones, up to AHEAD of them or AHEAD_BYTES of text; if it is still not ready then,
   this process makes it itself. So it never waits: a helper that gets no processor costs no time. If other work occupies
   all processors at the start, no helper is started: it would only take processor time from this process.
4. A part is finished before it is emitted. After a finding in it later lines may depend on earlier ones, and text beyond
   MAX_TEXT_BYTES takes too much memory: then the helpers are ended, and this process continues alone from the start of
   that part, as if there had been no parts. The death of a helper is treated like a finding.
"""

from array import array
from collections.abc import Callable, Iterator, Sequence

from kseg.jobs.events import Event, Text
from kseg.jobs.forked_worker import can_fork, has_free_processor
from kseg.jobs.log_splitting import CannotSplit
from kseg.jobs.text_worker import Room, TextWorker
from kseg.segment import header_tables as C
from kseg.segment import layout as L
from kseg.segment.header_tables import Columns
from kseg.segment.kernel.batch_walk import FULL, walk
from kseg.segment.scanning.header_continuity import HeaderContinuity

PART_BYTES = 512 * 1024
MIN_PARTS = 16  # a smaller file is done before a helper has started
MAX_TEXT_BYTES = 64 * 1024 * 1024
QUEUED = 2
AHEAD = 8  # a helper that shares a processor with this process is that late at times; what it is late with is made twice
AHEAD_BYTES = 32 * 1024 * 1024
_HEADERS_PER_WALK = 1024

# the events of the bytes from a position up to another, None = of all the rest, as if no part had been asked for
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
    """The events of `make(0, None)`, by `jobs` processes when that can be done and pays.

    include_uncompressed: also split logs that need no decompression. seen: collects the batch headers during the walk.
    write_into: lets `make` write into memory that it is given, in a helper.
    """
    is_worthwhile = include_uncompressed or _starts_compressed(view)
    was_free = has_free_processor()
    cuts = (
        boundaries(view, seen)
        if is_worthwhile and jobs > 1 and len(view) >= MIN_PARTS * PART_BYTES and can_fork()
        else []
    )
    if len(cuts) < MIN_PARTS or not (was_free or has_free_processor()):
        yield from make(0, None)
        return
    pool = _WorkerPool(make, [*cuts, len(view)], write_into)
    done = 0
    try:
        pool.start_workers(jobs - 1)
        while done < len(cuts) and (texts := pool.take(done)) is not None:
            yield from map(Text, texts)
            pool.give_back(done)
            done += 1
    finally:
        pool.kill()
    if done < len(cuts):
        yield from make(cuts[done], None)


def _starts_compressed(view: memoryview) -> bool:
    low_byte = L.ATTRIBUTES_POSITION + 1
    return (
        len(view) > low_byte and view[L.MAGIC_POSITION] == L.MAGIC_V2 and bool(view[low_byte] & L.CODEC_MASK)
    )


def boundaries(view: memoryview, seen: HeaderContinuity | None = None) -> list[int]:
    """Positions of batches, about PART_BYTES apart, the first 0; none when the lengths do not lead to the end."""
    end = len(view)
    table = Columns(C.BATCH_WIDTH, _HEADERS_PER_WALK)
    state = memoryview(array("q", [0, 0]))
    cuts = [0]
    while state[0] < end:
        reason = walk(view, end, table.cells, table.capacity, state)
        if reason != FULL and state[0] != end:
            return []
        table.count = state[1]
        if seen is not None:
            seen.note(table)
        for position in table.column(C.POSITION):
            if position - cuts[-1] >= PART_BYTES:
                cuts.append(position)
    return cuts


class _WorkerPool:
    """Assigns parts to workers. cuts: where each part begins, and where the last one ends."""

    def __init__(
        self, make: MakeText, cuts: Sequence[int], write_into: Callable[[Room], None] | None
    ) -> None:
        self._make = make
        self._write_into = write_into
        self._cuts = cuts
        self._count = len(cuts) - 1
        self._workers: list[TextWorker] = []
        self._worker_of_part: dict[int, TextWorker] = {}
        self._own_texts: dict[int, list[bytes | memoryview] | None] = {}
        self._next = 0  # the first part that nobody makes yet

    def start_workers(self, count: int) -> None:
        """Start `count` workers, or as many as the system allows."""
        for _ in range(count):
            try:
                self._workers.append(TextWorker(self._texts, self._workers, self._write_into))
            except OSError:
                return

    def take(self, part: int) -> list[bytes | memoryview] | None:
        """The text of a part, in order; None when its worker gave up."""
        while part not in self._own_texts:
            worker = self._worker_of_part.get(part)
            if worker is not None and worker.is_ready():
                texts = worker.receive()
                self._assign_parts()
                return texts
            if worker is not None and not self._may_run_ahead():
                worker.drop(part)
                return self._produce(part)
            own_part = self._next
            self._next += 1
            self._assign_parts()
            self._own_texts[own_part] = self._produce(own_part)
        return self._own_texts.pop(part)

    def give_back(self, part: int) -> None:
        """The text of a part is no longer read."""
        worker = self._worker_of_part.get(part)
        if worker is not None:
            worker.give_back()

    def kill(self) -> None:
        for worker in self._workers:
            worker.kill()

    def _may_run_ahead(self) -> bool:
        # what has given up a part has lines of it left
        own = self._own_texts.values()
        if self._next == self._count or len(own) >= AHEAD or None in own:
            return False
        return sum(len(text) for texts in own for text in texts or ()) < AHEAD_BYTES

    def _assign_parts(self) -> None:
        for _ in range(QUEUED):
            for worker in self._workers:
                if len(worker.pending) < QUEUED and self._next < self._count:
                    worker.order(self._next)
                    self._worker_of_part[self._next] = worker
                    self._next += 1

    def _produce(self, part: int) -> list[bytes | memoryview] | None:
        try:
            return list(self._texts(part))
        except CannotSplit:
            return None

    def _texts(self, part: int) -> Iterator[bytes | memoryview]:
        size_bytes = 0
        for event in self._make(self._cuts[part], self._cuts[part + 1]):
            if not isinstance(event, Text) or size_bytes > MAX_TEXT_BYTES:
                raise CannotSplit
            yield event.data
            size_bytes += len(event.data)
