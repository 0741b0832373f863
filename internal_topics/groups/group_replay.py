"""One partition of `__consumer_offsets`, loaded as its coordinator loads it.

1. All records from the log start to the log end, in order, including those of aborted and undecided transactions
   (`coordinator_log`). With a time limit, only records and markers up to it.
2. Each key is decoded once. A record of a type that 4.3.1 does not know is skipped, as by the broker.
3. Offset commits go to `CommittedOffsets`, the others, decoded, to `GroupMetadata`; markers end transactions.
4. A record without a key, one that cannot be decoded, and one that contradicts earlier ones fail the load of the partition: all
   its groups are unavailable until the record is gone. Here it becomes a `FailedRecord`, and the replay continues after it, with
   a newer version decoded like the newest known one.
5. At the end of the log, a member of a streams group that has yet to give up tasks fails the load if its own record is lost.

(Kafka: CoordinatorLoaderImpl.doLoad, GroupCoordinatorShard.replay, GroupMetadataManager.onLoaded.)
"""

from collections.abc import Iterable
from contextlib import suppress
from dataclasses import field

from kseg.internal_topics.coordinator_log import (
    CoordinatorEntry,
    CoordinatorRecord,
    RecordChunk,
    TransactionMarker,
)
from kseg.internal_topics.decoding import UnknownType, decode_value
from kseg.internal_topics.groups.commit_entries import PlainCommits, skipped_commits
from kseg.internal_topics.groups.committed_offsets import CommittedOffsets, OffsetSlot
from kseg.internal_topics.groups.group_metadata import GroupMetadata, LoadFailed
from kseg.internal_topics.groups.group_records import (
    CONSUMER_OFFSETS,
    GroupKey,
    OffsetKey,
    is_commit_well_formed,
    parse_commit,
    parse_key,
)
from kseg.internal_topics.groups.group_states import STREAMS_UNREVOKED, GroupType, ModernGroup
from kseg.internal_topics.load_findings import CoordinatorLoad, FailedRecord
from kseg.segment.errors import FormatError
from kseg.segment.kernel.plain_commits import plain_key
from kseg.segment.values import dataclass

METADATA_TYPES = (2, 3, 11, 17)  # *GroupMetadata of classic, consumer, share and streams groups
_STREAMS_CURRENT = 22  # StreamsGroupCurrentMemberAssignment


@dataclass(slots=True)
class LoadedGroups(CoordinatorLoad):
    """The state of a partition after loading.

    tombstones: the time of the newest record of a group's own key, if that is a tombstone. unknown: offset keys for which compaction has
    left no record up to the requested time, and the time of their first record after it.
    """

    offsets: CommittedOffsets = field(default_factory=CommittedOffsets)
    metadata: GroupMetadata = field(default_factory=GroupMetadata)
    tombstones: dict[str, int] = field(default_factory=dict)
    unknown: dict[OffsetKey, int] = field(default_factory=dict)


def load_groups(
    entries: Iterable[CoordinatorEntry | RecordChunk],
    *,
    until_ms: int | None = None,
    cleaned_end: int = 0,
    keeps_rewinds: bool = True,
    keeps_offsets: bool = True,
) -> LoadedGroups:
    """Replay a partition's log, from single records or, far faster, from chunks.

    until_ms: only records and markers up to this time. cleaned_end: the first offset that the log cleaner has not cleaned. keeps_rewinds:
    keep them, not only their number. keeps_offsets: if False, only groups, failures, unknown types and problems are correct: a load never
    fails because of an earlier commit, except because of the group that it created. Raises UnreadableInput when the log cannot be listed.
    """
    loaded = LoadedGroups(offsets=CommittedOffsets(keeps_rewinds=keeps_rewinds))
    replay = _Replay(loaded, until_ms, cleaned_end, keeps_offsets=keeps_offsets)
    for entry in entries:
        if isinstance(entry, RecordChunk):
            replay.chunk(entry)
        elif isinstance(entry, CoordinatorRecord):
            replay.record(entry)
        elif isinstance(entry, TransactionMarker):
            replay.marker(entry)
        else:
            loaded.meet(entry, load_groups)
    replay.plain.reclaim_all()
    replay.end()
    offsets = loaded.offsets
    for key in [*offsets.offsets, *offsets.deletions] if loaded.unknown else ():
        loaded.unknown.pop(key, None)
    return loaded


# (record type, decoded key; None for a type that is skipped)
_Known = tuple[int, OffsetSlot | GroupKey | None]


