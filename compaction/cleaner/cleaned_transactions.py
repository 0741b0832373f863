"""Transaction state while the cleaner reads batches: which data was aborted, and which markers can be discarded.

(Kafka: CleanedTransactionMetadata; fact sheet §8.5.)

1. Aborted transactions wait by first offset. One becomes ongoing for its producer at the first batch that ends at or
   after its first offset; a second one of the same producer does not replace it.
2. A transactional batch of a producer with an ongoing aborted transaction is removed and
   recorded as seen. Any other one records that the producer has committed data.
3. An ABORT marker ends the ongoing transaction. When batches of it were seen in this pass the marker is needed, and
   so is the entry of the transaction index. A COMMIT marker is needed when committed data of its producer were seen since
   the last one. A control batch without records is not needed; control records of other kinds are.

Non-transactional batches do not change the state; the caller may omit them.
"""

import heapq
from collections.abc import Iterable
from dataclasses import replace

from kseg.segment import layout as L
from kseg.segment.sidecar.txn_index import AbortedTxn
from kseg.segment.values import dataclass

ABORT, COMMIT = 0, 1


@dataclass(slots=True)
class _Ongoing:
    entry: AbortedTxn
    was_seen: bool = False


@dataclass(frozen=True, slots=True)
class MarkerVerdict:
    """can_discard: the marker may be removed once its delete horizon has passed. kept_entry: for the new transaction index."""

    can_discard: bool
    kept_entry: AbortedTxn | None = None


class Transactions:
    """The state of one pass, shared by all groups of segments."""

    __slots__ = ("_committed", "_ongoing", "_waiting")

    def __init__(self) -> None:
        self._waiting: list[tuple[int, AbortedTxn]] = []
        self._ongoing: dict[int, _Ongoing] = {}
        self._committed: set[int] = set()

    def add(self, aborted: Iterable[AbortedTxn]) -> None:
        """Add aborted transactions. Duplicates are ignored."""
        for entry in aborted:
            heapq.heappush(self._waiting, (entry.first_offset, entry))

    def copy_below(self, offset: int) -> "Transactions":
        """A copy for a reader that continues separately with batches that end below `offset`."""
        copy = Transactions()
        copy._waiting = [waiting for waiting in self._waiting if waiting[0] < offset]
        heapq.heapify(copy._waiting)
        copy._ongoing = {producer: replace(ongoing) for producer, ongoing in self._ongoing.items()}
        copy._committed = set(self._committed)
        return copy

    @property
    def next_offset(self) -> int:
        """No further aborted transaction starts at or before a batch that ends below this offset."""
        return self._waiting[0][0] if self._waiting else L.INT64_MAX

    def advance_to(self, last_offset: int) -> None:
        """Advance past a batch that ends at `last_offset`."""
        while self._waiting and self._waiting[0][0] <= last_offset:
            entry = heapq.heappop(self._waiting)[1]
            self._ongoing.setdefault(entry.producer_id, _Ongoing(entry))

    def is_aborted(self, producer_id: int, last_offset: int) -> bool:
        """Whether a transactional data batch is to be removed."""
        self.advance_to(last_offset)
        ongoing = self._ongoing.get(producer_id)
        if ongoing is None:
            self._committed.add(producer_id)
            return False
        ongoing.was_seen = True
        return True

    def on_control_batch(self, producer_id: int, last_offset: int, kind: int | None) -> MarkerVerdict:
        """Process a control batch. kind: type of its first record, None when it has no record."""
        self.advance_to(last_offset)
        if kind is None:
            return MarkerVerdict(True)
        if kind == ABORT:
            ongoing = self._ongoing.pop(producer_id, None)
            if ongoing is not None and ongoing.was_seen:
                return MarkerVerdict(False, ongoing.entry)
            return MarkerVerdict(True)
        if kind == COMMIT:
            has_data = producer_id in self._committed
            self._committed.discard(producer_id)
            return MarkerVerdict(not has_data)
        return MarkerVerdict(False)
