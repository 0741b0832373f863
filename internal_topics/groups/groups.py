"""`kseg groups`: one partition of `__consumer_offsets` or `__share_group_state`, loaded and converted to rows.

A group is in a single partition of `__consumer_offsets`, so partitions are independent of each other. What they share (topic names,
locations of the logs) is determined beforehand and passed in the options.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import field
from functools import partial

from kseg.internal_topics.coordinator_log import (
    DOUBLED_END,
    ENDS_EVERY_LOAD,
    read_coordinator_chunks,
    read_coordinator_log,
)
from kseg.internal_topics.coordinator_reading import PASSED_OVER
from kseg.internal_topics.groups import group_rows as rows
from kseg.internal_topics.groups import share_rows
from kseg.internal_topics.groups.committed_offsets import committed_offset
from kseg.internal_topics.groups.coordinator_partition import HomePartition
from kseg.internal_topics.groups.group_records import CONSUMER_OFFSETS, OffsetKey
from kseg.internal_topics.groups.group_replay import LoadedGroups, load_groups
from kseg.internal_topics.groups.group_results import (
    UNREACHABLE,
    AboutGroup,
    DeletedGroup,
    ListedGroup,
    RowValues,
    ShareTopicOfGroup,
    result_of,
)
from kseg.internal_topics.groups.group_rows import TopicNames
from kseg.internal_topics.groups.group_states import ModernGroup
from kseg.internal_topics.groups.offset_expiry import ExpiryCheck, expiring_offsets
from kseg.internal_topics.groups.partition_ends import PartitionEnds, Replicas
from kseg.internal_topics.groups.share_state import SHARE_GROUP_STATE, LoadedShareState, load_share_state
from kseg.internal_topics.load_findings import FAILS, Effects, FailedRecord, LoadFindings
from kseg.jobs.events import Event, Row, Text
from kseg.segment.counted import counted
from kseg.segment.findings import Finding
from kseg.segment.partition.directory import own_partition_name
from kseg.segment.partition.log_dir_state import read_log_dir_state
from kseg.segment.partition.names import GROUP_TOPICS, PartitionName, Role
from kseg.segment.partition.targets import LogTarget, PartitionTarget, directory_of, is_selected
from kseg.segment.values import dataclass

_LINES_AT_ONCE = 1000
_EFFECTS = Effects(
    ends="a coordinator fails to load the partition",
    # which of the two depends on where the chunks end in which the coordinator reads the log
    may_end="a coordinator fails to load the partition, or stops loading it there and answers no request for it",
    # the load fails if the altered records of a group contradict each other
    taken_over="a coordinator does not verify checksums: it accepts what these bytes say, or fails to load the partition",
    unchecked="a coordinator does not verify checksums: it accepts what these bytes say, or fails to load the partition",
    ended_by=(*ENDS_EVERY_LOAD, DOUBLED_END),  # these coordinators also check that offsets increase
)
_WITHOUT_GROUPS = "none of the groups of this partition is available"
_WITHOUT_SHARE_STATES = "share groups get no record of the partitions of which this one has the state, and their offsets cannot be listed"
# Kafka 4.0.0 wrote other fields under version 0 of these messages; 4.3.1 fails on them (observed).
_OF_SHARE_GROUP = re.compile(r"ShareGroup\w*|ShareSnapshot|ShareUpdate|stateBatches")
_EARLY_ACCESS = " (share groups of Kafka 4.0, which were early access, have another format that later versions do not load)"


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupsOptions:
    """at_ms: the state at this time, None for the end of the log. groups: only these, all if empty. topics, partition: only
    offsets of these. with_history: also the commits that went back. as_json: rows of offsets as lines of JSON, since there are
    many. names, replicas: topic names and directories of the broker; tiered: those of partitions with tiered storage. expiry: also the
    offsets that a coordinator deletes once it has loaded them, None for none."""

    at_ms: int | None = None
    groups: frozenset[str] = frozenset()
    topics: tuple[str, ...] = ()
    partition: int | None = None
    with_history: bool = False
    as_json: bool = False
    names: TopicNames = field(default_factory=lambda: TopicNames({}, {}, {}))
    replicas: Replicas = field(default_factory=dict)
    tiered: frozenset[str] = frozenset()
    expiry: ExpiryCheck | None = None

    @property
    def wants_all(self) -> bool:
        return not self.groups and not self.topics and self.partition is None

    def wants(self, group: str) -> bool:
        return not self.groups or group in self.groups

    def wants_partition(self, topic: str | None, partition: int) -> bool:
        if topic is None:
            return not self.topics and self.partition in (None, partition)
        return is_selected(PartitionName(topic, partition), self.topics, self.partition)


def is_group_topic(target: object) -> bool:
    """Whether a target is a partition of one of the topics that store groups."""
    if not isinstance(target, LogTarget):
        return False
    name = own_partition_name(directory_of(target))
    return name is not None and name.topic in GROUP_TOPICS


def list_groups(target: LogTarget, options: GroupsOptions) -> Iterator[Event]:
    """The rows of one partition, and findings about records that its coordinator fails to load. Raises UnreadableInput."""
    name = own_partition_name(directory_of(target))
    if name is not None and name.topic == SHARE_GROUP_STATE:
        yield from _share_groups(target, name, options)
    else:
        yield from _groups(target, name, options)


def _groups(target: LogTarget, name: PartitionName | None, options: GroupsOptions) -> Iterator[Event]:
    loaded = load_groups(
        read_coordinator_chunks(target),
        until_ms=options.at_ms,
        keeps_rewinds=options.with_history,
        cleaned_end=0 if options.at_ms is None else _cleaned_end(target, name),
    )
    yield from _problems(target.path, loaded)
    ends = None if options.at_ms is not None else PartitionEnds(options.replicas, options.tiered)
    count = options.names.partitions.get(CONSUMER_OFFSETS)
    home = HomePartition(None if name is None else name.partition, count)
    for row in _group_rows(loaded, options, ends, home):
        yield Text(row) if isinstance(row, bytes) else Row(row, _result(row, home))
    check = options.expiry
    if check is not None and target.path in check.directories and not (loaded.failures or loaded.problems):
        yield from expiring_offsets(loaded, check, partial(_wants_key, options), options.names, ends)
    counts = loaded.offsets.rewind_counts.items()
    rewinds = sum(count for key, count in counts if _wants_key(options, key))
    yield Row({"type": "summary", "records": loaded.records, "rewinds": rewinds})


def _group_rows(
    loaded: LoadedGroups, options: GroupsOptions, ends: PartitionEnds | None, home: HomePartition
) -> Iterator[RowValues | bytes]:
    offsets, names = loaded.offsets, options.names
    for group_name, group in sorted(loaded.metadata.groups.items()):
        if options.wants(group_name):
            yield rows.group_row(group)
            yield from rows.member_rows(group, names)
            if isinstance(group, ModernGroup):
                yield from share_rows.share_topic_rows(group)
    committed = offsets.offsets
    wanted = sorted(key for key in committed if _wants_key(options, key))
    if options.as_json:
        for at in range(0, len(wanted), _LINES_AT_ONCE):
            some = wanted[at : at + _LINES_AT_ONCE]
            lines = [
                rows.offset_line(key, committed[key], names, ends, is_reachable=home.has(key.group))
                for key in some
            ]
            yield b"".join(lines)
    else:
        yield from (
            rows.offset_row(key, committed[key], names, ends, is_reachable=home.has(key.group))
            for key in wanted
        )
    for pending in (*offsets.pending.values(), *offsets.still_open):
        for key, commit in sorted(pending.items()):
            if _wants_key(options, key):
                yield rows.pending_row(key, commit, committed.get(key))
    for group_name, timestamp_ms in sorted(loaded.tombstones.items()):
        if group_name not in loaded.metadata.groups and options.wants(group_name):
            yield rows.tombstone_row(group_name, timestamp_ms)
    for key, deletion in sorted(offsets.deletions.items()):
        if _wants_key(options, key):
            former = None if deletion.former is None else committed_offset(deletion.former)
            yield rows.tombstone_row(key.group, deletion.timestamp_ms, key, former)
    for key, first_ms in sorted(loaded.unknown.items()):
        if _wants_key(options, key):
            yield rows.unknown_offset_row(key, first_ms)
    if options.with_history:
        yield from (rows.rewind_row(each) for each in offsets.rewinds if _wants_key(options, each.key))


def _result(row: RowValues, home: HomePartition) -> AboutGroup:
    """The result of a row. A group of which no coordinator knows, since it is in another partition than the one where it is looked for, is
    no group."""
    found = result_of(row)
    is_of_group = isinstance(found, ListedGroup | DeletedGroup | ShareTopicOfGroup)
    return AboutGroup(found.group) if is_of_group and not home.has(found.group) else found


def _wants_key(options: GroupsOptions, key: OffsetKey) -> bool:
    return options.wants_all or (
        options.wants(key.group) and options.wants_partition(key.topic, key.partition)
    )


def _share_groups(target: LogTarget, name: PartitionName, options: GroupsOptions) -> Iterator[Event]:
    home = HomePartition(name.partition, options.names.partitions.get(SHARE_GROUP_STATE))
    loaded = load_share_state(read_coordinator_log(target, until_ms=options.at_ms))
    yield from _problems(target.path, loaded)
    ends = None if options.at_ms is not None else PartitionEnds(options.replicas, options.tiered)
    for key, state in sorted(loaded.states.items()):
        topic = options.names.by_id.get(key.topic_id)
        if options.wants(key.group) and options.wants_partition(topic, key.partition):
            is_reachable = home.has(f"{key.group}:{key.topic_id}:{key.partition}")
            status = None if is_reachable else UNREACHABLE
            row = share_rows.share_offset_row(key, state, options.names, ends, status)
            yield Row(row, result_of(row))
    yield Row({"type": "summary", "records": loaded.records})


def _cleaned_end(target: LogTarget, name: PartitionName | None) -> int:
    """The end of the cleaned part of the log, below which only the newest record of each key is left."""
    if not isinstance(target, PartitionTarget) or target.log_dir is None or name is None:
        return 0
    return read_log_dir_state(target.log_dir).offset(Role.CLEANER_OFFSETS, name.topic, name.partition) or 0


def load_findings(target: LogTarget) -> Iterator[Finding]:
    """Findings about records that a group or share coordinator fails to load; for `verify`. Raises UnreadableInput."""
    yield from _problems(target.path, _loaded(target), is_log_known=True)


def load_failures(target: LogTarget) -> Sequence[FailedRecord]:
    """All records that a group or share coordinator fails to load. Raises UnreadableInput."""
    return _loaded(target).failures


def _loaded(target: LogTarget) -> LoadedGroups | LoadedShareState:
    name = own_partition_name(directory_of(target))
    if name is not None and name.topic == SHARE_GROUP_STATE:
        return load_share_state(read_coordinator_log(target))
    return load_groups(read_coordinator_chunks(target), keeps_offsets=False)


def _problems(
    path: str, loaded: LoadedGroups | LoadedShareState, *, is_log_known: bool = False
) -> Iterator[Finding]:
    """is_log_known: the caller reports damage of the log itself."""
    found = LoadFindings(path, _EFFECTS)
    for problem, before in loaded.problems:
        if not is_log_known or problem.damage == PASSED_OVER:
            found.damage(problem, before)
    is_share_state = isinstance(loaded, LoadedShareState)
    unavailable = _WITHOUT_SHARE_STATES if is_share_state else _WITHOUT_GROUPS
    for failure in loaded.failures:
        found.record(_of_record(path, failure, unavailable))
    yield from found.of_damage(loaded.records)
    yield from found.of_records()
    for type_id, count in sorted(loaded.unknown_types.items()):
        message = f"{counted(count, 'record')} of type {type_id}, which Kafka 4.3.1 does not know and skips"
        yield Finding("coordinator-record-unknown", path, message)


def _of_record(path: str, failure: FailedRecord, unavailable: str) -> Finding:
    origin = _EARLY_ACCESS if _OF_SHARE_GROUP.search(failure.reason) else ""
    message = f"the coordinator fails to load the record at offset {failure.offset}: {failure.reason}{origin}; until it is gone {unavailable}"
    return Finding(FAILS, path, message, first_offset=failure.offset)


def missing_groups(
    asked: Iterable[str], found: set[str], partitions: Mapping[int, bool], count: int | None
) -> Iterator[RowValues]:
    """Rows for requested groups that were not found. partitions: those of `__consumer_offsets` that were read, and whether they
    are complete. count: how many there are in the cluster, None when unknown."""
    from kseg.internal_topics.groups.coordinator_partition import partition_for

    for group in asked:
        if group in found:
            continue
        home = None if count is None else partition_for(group, count)
        is_absent = home is not None and partitions.get(home, False)
        yield {
            "type": "missing_group",
            "group": group,
            "status": "absent" if is_absent else "unknown",
            "offsets_partition": home,
            "offsets_partitions": count,
        }
