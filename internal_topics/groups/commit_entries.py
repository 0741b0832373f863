"""Ordinary commits, replayed by the kernel, which keeps only the newest record of each key.

The kernel owns a key from its first record on if that is ordinary, and as long as the key's state is a commit without a producer
and nothing is pending or was deleted since. Code that does anything else with the key first takes it back (`reclaim`), and
returns it once it is ordinary again (`give`).
"""

from array import array
from collections.abc import Sequence
from typing import Any

from kseg.internal_topics.coordinator_log import CoordinatorRecord, RecordChunk
from kseg.internal_topics.groups.committed_offsets import (
    NO_PRODUCER_ID,
    CommittedOffsets,
    OffsetSlot,
    committed_offset,
)
from kseg.segment.kernel import plain_commits as K
from kseg.segment.layout import INT64_MAX

_FIRST_ENTRIES = 1024


class PlainCommits:
    """The ordinary commits of one load. until_ms: leave later records, and those without a timestamp, to the caller; None for no limit."""

    def __init__(self, offsets: CommittedOffsets, until_ms: int | None = None) -> None:
        self._earliest = -INT64_MAX - 1 if until_ms is None else 0
        self._latest = INT64_MAX if until_ms is None else until_ms
        self._keeps_rewinds = offsets.keeps_rewinds
        self._entry_of: dict[bytes, int] = {}
        self._values: list[bytes] = []
        self._keys: list[bytes] = []
        self._slots: list[OffsetSlot] = []
        self._by_group: dict[str, list[OffsetSlot]] = {}
        self._table = array("q", bytes(8 * K.ENTRY_WIDTH * _FIRST_ENTRIES))

    def take(self, part: RecordChunk, at: int, known: dict[bytes, Any] | None) -> int:
        """Replay ordinary records from a row on; returns the first row that is not ordinary.

        known: all keys seen so far, None if some of them may be other bytes for the same key. The caller must adopt the new ones
        before it does anything else.
        """
        chunk, batches = part.chunk, part.batches
        records = chunk.records
        return K.take_commits(
            memoryview(chunk.body),
            *records.raw,
            at,
            records.count,
            *batches.raw,
            self._entry_of,
            self._keys,
            self._values,
            known,
            self._table,
            self._earliest,
            self._latest,
            self._keeps_rewinds,
        )

    def new_keys(self) -> Sequence[bytes]:
        """Keys whose first record the kernel has read, but which have not been adopted yet, in order."""
        return self._keys[len(self._slots) :]

    def adopt(self, slot: OffsetSlot) -> None:
        """The slot of the first of the new keys; the kernel owns it."""
        slot.entry = len(self._slots)
        self._slots.append(slot)
        self._by_group.setdefault(slot.key.group, []).append(slot)

    def give(self, slot: OffsetSlot) -> None:
        """Give a key to the kernel, if it is ordinary."""
        commit = slot.commit
        if (
            commit is None
            or slot.deleted is not None
            or slot.producers
            or commit.producer_id != NO_PRODUCER_ID
        ):
            return
        assert commit.key is not None and commit.value is not None
        committed = committed_offset(commit)
        if committed < 0:
            return
        entry = slot.entry
        if entry < 0:
            entry = slot.entry = len(self._keys)
            self._keys.append(commit.key)
            self._values.append(commit.value)
            self._slots.append(slot)
            self._by_group.setdefault(slot.key.group, []).append(slot)
            if K.ENTRY_WIDTH * entry >= len(self._table):
                self._table += array("q", bytes(self._table.itemsize * len(self._table)))
        elif self._keys[entry] != commit.key:  # the same key with the other record type (0 or 1)
            return
        place = K.ENTRY_WIDTH * entry
        self._values[entry] = commit.value
        self._table[place] = commit.offset
        self._table[place + 1] = commit.timestamp_ms
        self._table[place + 2] = committed
        self._entry_of[commit.key] = entry

    def reclaim(self, slot: OffsetSlot) -> None:
        """Update a slot and take its key back from the kernel."""
        entry = slot.entry
        if entry < 0 or self._entry_of.pop(self._keys[entry], None) is None:
            return
        place = K.ENTRY_WIDTH * entry
        slot.commit = CoordinatorRecord(
            self._table[place],
            self._table[place + 1],
            self._keys[entry],
            self._values[entry],
            NO_PRODUCER_ID,
            -1,
            False,
        )
        slot.rewinds += self._table[place + 3]
        self._table[place + 3] = 0

    def reclaim_group(self, group: str) -> None:
        """Reclaim all keys of a group."""
        for slot in self._by_group.get(group, ()):
            self.reclaim(slot)

    def reclaim_all(self) -> None:
        table, entry_of, make = self._table.tolist(), self._entry_of, CoordinatorRecord
        for entry, (slot, key, value) in enumerate(zip(self._slots, self._keys, self._values, strict=True)):
            if key not in entry_of:
                continue
            place = K.ENTRY_WIDTH * entry
            slot.commit = make(table[place], table[place + 1], key, value, NO_PRODUCER_ID, -1, False)
            slot.rewinds += table[place + 3]
        entry_of.clear()


def skipped_commits(part: RecordChunk, at: int, groups: set[bytes]) -> int:
    """The first row from `at` on that is neither a valid commit of one of these groups nor the tombstone of one."""
    records = part.chunk.records
    return K.skip_commits(memoryview(part.chunk.body), *records.raw, at, records.count, groups)
