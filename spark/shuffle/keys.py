"""Send the keys of one segment to their parts of the hash space: the first half of the first pass.

1. Read batches in order, like a first pass (`cleaner.first_pass`), skipping control batches and records without a key. Records at or
   above the dirty offset that do not belong to aborted transactions supersede earlier ones with the same key.
2. Put those into a bounded map of this task first: a record that a later one of the same segment supersedes is reported here, and only
   the latest is sent. A full map is sent and emptied.
3. Send all other records with a key as queries: they may be superseded, but supersede nothing. Queries about batches that the second
   pass drops anyway do no harm.

An offset must identify one record. If offsets do not increase, or extend into the next segment, that is reported, and the driver
compacts the log alone.
"""

import pickle
from collections.abc import Iterator

from kseg.compaction.cleaner.first_pass import start_position
from kseg.compaction.cleaner.segment_reader import DamagedSegment, control_kind, outside, problem_of, tables
from kseg.segment import header_tables as C
from kseg.segment import layout as L
from kseg.segment.findings import Finding
from kseg.segment.header_tables import Columns
from kseg.segment.kernel import key_exchange as R
from kseg.segment.kernel import keymap as K
from kseg.segment.kernel import state_fields as S
from kseg.segment.kernel.batch_runs import plain_stop, same_transaction
from kseg.segment.memory import PrivateMemory
from kseg.segment.scanning.decode import RECORDS_PER_TABLE, Chunk, Decoder
from kseg.spark.shuffle.task_messages import (
    ROW_BYTES,
    Message,
    Note,
    SegmentWork,
    ShufflePlan,
    WorkKind,
    numbers,
)

_ASKED_ROWS = 8 * RECORDS_PER_TABLE
_GONE = 16 * RECORDS_PER_TABLE
_MIN_SLOTS = 64
_LARGE_BYTES = 8 << 20
_COPIES_OF_MAP = 4  # the map, its rows by part, the messages made of them, and those in transit


class Irregular(Exception):
    """The offsets of a segment do not increase."""


def keys_of(work: SegmentWork, plan: ShufflePlan) -> Iterator[tuple[int, Message]]:
    """(part, message) for all keyed records of a segment, and its note."""
    sender = _Sender(plan, work)
    found: list[Finding] = []
    is_irregular = False
    try:
        with work.segment.opened() as view:
            yield from _Walk(work, view, sender, found).messages()
    except DamagedSegment as damaged:
        found.extend(damaged.findings)
    except Irregular:
        is_irregular = True
    finally:
        sender.close()
    if found or is_irregular:
        note = Note(work.number, tuple(found), is_irregular)
        yield work.number % plan.parts, (WorkKind.NOTE, pickle.dumps(note))


class _Walk:
    """The walk over the batches of one segment. found: collects damage in its dirty part."""

    def __init__(self, work: SegmentWork, view: memoryview, sender: "_Sender", found: list[Finding]) -> None:
        self._work = work
        self._segment = work.segment
        self._view = view
        self._sender = sender
        self._found = found
        self._decoder = Decoder(view)
        self._transactions = work.transactions

    def messages(self) -> Iterator[tuple[int, Message]]:
        start, sender = self._work.start_offset, self._sender
        position = 0
        if start > self._segment.base_offset:
            position = start_position(self._segment, self._view, start)
            for table in tables(self._segment, self._view, 0, []):
                self._ask_below(table, min(start, self._work.bound))
                yield from sender.pending()
        if start < self._work.bound:
            found = self._found if self._work.finds else None
            for table in tables(self._segment, self._view, position, found):
                self._table(table)
                yield from sender.pending()
        sender.finish()
        yield from sender.pending()

    def _ask_below(self, table: Columns, offset: int) -> None:
        """Send queries about records below the dirty offset. Damage there is left to the second pass."""
        for chunk in self._decoder.chunks(table):
            if not chunk.control and self._sender.hash(chunk):
                self._sender.ask(chunk, -1, offset)

    def _table(self, table: Columns) -> None:
        row, state = 0, self._transactions
        while row < table.count:
            stop = plain_stop(table.cells, table.capacity, row, table.count)
            self._put(table, row, stop)
            row = stop
            if row >= table.count:
                break
            producer, last = table.at(C.PRODUCER_ID, row), table.at(C.LAST_OFFSET, row)
            if table.at(C.ATTRIBUTES, row) & L.CONTROL_BIT:
                self._marker(table, row, producer, last)
                row += 1
                continue
            is_aborted = state.is_aborted(producer, last)
            stop = same_transaction(table.cells, table.capacity, row, table.count, state.next_offset)
            stop = max(stop, row + 1)
            if is_aborted:
                for chunk in self._decoder.chunks(table, row, stop):
                    if self._sender.hash(chunk):
                        self._sender.ask(chunk, self._work.start_offset, L.INT64_MAX)
            else:
                self._put(table, row, stop)
            row = stop

    def _marker(self, table: Columns, row: int, producer: int, last: int) -> None:
        try:
            kind = control_kind(self._segment, self._view, self._decoder, table, row)
        except DamagedSegment as damaged:
            self._report(damaged)
        else:
            self._transactions.on_control_batch(producer, last, kind)

    def _put(self, table: Columns, row: int, stop: int) -> None:
        for chunk in self._decoder.chunks(table, row, stop) if row < stop else ():
            is_hashed = self._sender.hash(chunk)
            if chunk.problem is not None or not is_hashed:
                problem = chunk.problem or outside(chunk.last_row)
                self._report(problem_of(self._segment, table, problem))
            if is_hashed:
                self._sender.put(chunk)

    def _report(self, damaged: DamagedSegment) -> None:
        if not self._work.finds:
            raise damaged
        self._found.extend(damaged.findings)


