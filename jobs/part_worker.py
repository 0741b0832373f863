"""A forked worker process that works part by part and returns its output (text, tables of batches) in shared memory.

    orders   pipe to the worker: the number of a part, or TAKEN: one more slot may be filled again
    reports  pipe from it: bytes in the next slot, and whether the part continues (MORE), is complete (OVER) or was rejected (GIVEN_UP)

The memory consists of SLOTS slots, filled and emptied in turn. A part usually fits into one, so a report usually means that a part is
complete. Nothing is copied then: the kernels in the worker write into the slot (`Room`), and this process returns views of it until it
takes the next part. After the slots comes the number of the first part that is still needed, so that a late worker does not begin an
earlier one. A worker without free slots waits for orders. `forked_worker` starts and ends the process.
"""

import mmap
import os
import select
import signal
import struct
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress

from kseg.jobs import forked_worker
from kseg.jobs.log_splitting import CannotSplit

SLOT_BYTES = 8 * 1024 * 1024  # reserved; only what a part fills takes memory
SLOTS = 3  # one being read, one ready, one being filled
MIN_ROOM_BYTES = 512 * 1024  # with less free space in a slot, a part continues in the next one

TAKEN = -1
MORE, OVER, GIVEN_UP = range(3)
_ORDER = struct.Struct("<q")
_REPORT = struct.Struct("<qq")
_NUMBER = struct.Struct("<q")

# returns the pieces of the part with this number, each in whole units (lines, tables); raises CannotSplit
Make = Callable[[int], Iterator[bytes | memoryview]]
# returns the memory for the next piece; `Make` then yields what was written to its beginning, as a view
Room = Callable[[], memoryview]


class PartWorker:
    """The worker as seen by the process that started it. earlier_workers: those that were started before, whose pipes the worker closes.
    begin: called in the worker before anything else, with the function that returns memory to write to.

    pending: the parts that were ordered and not yet received, in order.
    Raises OSError if the system has no memory, pipe or process left.
    """

    def __init__(
        self, make: Make, earlier_workers: "Sequence[PartWorker]", begin: Callable[[Room], None] | None = None
    ) -> None:
        self.pending: deque[int] = deque()
        self._dropped: set[int] = set()
        self._slot = 0
        self._lent: memoryview | None = None
        self._memory = mmap.mmap(-1, SLOTS * SLOT_BYTES + _NUMBER.size)
        self._process: forked_worker.ForkedWorker = forked_worker.ForkedWorker(
            lambda orders, reports: _WorkerSide(orders, reports, self._memory).serve(make, begin),
            [worker._process for worker in earlier_workers],
        )

    def order(self, part: int) -> None:
        self._send(part)
        self.pending.append(part)

    def drop(self, part: int) -> None:
        """Discard a part; the worker may skip it and all earlier ones."""
        self._dropped.add(part)
        _NUMBER.pack_into(self._memory, SLOTS * SLOT_BYTES, part + 1)

    def is_ready(self) -> bool:
        """Whether output of the first wanted part has arrived; usually all of it."""
        while self._has_arrived():
            if self.pending[0] not in self._dropped:
                return True
            self._receive()
        return False

    def receive(self) -> list[bytes | memoryview] | None:
        """Wait for the first pending part that is wanted; its pieces are valid until `give_back`. None if the worker rejected it or
        died."""
        while self.pending[0] in self._dropped:
            self._receive()
        return self._receive()

    def _has_arrived(self) -> bool:
        return bool(self.pending) and bool(select.select((self._process.reads,), (), (), 0)[0])

    def give_back(self) -> None:
        """Release the part that was received last, so that the worker can reuse its memory."""
        if self._lent is not None:
            self._lent.release()
            self._lent = None
            self._send(TAKEN)

    def _receive(self) -> list[bytes | memoryview] | None:
        self.give_back()
        self._dropped.discard(self.pending.popleft())
        pieces: list[bytes | memoryview] = []
        while True:
            report = os.read(self._process.reads, _REPORT.size)
            size_bytes, state = _REPORT.unpack(report) if report else (0, GIVEN_UP)
            start = self._slot * SLOT_BYTES
            self._slot = (self._slot + 1) % SLOTS
            if state == OVER:
                self._lent = memoryview(self._memory)[start : start + size_bytes]
                return [*pieces, self._lent] if size_bytes else pieces
            pieces.append(self._memory[start : start + size_bytes])
            self._send(TAKEN)
            if state != MORE:
                return None

    def end(self) -> None:
        self._process.send_signal(signal.SIGKILL)

    def kill(self) -> None:
        self._process.kill()
        if self._lent is not None:
            self._lent.release()
        self._memory.close()

    def _send(self, order: int) -> None:
        with suppress(BrokenPipeError):  # it died, which `receive` detects
            os.write(self._process.writes, _ORDER.pack(order))


class _WorkerSide:
    """The worker's side."""

    def __init__(self, orders: int, reports: int, memory: mmap.mmap) -> None:
        self._orders = orders
        self._reports = reports
        self._memory = memory
        self._room = memoryview(memory)
        self._slot = 0
        self._filled = 0
        self._free = SLOTS
        self._parts: deque[int] = deque()

    def serve(self, make: Make, begin: Callable[[Room], None] | None = None) -> None:
        """The worker's main loop, until it rejects a part or its parent dies (EOFError)."""
        if begin is not None:
            begin(self.room)
        try:
            while True:
                while not self._parts:
                    self._read_order()
                part = self._parts.popleft()
                if part >= self._first_wanted():
                    for text in make(part):
                        self._put(text)
                self._report(OVER)
        except CannotSplit:
            self._report(GIVEN_UP)

    def _first_wanted(self) -> int:
        (part,) = _NUMBER.unpack_from(self._room, SLOTS * SLOT_BYTES)
        return int(part)

    def room(self) -> memoryview:
        """The free space in the slot, or the next slot if that is too small."""
        if self._filled and self._filled + MIN_ROOM_BYTES > SLOT_BYTES:
            self._report(MORE)
        while not self._free:
            self._read_order()
        start = self._slot * SLOT_BYTES
        return self._room[start + self._filled : start + SLOT_BYTES]

    def _put(self, text: bytes | memoryview) -> None:
        """Copy output that was not written in place into the slot, or into further ones if it does not fit."""
        if isinstance(text, memoryview) and text.obj is self._memory:
            self._filled += len(text)
            return
        if self._filled and self._filled + len(text) > SLOT_BYTES:
            self._report(MORE)
        remaining = memoryview(text)
        while len(remaining) > SLOT_BYTES:
            self._fill(remaining[:SLOT_BYTES])
            self._report(MORE)
            remaining = remaining[SLOT_BYTES:]
        self._fill(remaining)

    def _fill(self, text: memoryview) -> None:
        while not self._free:
            self._read_order()
        start = self._slot * SLOT_BYTES + self._filled
        self._room[start : start + len(text)] = text
        self._filled += len(text)

    def _report(self, state: int) -> None:
        os.write(self._reports, _REPORT.pack(self._filled, state))
        self._slot = (self._slot + 1) % SLOTS
        self._filled = 0
        self._free -= 1

    def _read_order(self) -> None:
        raw = os.read(self._orders, _ORDER.size)
        if not raw:
            raise EOFError
        (order,) = _ORDER.unpack(raw)
        if order == TAKEN:
            self._free += 1
        else:
            self._parts.append(order)
