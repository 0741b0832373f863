"""The stream of events of `groups`, with what can only be said once all partitions of the two topics have been read.

Of share groups, that is which partitions a group has initialized of which the share coordinator has no state, and which states the group's
coordinator knows nothing of; so the rows of states come last whose group was not read before them. A partition that is not under PATH, or
could not be read completely, may have what is missing in the others. A coordinator has no states of deleted topics.
"""

import os
from collections.abc import Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import TYPE_CHECKING

from kseg.internal_topics.groups.coordinator_partition import partition_for
from kseg.internal_topics.groups.disabled_protocols import disabled_protocols, protocols_left_out
from kseg.internal_topics.groups.group_records import CONSUMER_OFFSETS
from kseg.internal_topics.groups.group_results import (
    AboutGroup,
    CoordinatorsOffsets,
    DeletedGroup,
    ForgottenState,
    ListedGroup,
    OffsetOfGroup,
    ShareStateOfGroup,
    ShareTopicOfGroup,
    StatelessPartition,
)
from kseg.internal_topics.groups.group_states import GroupType
from kseg.internal_topics.groups.groups import missing_groups
from kseg.internal_topics.groups.partition_ends import PartitionEnds
from kseg.internal_topics.groups.share_rows import FORGOTTEN, stateless_row
from kseg.internal_topics.groups.share_state import SHARE_GROUP_STATE, SharePartitionKey
from kseg.jobs.events import Event, Failure, Row
from kseg.segment.findings import ERROR, Finding

if TYPE_CHECKING:
    from kseg.cli.group_evidence import GroupEvidence
    from kseg.internal_topics.groups.groups import GroupsOptions


class ShareGroups:
    """options: of the run."""

    def __init__(self, evidence: "GroupEvidence", options: "GroupsOptions") -> None:
        self._evidence = evidence
        self._options = options
        self._listed: dict[str, ListedGroup] = {}
        self._deleted: set[str] = set()
        self._topics: dict[str, list[ShareTopicOfGroup]] = {}
        self._known: set[tuple[str, str, int]] = set()  # initialized
        self._states: set[tuple[str, str, int]] = set()
        self._held: list[tuple[Row, ShareStateOfGroup]] = []

    def holds(self, row: Row) -> bool:
        """Note a row. Whether it is to be left out, because `rows` returns it."""
        found = row.result
        if isinstance(found, ListedGroup):
            self._listed[found.group] = found
        elif isinstance(found, DeletedGroup):
            self._deleted.add(found.group)
        elif isinstance(found, ShareTopicOfGroup):
            self._topics.setdefault(found.group, []).append(found)
            if found.status == "initialized":
                self._known.update((found.group, found.topic_id, number) for number in found.partitions)
        elif isinstance(found, ShareStateOfGroup):
            key = found.group, found.topic_id, found.partition
            self._states.add(key)
            if key not in self._known and self._options.at_ms is None:
                self._held.append((row, found))
                return True
        return False

    def rows(self, unclear: AbstractSet[str]) -> Iterator[Row]:
        """The rows that were left out, and those of partitions without a state. unclear: directories with errors."""
        for row, state in self._held:
            forgotten = self._forgotten(state, unclear)
            yield row if forgotten is None else Row({**row.values, "status": FORGOTTEN}, forgotten)
        yield from self._stateless(unclear)

    def _forgotten(self, state: ShareStateOfGroup, unclear: AbstractSet[str]) -> ForgottenState | None:
        """None if the group's coordinator knows the state, or nobody can tell. While it creates or deletes a state, it does not count as
        initialized; one that is being created has no start offset yet. The state of a deleted group is not wanted any more: its own
        tombstone is lost."""
        evidence, group = self._evidence, state.group
        key = group, state.topic_id, state.partition
        is_of_topic = evidence.names.ids.get(state.topic) == state.topic_id
        if evidence.count is None or key in self._known or not is_of_topic:
            return None
        topics = tuple(self._topics.get(group, ()))
        if any(each.topic_id == state.topic_id and _is_changing(state, each) for each in topics):
            return None
        listed = self._listed.get(group)
        if listed is None and group in self._deleted:
            return None
        home = partition_for(group, evidence.count)
        replicas = evidence.read(CONSUMER_OFFSETS, home, unclear)
        needed = evidence.offsets_replicas.get(home)
        if not replicas or needed is None or len(replicas) < needed:
            return None
        is_extensible = needed == len(replicas) == 1 and (
            listed is None or listed.group_type == GroupType.SHARE
        )
        return ForgottenState(
            group,
            state.topic,
            state.topic_id,
            state.partition,
            state.state_epoch,
            replicas[0].path if is_extensible else None,
            None if listed is None else listed.epoch,
            topics,
        )

    def _stateless(self, unclear: AbstractSet[str]) -> Iterator[Row]:
        options, names = self._options, self._evidence.names
        count = names.partitions.get(SHARE_GROUP_STATE)
        ends = None if options.at_ms is not None else PartitionEnds(options.replicas)
        initialized = (
            each for topics in self._topics.values() for each in topics if each.status == "initialized"
        )
        for each in initialized if count else ():
            for number in each.partitions:
                key = SharePartitionKey(each.group, each.topic_id, number)
                if key in self._states or not options.wants_partition(each.topic, number):
                    continue
                home = partition_for(f"{each.group}:{each.topic_id}:{number}", count or 1)
                is_read = bool(self._evidence.read(SHARE_GROUP_STATE, home, unclear))
                if is_read and names.ids.get(each.topic) == each.topic_id:
                    yield Row(
                        stateless_row(key, each.topic, ends),
                        StatelessPartition(each.group, each.topic, number),
                    )