class _Sender:
    """Collects rows and offsets for each part into messages of a reasonable size."""

    def __init__(self, plan: ShufflePlan, work: SegmentWork) -> None:
        self._plan = plan
        self._work = work
        most = max(_MIN_SLOTS, plan.settings.map_slots // _COPIES_OF_MAP)
        self._slots_count = min(most, max(_MIN_SLOTS, work.records * 3 // 2))
        self._limit = self._slots_count * 3 // 4
        size_bytes = ROW_BYTES * self._slots_count
        self._memory = PrivateMemory(size_bytes, is_large=size_bytes > _LARGE_BYTES)
        self._slots = self._memory.view.cast("q")
        self._hashes = numbers(2 * RECORDS_PER_TABLE)
        self._rows = numbers(3 * RECORDS_PER_TABLE)
        self._asked = numbers(3 * (_ASKED_ROWS + RECORDS_PER_TABLE))
        self._gone = numbers(_GONE + RECORDS_PER_TABLE)
        self._put_state, self._ask_state = numbers(2), numbers(2)
        self._fold_state = numbers(3)
        self._bounds = numbers(plan.parts + 1)
        self._last = work.segment.base_offset - 1
        self._ready: list[tuple[int, Message]] = []

    def hash(self, chunk: Chunk) -> bool:
        """Compute the hashes of a chunk; False if a key or value is outside the body."""
        records, secret = chunk.records, self._plan.secret
        cells, capacity, count = records.cells, records.capacity, records.count
        return K.hash_rows(chunk.body, cells, capacity, count, *secret, self._hashes) == count

    def put(self, chunk: Chunk) -> None:
        """Add the records of the chunk from the dirty offset on, which may supersede others."""
        state = self._put_state
        state[S.COPY_AT] = 0
        self._copy(chunk, self._work.start_offset, L.INT64_MAX, state, self._rows)
        row, count, fold = 0, state[S.COPY_AT], self._fold_state
        while row < count:
            row = R.fold_rows(
                self._rows, row, count, self._slots, self._slots_count, self._limit, fold, self._gone
            )
            if row < count:
                self._send_map()
        if fold[S.FOLD_GONE] >= _GONE:
            self._send_gone()

    def ask(self, chunk: Chunk, from_offset: int, to_offset: int) -> None:
        """Add queries about the records of the chunk in a range of offsets."""
        self._copy(chunk, from_offset, to_offset, self._ask_state, self._asked)
        if self._ask_state[S.COPY_AT] >= _ASKED_ROWS:
            self._send_asked()

    def _copy(
        self, chunk: Chunk, from_offset: int, to_offset: int, state: memoryview, rows: memoryview
    ) -> None:
        records, bound = chunk.records, self._work.bound
        cells, capacity, count = records.cells, records.capacity, records.count
        state[S.COPY_LAST] = self._last
        done = R.copy_rows(cells, capacity, count, self._hashes, from_offset, to_offset, bound, state, rows)
        if done < count:
            raise Irregular
        self._last = state[S.COPY_LAST]

    def finish(self) -> None:
        """Note that there are no more records."""
        self._send_map()
        self._send_asked()
        self._send_gone()

    def pending(self) -> Iterator[tuple[int, Message]]:
        """The messages that are ready to send."""
        ready, self._ready = self._ready, []
        yield from ready

    def _send_map(self) -> None:
        size = self._fold_state[S.FOLD_SIZE]
        if size:
            self._send_rows(WorkKind.PUT, self._slots, self._slots_count, size)
            self._memory.forget()
            self._fold_state[S.FOLD_SIZE] = 0

    def _send_asked(self) -> None:
        count = self._ask_state[S.COPY_AT]
        if count:
            self._send_rows(WorkKind.ASK, self._asked, count, count)
            self._ask_state[S.COPY_AT] = 0

    def _send_rows(self, kind: WorkKind, rows: memoryview, count: int, filled: int) -> None:
        out, bounds, parts = numbers(3 * filled), self._bounds, self._plan.parts
        R.scatter_rows(rows, count, parts, bounds, out)
        for part in range(parts):
            if bounds[part] < bounds[part + 1]:
                data = out[3 * bounds[part] : 3 * bounds[part + 1]].tobytes()
                self._ready.append((part, (kind, data)))

    def _send_gone(self) -> None:
        count = self._fold_state[S.FOLD_GONE]
        if count:
            part = self._work.number % self._plan.parts  # any part will do: it passes them on to their group
            self._ready.append((part, (WorkKind.GONE, self._gone[:count].tobytes())))
            self._fold_state[S.FOLD_GONE] = 0

    def close(self) -> None:
        self._slots.release()
        self._memory.close()
