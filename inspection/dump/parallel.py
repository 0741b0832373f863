"""One large log, dumped by several processes: parts of it, cut between batches.

To take over text costs this process nearly as much as to make it from plain batches, so that those are shared out only
where a line costs more; decompression always pays.

1. Follow the length fields from header to header. Where they do not lead to the very end of the file, it stays whole.
2. Cut it at batches about PART_BYTES apart and fork a helper for each process more than this one.
3. Each helper has up to QUEUED parts to make. This process makes parts too, and gives all of them out in order: when
   the next one is not there yet, it goes on with a later one, up to AHEAD of them. So no one waits for another.
4. A part is finished before it is given out. A finding in it means that lines may depend on what came before, and
   text beyond MOST_TEXT_BYTES that memory is at stake: then the helpers are dismissed and this process alone goes on
   from where that part begins, as if there had been no parts. A helper that dies counts as one that met a finding.
"""

from array import array
from collections.abc import Callable, Iterator, Sequence

from kseg.inspection.dump.text_worker import TextWorker
from kseg.jobs.events import Event, Text
from kseg.jobs.forked_worker import may_fork
from kseg.jobs.log_splitting import GivenUp
from kseg.segment import header_tables as C
from kseg.segment import layout as L
from kseg.segment.header_tables import Columns
from kseg.segment.kernel.batch_walk import FULL, walk
from kseg.segment.scanning.steadiness import Steadiness

PART_BYTES = 512 * 1024
LEAST_PARTS = 16  # a smaller file is done before a helper has started
MOST_TEXT_BYTES = 64 * 1024 * 1024
QUEUED = 2
AHEAD = 3
_HEADERS_PER_WALK = 1024
_LARGER_BYTES = 16 * 1024 * 1024  # never touched, so never memory

# the events of the bytes from a position up to another, None = of all the rest, as if no part had been asked for
Dump = Callable[[int, int | None], Iterator[Event]]


def in_parts(
    view: memoryview, dump: Dump, jobs: int, *, plain_too: bool, seen: Steadiness | None = None
) -> Iterator[Event]:
    """The events of `dump(0, None)`, by `jobs` processes when that can be done and pays.

    plain_too: whether it pays for batches that need no decompression. seen: told of the batches where they are walked over.
    """
    pays = plain_too or _starts_compressed(view)
    cuts = (
        boundaries(view, seen)
        if pays and jobs > 1 and len(view) >= LEAST_PARTS * PART_BYTES and may_fork()
        else []
    )
    if len(cuts) < LEAST_PARTS:
        yield from dump(0, None)
        return
    crew = _Crew(dump, [*cuts, len(view)])
    done = 0
    try:
        crew.hire(jobs - 1)
        while done < len(cuts) and (texts := crew.take(done)) is not None:
            yield from map(Text, texts)
            done += 1
    finally:
        crew.dismiss()
    if done < len(cuts):
        yield from dump(cuts[done], None)


def _starts_compressed(view: memoryview) -> bool:
    low_byte = L.ATTRIBUTES_POSITION + 1
    return (
        len(view) > low_byte and view[L.MAGIC_POSITION] == L.MAGIC_V2 and bool(view[low_byte] & L.CODEC_MASK)
    )


def boundaries(view: memoryview, seen: Steadiness | None = None) -> list[int]:
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


class _Crew:
    """Who makes which part. cuts: where each part begins, and where the last one ends."""

    def __init__(self, dump: Dump, cuts: Sequence[int]) -> None:
        self._dump = dump
        self._cuts = cuts
        self._count = len(cuts) - 1
        self._helpers: list[TextWorker] = []
        self._makers: dict[int, TextWorker] = {}
        self._own: dict[int, list[bytes] | None] = {}
        self._next = 0  # the first part that nobody makes yet
        # glibc hands blocks of this size back to the system, to get them zeroed again a moment later, until it has
        # seen a larger one come and go
        bytearray(_LARGER_BYTES)

    def hire(self, count: int) -> None:
        """Start so many helpers, or as many as the system allows."""
        for _ in range(count):
            try:
                self._helpers.append(TextWorker(self._texts, self._helpers))
            except OSError:
                return

    def take(self, part: int) -> list[bytes] | None:
        """The text of a part, each in its turn; None when it was given up."""
        while part not in self._own:
            helper = self._makers.get(part)
            if helper is not None and (helper.is_ready() or not self._may_work_ahead()):
                texts = helper.receive()
                self._share_out()
                return texts
            mine = self._next
            self._next += 1
            self._share_out()
            self._own[mine] = self._make(mine)
        return self._own.pop(part)

    def dismiss(self) -> None:
        for helper in self._helpers:
            helper.dismiss()

    def _may_work_ahead(self) -> bool:
        # what has given up a part has lines of it left
        return self._next < self._count and len(self._own) < AHEAD and None not in self._own.values()

    def _share_out(self) -> None:
        for _ in range(QUEUED):
            for helper in self._helpers:
                if helper.pending < QUEUED and self._next < self._count:
                    helper.order(self._next)
                    self._makers[self._next] = helper
                    self._next += 1

    def _make(self, part: int) -> list[bytes] | None:
        try:
            return list(self._texts(part))
        except GivenUp:
            return None

    def _texts(self, part: int) -> Iterator[bytes]:
        size_bytes = 0
        for event in self._dump(self._cuts[part], self._cuts[part + 1]):
            if not isinstance(event, Text) or size_bytes > MOST_TEXT_BYTES:
                raise GivenUp
            yield event.data
            size_bytes += len(event.data)
