"""The events that the replay of producers and transactions (`producer`) reports for a batch; most batches cause none."""

from typing import TYPE_CHECKING, TypeAlias

from kseg.segment import layout as L
from kseg.segment.sidecar.txn_index import AbortedTxn
from kseg.segment.values import dataclass

if TYPE_CHECKING:
    from kseg.segment.model import Batch

GAP = "gap"
DUPLICATE = "duplicate"
_SEQUENCES = 2**31


@dataclass(frozen=True, slots=True)
class CompletedTransaction:
    """A transaction that a marker ended. first_offset: of its data. last_offset: of the marker.
    last_stable_offset: the value that a broker writes to the transaction index."""

    producer_id: int
    first_offset: int
    last_offset: int
    is_aborted: bool
    last_stable_offset: int

    @property
    def index_entry(self) -> AbortedTxn | None:
        """The entry for the transaction index of the marker's segment; None if the transaction was committed."""
        if not self.is_aborted:
            return None
        return AbortedTxn(
            version=0,
            producer_id=self.producer_id,
            first_offset=self.first_offset,
            last_offset=self.last_offset,
            last_stable_offset=self.last_stable_offset,
        )


@dataclass(frozen=True, slots=True)
class SequenceBreak:
    """A data batch that does not continue its producer's sequence within one epoch. kind: GAP if it starts
    later than `expected`, DUPLICATE if earlier. distance: the difference in records."""

    kind: str
    producer_id: int
    producer_epoch: int
    base_offset: int
    expected: int
    found: int
    distance: int


@dataclass(frozen=True, slots=True)
class OutsideTransaction:
    """A data batch outside the open transaction of its producer: a broker's load fails on it
    (InvalidTxnStateException). Replay continues, and the transaction stays open."""

    producer_id: int
    base_offset: int
    last_offset: int
    transaction_first_offset: int


@dataclass(frozen=True, slots=True)
class LostTransaction:
    """A marker for a transaction that was replaced in the list of open ones by that of another producer, whose batch has the
    same base offset; a broker's load fails on it (IllegalArgumentException)."""

    producer_id: int
    first_offset: int
    last_offset: int


# a marker that `follow_transactions` has applied, a row of its table: offset, producer id, whether it aborts (1), the first offset of the
# transaction that it ended (-1: none was open), and the last stable offset for a transaction index
PassedMarker: TypeAlias = tuple[int, int, int, int, int]


ReplayEvent = CompletedTransaction | SequenceBreak | OutsideTransaction | LostTransaction


def sequence_breaks(batch: "Batch", last_sequence: int) -> tuple[SequenceBreak, ...]:
    expected = L.increment_sequence(last_sequence, 1)
    if batch.base_sequence == expected:
        return ()
    ahead = (batch.base_sequence - expected) % _SEQUENCES
    kind, distance = (GAP, ahead) if ahead < _SEQUENCES // 2 else (DUPLICATE, _SEQUENCES - ahead)
    return (
        SequenceBreak(
            kind,
            batch.producer_id,
            batch.producer_epoch,
            batch.base_offset,
            expected,
            batch.base_sequence,
            distance,
        ),
    )
