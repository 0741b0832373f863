"""Process numbered parts in several processes and return their results in order.

Each worker has up to QUEUED parts assigned. This process works as well: while the next part is not ready, it processes later ones, up to
AHEAD of them or AHEAD_BYTES; if the part is still not ready then, it processes that one itself. So it never waits for a worker, and a
worker that gets no processor time does no harm.
"""

from collections.abc import Callable

from kseg.jobs.log_splitting import CannotSplit
from kseg.jobs.part_worker import Make, PartWorker, Room

QUEUED = 2
# how many parts this process finishes while it waits for a worker, before it processes the worker's part itself
AHEAD = 8
AHEAD_BYTES = 32 * 1024 * 1024


class PartPool:
    """make: yields the pieces of a part, in this process or in a worker; raises CannotSplit to give it up. count: number of parts. begin:
    called first in each worker, with a function that returns memory for the next piece."""

    def __init__(self, make: Make, count: int, begin: Callable[[Room], None] | None = None) -> None:
        self._make = make
        self._begin = begin
        self._count = count
        self._workers: list[PartWorker] = []
        self._worker_of_part: dict[int, PartWorker] = {}
        self._own_pieces: dict[int, list[bytes | memoryview] | None] = {}
        self._next = 0  # the first part that is not assigned yet

    def start_workers(self, count: int) -> None:
        """Start `count` workers, or as many as the system allows."""
        for _ in range(count):
            try:
                self._workers.append(PartWorker(self._make, self._workers, self._begin))
            except OSError:
                return

    def take(self, part: int) -> list[bytes | memoryview] | None:
        """The pieces of a part, valid until `give_back`; None if the part was given up or its worker died. Take the parts in order."""
        while part not in self._own_pieces:
            worker = self._worker_of_part.get(part)
            if worker is not None and worker.is_ready():
                pieces = worker.receive()
                self._assign_parts()
                return pieces
            if worker is not None and not self._may_run_ahead():
                worker.drop(part)
                return self._produce(part)
            own_part = self._next
            self._next += 1
            self._assign_parts()
            self._own_pieces[own_part] = self._produce(own_part)
        return self._own_pieces.pop(part)

    def give_back(self, part: int) -> None:
        """Release the pieces of a part."""
        worker = self._worker_of_part.get(part)
        if worker is not None:
            worker.give_back()

    def skip(self, part: int) -> None:
        """Discard a part that will not be taken."""
        worker = self._worker_of_part.get(part)
        if worker is not None:
            worker.drop(part)
        else:
            self._own_pieces.pop(part, None)
            self._next = max(self._next, part + 1)

    def end(self) -> None:
        """Have the workers end, without waiting for the system to take back what they have mapped; `kill` does."""
        for worker in self._workers:
            worker.end()

    def kill(self) -> None:
        self.end()
        for worker in self._workers:
            worker.kill()

    def _may_run_ahead(self) -> bool:
        own = self._own_pieces.values()
        if self._next == self._count or len(own) >= AHEAD or None in own:
            return False
        return sum(len(piece) for pieces in own for piece in pieces or ()) < AHEAD_BYTES

    def _assign_parts(self) -> None:
        for _ in range(QUEUED):
            for worker in self._workers:
                if len(worker.pending) < QUEUED and self._next < self._count:
                    worker.order(self._next)
                    self._worker_of_part[self._next] = worker
                    self._next += 1

    def _produce(self, part: int) -> list[bytes | memoryview] | None:
        try:
            return list(self._make(part))
        except CannotSplit:
            return None
