"""The history of leader epochs of one partition: which leader wrote which offsets.

The history is a list of (epoch, start offset); both strictly increase, and an epoch ends where the next begins.

    assign(epoch, start)      unless the latest entry covers it (same epoch, start not smaller):
                              1. drop entries from the end while epoch >= the new epoch or start >= the new start
                              2. append
    truncate_from_end(end)    drop entries that start at or above `end`
    truncate_from_start(at)   drop entries that start at or below `at`, restore the last of them with the start `at`

Recovery rebuilds the history from batches: a magic 2 batch whose epoch is known and greater than the latest one adds
(epoch, base offset). Appending is stricter and broader: every magic 2 batch is assigned, a batch of an older format
clears the history. Source: Kafka's LeaderEpochFileCache, LogSegment.recover; fact sheet §5.5.
"""

import bisect
from collections.abc import Iterable
from typing import TYPE_CHECKING, NamedTuple

from kseg.segment import layout as L
from kseg.segment.errors import FormatError

if TYPE_CHECKING:
    from kseg.segment.model import Batch

UNDEFINED_EPOCH = -1
UNDEFINED_EPOCH_OFFSET = -1


class EpochEntry(NamedTuple):
    """One line of a leader-epoch checkpoint: the first offset that this leader wrote."""

    epoch: int
    start_offset: int


def truncation_offset(
    follower: "EpochHistory", follower_end: int, leader: "EpochHistory", leader_end: int
) -> int | None:
    """To which offset a follower truncates its log before it fetches from a leader; None if an epoch is unknown. The ends are those of the
    logs. Source: KIP-101, Kafka's AbstractFetcherThread.getOffsetTruncationState."""
    latest = follower.latest
    epoch = UNDEFINED_EPOCH if latest is None else latest.epoch
    while True:
        there = leader.end_offset_for(epoch, leader_end)
        here = follower.end_offset_for(there.epoch, follower_end)
        if UNDEFINED_EPOCH in (there.epoch, here.epoch):
            return None
        follower_end = min(follower_end, here.start_offset)
        if here.epoch == there.epoch:
            return min(follower_end, there.start_offset)
        epoch = here.epoch  # the follower lacks the leader's, so the next question is about an earlier one


class EpochHistory:
    """A mutable history of leader epochs, as a broker keeps it.

    entries: of a checkpoint file; assigned one by one, so that entries that contradict later ones are dropped, as when
    a broker loads the file. Raises FormatError for a negative epoch or offset, which fails a broker's load.
    """

    __slots__ = ("_epochs", "_starts")

    def __init__(self, entries: Iterable[tuple[int, int]] = ()) -> None:
        self._epochs: list[int] = []
        self._starts: list[int] = []
        for epoch, start_offset in entries:
            self.assign(epoch, start_offset)

    @property
    def entries(self) -> tuple[EpochEntry, ...]:
        """The history from the oldest epoch to the latest, the lines of the checkpoint file."""
        return tuple(map(EpochEntry, self._epochs, self._starts))

    @property
    def latest(self) -> EpochEntry | None:
        return EpochEntry(self._epochs[-1], self._starts[-1]) if self._epochs else None

    def has(self, epoch: int) -> bool:
        """Whether `epoch` is one of its entries."""
        index = bisect.bisect_left(self._epochs, epoch)
        return self._epochs[index : index + 1] == [epoch]

    def begins_below(self, offset: int) -> bool:
        """Whether it has an epoch that began before an offset."""
        return bool(self._starts) and self._starts[0] < offset

    def assign(self, epoch: int, start_offset: int) -> bool:
        """Record that `epoch` began at `start_offset`; returns whether the history changed.

        Raises FormatError for a negative epoch or offset (Kafka: IllegalArgumentException).
        """
        if epoch < 0 or start_offset < 0:
            raise FormatError(f"a leader epoch cannot be {epoch} from offset {start_offset}")
        latest = self.latest
        if latest is not None and epoch == latest.epoch and start_offset >= latest.start_offset:
            return False
        while self._epochs and (self._epochs[-1] >= epoch or self._starts[-1] >= start_offset):
            self._epochs.pop()
            self._starts.pop()
        self._epochs.append(epoch)
        self._starts.append(start_offset)
        return True

    def recover_batch(self, batch: "Batch") -> bool:
        """Add a batch as recovery does; returns whether the history changed. FormatError as in `assign`."""
        if batch.magic < L.MAGIC_V2 or batch.leader_epoch < 0:
            return False
        if self._epochs and batch.leader_epoch <= self._epochs[-1]:
            return False
        return self.assign(batch.leader_epoch, batch.base_offset)

    def append_batch(self, batch: "Batch") -> bool:
        """Add a batch as an append does; returns whether the history changed. FormatError as in `assign`."""
        if batch.magic >= L.MAGIC_V2:
            return batch.leader_epoch >= 0 and self.assign(batch.leader_epoch, batch.base_offset)
        changed = bool(self._epochs)
        self.clear()
        return changed

    def clear(self) -> None:
        self._epochs.clear()
        self._starts.clear()

    def truncate_from_end(self, end_offset: int) -> bool:
        """The log now ends before `end_offset` (a negative one changes nothing); returns whether entries were dropped."""
        kept = bisect.bisect_left(self._starts, end_offset) if end_offset >= 0 else len(self._starts)
        changed = kept < len(self._starts)
        del self._epochs[kept:], self._starts[kept:]
        return changed

    def truncate_from_start(self, start_offset: int) -> bool:
        """The log now begins at `start_offset`; returns whether Kafka would rewrite its file."""
        dropped = bisect.bisect_right(self._starts, start_offset)
        if not dropped:
            return False
        del self._epochs[: dropped - 1], self._starts[: dropped - 1]
        self._starts[0] = start_offset
        return True

    def epoch_for_offset(self, offset: int) -> int | None:
        """The epoch that wrote `offset`; None below the first entry. The latest epoch has no upper bound."""
        index = bisect.bisect_right(self._starts, offset)
        return self._epochs[index - 1] if index else None

    def end_offset_for(self, epoch: int, log_end_offset: int) -> EpochEntry:
        """The answer of OffsetForLeaderEpoch: (largest known epoch <= `epoch`, its end offset, exclusive).

        The latest epoch ends at the log end; for an epoch before the first, the answer is that epoch and the first start offset;
        for an unknown later epoch, or with an empty history, it is (-1, -1).
        """
        undefined = EpochEntry(UNDEFINED_EPOCH, UNDEFINED_EPOCH_OFFSET)
        if epoch == UNDEFINED_EPOCH or not self._epochs or epoch > self._epochs[-1]:
            return undefined
        if epoch == self._epochs[-1]:
            return EpochEntry(epoch, log_end_offset)
        higher = bisect.bisect_right(self._epochs, epoch)
        floor = self._epochs[higher - 1] if higher else epoch
        return EpochEntry(floor, self._starts[higher])