def _is_changing(state: ShareStateOfGroup, topic: ShareTopicOfGroup) -> bool:
    """Whether the group's coordinator is deleting the state, or creating it. topic: an entry of the state's topic."""
    is_created = (
        topic.status == "initializing" and state.partition in topic.partitions and not state.has_start
    )
    return topic.status == "deleting" or is_created


class GroupRows:
    """Filters the stream of events: adds a row for each requested group that was not found, compares what the two topics of share groups
    have of them, adds findings about groups whose protocol is disabled, and collects the offsets for a reset file.

    asked: the names of --group. options: of the run. keeps_offsets: whether a reset file is wanted. server: the path and the content of
    server.properties.
    """

    def __init__(
        self,
        evidence: "GroupEvidence",
        asked: Sequence[str],
        options: "GroupsOptions",
        *,
        keeps_offsets: bool,
        server: tuple[str, Mapping[str, str]] | None = None,
    ) -> None:
        self._evidence = evidence
        self._asked = asked
        self._is_of_today = options.at_ms is None
        self._share_groups = ShareGroups(evidence, options)
        self._unclear: set[str] = set()  # directories with errors
        self._keeps_offsets = keeps_offsets
        self._server = server
        self._found: set[str] = set()
        self._listed: list[ListedGroup] = []
        self._offsets = CoordinatorsOffsets[int]()
        self.is_whole = False  # whether all rows have passed

    @property
    def offsets(self) -> list[tuple[str, str, int, int]]:
        """Group, topic, partition and offset, in the order of the rows."""
        return [(*key, offset) for key, offset in self._offsets.by_key.items()]

    def through(self, events: Iterator[Event]) -> Iterator[Event]:
        """The same events, except that some rows of type share_offset come last; further ones of this type, of type missing_group, and
        findings."""
        for event in events:
            if isinstance(event, Row):
                self._note(event.result)
            elif isinstance(event, Failure) or (isinstance(event, Finding) and event.severity == ERROR):
                self._unclear.update((event.path, os.path.dirname(event.path)))
            if not (isinstance(event, Row) and self._share_groups.holds(event)):
                yield event
        yield from self._share_groups.rows(self._unclear)
        evidence = self._evidence
        if self._is_of_today:
            yield from disabled_protocols(evidence.newest_image, self._listed)
            if self._server is not None:
                yield from protocols_left_out(*self._server, self._listed)
        count = evidence.count_given(self._found)
        for row in missing_groups(self._asked, self._found, evidence.offsets_partitions, count):
            yield Row(row)
        self.is_whole = True

    def _note(self, result: object) -> None:
        if isinstance(result, AboutGroup):
            self._found.add(result.group)
        if isinstance(result, ListedGroup):
            self._listed.append(result)
        if isinstance(result, OffsetOfGroup) and self._keeps_offsets:
            self._offsets.add(result, result.offset)
