"""Committed offsets as a coordinator has them in memory after loading (Kafka: OffsetMetadataManager.replay, replayEndTransactionMarker).

    commit, no producer id      it is committed at once
    commit, with a producer id  it is pending until the producer's marker; the transactional flag and the epoch are not checked
    tombstone                   removes the offset, and all pending commits of the same key, of any producer
    COMMIT marker               each pending commit is committed, unless a later record for its key is committed already
    ABORT marker                the pending commits are dropped

A commit is kept as its undecoded record and decoded on demand, since most are soon replaced by the next. The replay also records rewinds:
commits of an offset below the one that they replace, or below the one that was deleted before them.
"""

from typing import NamedTuple

from kseg.internal_topics.coordinator_log import CoordinatorRecord
from kseg.internal_topics.groups.group_records import OffsetKey

NO_PRODUCER_ID = -1

_OFFSET = slice(2, 10)  # position of the offset in a commit's value, in every version


class Deletion(NamedTuple):
    """The newest record of a key is a tombstone. former: the commit that it deleted, None if that is no longer in the log."""

    timestamp_ms: int
    record_offset: int
    former: CoordinatorRecord | None


class Rewind(NamedTuple):
    """A committed offset that moved backwards. timestamp_ms, record_offset: of the record that did this (in a transaction, the marker).
    deleted_ms: when the former offset was deleted, None when it was replaced."""

    key: OffsetKey
    former: CoordinatorRecord
    commit: CoordinatorRecord
    timestamp_ms: int
    record_offset: int
    deleted_ms: int | None


def committed_offset(commit: CoordinatorRecord) -> int:
    """The offset of a commit, without decoding the rest."""
    assert commit.value is not None
    return int.from_bytes(commit.value[_OFFSET], "big", signed=True)


class OffsetSlot:
    """The state of one key.

    commit: the committed offset. tombstone: set if the newest record of the key is one. deleted: the newest tombstone since the
    last commit. rewinds: how often the offset went back. entry: of `PlainCommits`, -1 for none.
    """

    __slots__ = ("commit", "deleted", "entry", "key", "producers", "rewinds", "tombstone")

    def __init__(self, key: OffsetKey) -> None:
        self.key = key
        self.commit: CoordinatorRecord | None = None
        self.tombstone: Deletion | None = None
        self.deleted: Deletion | None = None
        self.producers: set[int] | None = None  # those with a pending commit of this key
        self.rewinds = 0
        self.entry = -1


class CommittedOffsets:
    """pending: commits that wait for their producer's marker, by producer id. still_open: transactions whose marker does not
    count (`leave_open`). rewinds: in log order, if they are kept."""

    def __init__(self, *, keeps_rewinds: bool = True) -> None:
        self.keeps_rewinds = keeps_rewinds
        self.pending: dict[int, dict[OffsetKey, CoordinatorRecord]] = {}
        self.still_open: list[dict[OffsetKey, CoordinatorRecord]] = []
        self.rewinds: list[Rewind] = []
        self._slots: dict[OffsetKey, OffsetSlot] = {}

    def slot(self, key: OffsetKey) -> OffsetSlot:
        """The slot of a key; always the same object."""
        slot = self._slots.get(key)
        if slot is None:
            slot = self._slots[key] = OffsetSlot(key)
        return slot

    @property
    def rewind_counts(self) -> dict[OffsetKey, int]:
        """Number of rewinds by key, for keys with at least one."""
        return {key: slot.rewinds for key, slot in self._slots.items() if slot.rewinds}

    @property
    def offsets(self) -> dict[OffsetKey, CoordinatorRecord]:
        return {key: slot.commit for key, slot in self._slots.items() if slot.commit is not None}

    @property
    def deletions(self) -> dict[OffsetKey, Deletion]:
        """Keys whose newest record is a tombstone."""
        return {key: slot.tombstone for key, slot in self._slots.items() if slot.tombstone is not None}

    def commit(self, slot: OffsetSlot, record: CoordinatorRecord) -> None:
        """A record with a value."""
        slot.tombstone = None
        if record.producer_id == NO_PRODUCER_ID:
            former = slot.commit
            if former is None or record.value[_OFFSET] < former.value[_OFFSET]:  # type: ignore[index]  # see _settle
                self._settle(slot, record, record.timestamp_ms, record.offset)
            else:
                slot.commit = record
            return
        self.pending.setdefault(record.producer_id, {})[slot.key] = record
        if slot.producers is None:
            slot.producers = set()
        slot.producers.add(record.producer_id)

    def delete(self, slot: OffsetSlot, timestamp_ms: int, record_offset: int) -> None:
        """A tombstone."""
        former = slot.commit
        if former is None and slot.deleted is not None:
            former = slot.deleted.former
        slot.commit = None
        slot.tombstone = slot.deleted = Deletion(timestamp_ms, record_offset, former)
        for producer_id in slot.producers or ():
            self.pending.get(producer_id, {}).pop(slot.key, None)
        slot.producers = None
        for left in self.still_open:
            left.pop(slot.key, None)

    def leave_open(self, producer_id: int) -> None:
        """A marker that does not count (it is later than the requested time): the transaction that it ends stays undecided, even if a clock
        went back and a later transaction's marker counts."""
        waiting = self.pending.pop(producer_id, None)
        if waiting:
            self.still_open.append(waiting)

    def end_transaction(
        self, producer_id: int, timestamp_ms: int, record_offset: int, *, is_commit: bool
    ) -> None:
        """A marker of a producer."""
        for key, commit in self.pending.pop(producer_id, {}).items():
            slot = self._slots[key]
            if slot.producers is not None:
                slot.producers.discard(producer_id)
            if is_commit and (slot.commit is None or commit.offset > slot.commit.offset):
                self._settle(slot, commit, timestamp_ms, record_offset)

    def _settle(
        self, slot: OffsetSlot, commit: CoordinatorRecord, timestamp_ms: int, record_offset: int
    ) -> None:
        former, deleted_ms = slot.commit, None
        if former is None and slot.deleted is not None:
            former, deleted_ms = slot.deleted.former, slot.deleted.timestamp_ms
            slot.deleted = None
        # big-endian bytes compare like the numbers, as long as none is negative
        if former is not None and commit.value[_OFFSET] < former.value[_OFFSET]:  # type: ignore[index]  # commits have values
            slot.rewinds += 1
            if self.keeps_rewinds:
                self.rewinds.append(Rewind(slot.key, former, commit, timestamp_ms, record_offset, deleted_ms))
        slot.commit = commit