class _Replay:
    def __init__(
        self, loaded: LoadedGroups, until_ms: int | None, cleaned_end: int, *, keeps_offsets: bool
    ) -> None:
        self._loaded = loaded
        self._until_ms = until_ms
        self._cleaned_end = cleaned_end
        self._known: dict[bytes, _Known] = {}
        self._has_odd_keys = False  # some keys may have two encodings
        self._assigned_at: dict[GroupKey, int] = {}  # the newest assignments of members of streams groups
        self.plain = PlainCommits(loaded.offsets, until_ms)
        # groups whose further commits cannot change the result, and are skipped; None: replay every commit
        self._skipped = None if keeps_offsets or until_ms is not None else set[bytes]()

    def chunk(self, chunk: RecordChunk) -> None:
        """Replay a chunk; only records that the kernel does not handle are decoded here."""
        at, count = 0, chunk.chunk.records.count
        while at < count:
            if self._skipped is None:
                stopped = self.plain.take(chunk, at, None if self._has_odd_keys else self._known)
                self._adopt()
            else:
                stopped = skipped_commits(chunk, at, self._skipped)
            self._loaded.records += stopped - at
            if stopped < count:
                self.record(chunk.record(stopped))
            at = stopped + 1

    def _adopt(self) -> None:
        """Create the slots of the keys whose first record the kernel has read."""
        groups = self._loaded.metadata.groups
        for raw in self.plain.new_keys():
            known = self._known[raw] = self._parsed(raw)
            slot = known[1]
            assert type(slot) is OffsetSlot
            if slot.key.group not in groups:
                self._loaded.metadata.has_offset(slot.key.group)
            self.plain.adopt(slot)

    def marker(self, marker: TransactionMarker) -> None:
        offsets = self._loaded.offsets
        if self._until_ms is not None and marker.timestamp_ms > self._until_ms:
            offsets.leave_open(marker.producer_id)
            return
        for key in offsets.pending.get(marker.producer_id, ()):
            self.plain.reclaim(offsets.slot(key))
        offsets.end_transaction(
            marker.producer_id, marker.timestamp_ms, marker.offset, is_commit=marker.is_commit
        )

    def _too_late(self, record: CoordinatorRecord) -> None:
        """A record after the requested time. If its key is in the cleaned part, that is recorded: the record that it replaced may be
        gone."""
        if record.offset < self._cleaned_end and record.key is not None:
            with suppress(FormatError):
                key = parse_key(record.key)[1]
                if isinstance(key, OffsetKey):
                    self._loaded.unknown.setdefault(key, _time_ms(record))

    def record(self, record: CoordinatorRecord) -> None:
        if self._until_ms is not None and _time_ms(record) > self._until_ms:
            self._too_late(record)
            return
        loaded = self._loaded
        loaded.records += 1
        raw = record.key
        if raw is None:
            self._fail(record, "the record has no key")
            return
        known = self._known.get(raw)
        if known is None:
            try:
                known = self._known[raw] = self._parsed(raw)
                if type(known[1]) is OffsetSlot and not plain_key(raw):
                    self._has_odd_keys = True
            except FormatError as error:
                self._fail(record, f"its key cannot be decoded: {error}")
                return
        type_id, what = known
        if type(what) is OffsetSlot:
            self._offset(type_id, what, record)
        elif isinstance(what, GroupKey):
            self._group(what, record)
        else:
            loaded.skip(type_id)

    def _parsed(self, raw: bytes) -> _Known:
        try:
            type_id, key = parse_key(raw)
        except UnknownType as unknown:
            return unknown.type_id, None
        return type_id, self._loaded.offsets.slot(key) if isinstance(key, OffsetKey) else key

    def _offset(self, type_id: int, slot: OffsetSlot, record: CoordinatorRecord) -> None:
        loaded, value = self._loaded, record.value
        self.plain.reclaim(slot)
        if value is None:
            loaded.offsets.delete(slot, record.timestamp_ms, record.offset)
            return
        if not is_commit_well_formed(type_id, value):
            try:
                problem = parse_commit(type_id, value)[1]
            except FormatError as error:
                self._fail(record, f"its value cannot be decoded: {error}")
                return
            if problem:
                self._fail(record, problem)
        if slot.key.group not in loaded.metadata.groups:
            loaded.metadata.has_offset(slot.key.group)
        if self._skipped is not None:
            if slot.key.group.isascii():
                self._skipped.add(slot.key.group.encode())
            return
        loaded.offsets.commit(slot, record)
        self.plain.give(slot)

    def _group(self, key: GroupKey, record: CoordinatorRecord) -> None:
        loaded = self._loaded
        value = None
        if record.value is not None:
            try:
                decoded = decode_value(CONSUMER_OFFSETS, key.type_id, record.value)
            except FormatError as error:
                self._fail(record, f"its value cannot be decoded: {error}")
                return
            if decoded.is_newer:
                self._fail(record, f"unknown version {decoded.version} of {decoded.message.name}")
            value = decoded.values
        if key.type_id in METADATA_TYPES:
            if value is None:
                loaded.tombstones[key.group] = record.timestamp_ms
            else:
                loaded.tombstones.pop(key.group, None)
        was_there = key.group in loaded.metadata.groups
        try:
            loaded.metadata.take(key.type_id, key.group, key.subject, value)
        except LoadFailed as error:
            self._fail(record, str(error))
        if key.type_id == _STREAMS_CURRENT and value is not None:
            self._assigned_at[key] = record.offset
        if was_there and key.group not in loaded.metadata.groups:  # its next commit recreates the group
            self.plain.reclaim_group(key.group)
            if self._skipped is not None and key.group.isascii():
                self._skipped.discard(key.group.encode())

    def end(self) -> None:
        """The coordinator schedules the rebalance timeout of each member of a streams group that has tasks to revoke, and throws a
        NullPointerException where the member's own record, which has that timeout, is missing."""
        groups = self._loaded.metadata.groups
        for key, offset in self._assigned_at.items():
            group = groups.get(key.group)
            if isinstance(group, ModernGroup) and group.type is GroupType.STREAMS:
                member = group.members.get(key.subject)
                if member is not None and member.state == STREAMS_UNREVOKED and not member.details:
                    reason = f"member {key.subject} of group {key.group} has tasks to revoke, but its StreamsGroupMemberMetadata is missing"
                    self._loaded.failures.append(FailedRecord(offset, reason))

    def _fail(self, record: CoordinatorRecord, reason: str) -> None:
        self._loaded.failures.append(FailedRecord(record.offset, reason))


def _time_ms(entry: CoordinatorRecord) -> int:
    """When a record was written. Messages of format v0 have no timestamp, but offset commits contain their own."""
    if entry.timestamp_ms >= 0 or not entry.key or not entry.value:
        return entry.timestamp_ms
    try:
        type_id, key = parse_key(entry.key)
        return parse_commit(type_id, entry.value)[0].commit_timestamp_ms if isinstance(key, OffsetKey) else -1
    except FormatError:
        return entry.timestamp_ms
