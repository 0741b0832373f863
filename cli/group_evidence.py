"""What `groups` needs to know about a broker besides the records of its groups: topic names, locations of the logs, and which partitions of
`__consumer_offsets` are available. Determined once, and passed on as plain values."""

import os
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from kseg.jobs.events import Event, Failure, Row
from kseg.segment.findings import ERROR, Finding
from kseg.segment.partition.names import GROUP_TOPICS
from kseg.segment.values import dataclass

if TYPE_CHECKING:
    from kseg.internal_topics.groups.group_results import ShareTopicOfGroup
    from kseg.internal_topics.groups.group_rows import TopicNames
    from kseg.internal_topics.groups.groups import GroupsOptions
    from kseg.internal_topics.groups.partition_ends import Replicas
    from kseg.internal_topics.metadata.metadata_image import MetadataImage
    from kseg.segment.errors import KsegError
    from kseg.segment.partition.targets import PartitionTarget


@dataclass(frozen=True, slots=True)
class GroupEvidence:
    """chosen: the partitions of group topics to load; of several replicas the most recent one. offsets_partitions: the
    numbers of those of `__consumer_offsets`, and whether each is complete. count: the partition count of `__consumer_offsets` in the
    metadata log, None if unknown. tiered: the directories of partitions with tiered storage, whose log may begin in remote storage.
    passed_over: the replicas that were not chosen. findings: about the metadata log. unread: why PATHs are skipped."""

    chosen: frozenset[str]
    offsets_partitions: dict[int, bool]
    count: int | None
    names: "TopicNames"
    replicas: "Replicas"
    tiered: frozenset[str]
    passed_over: tuple[str, ...]
    findings: "tuple[Finding, ...]"
    unread: "tuple[KsegError, ...]"

    def nothing_found(self, why: str) -> "KsegError":
        """The error if no partition was found: what is missing may be in a PATH that cannot be read."""
        from kseg.segment.errors import UsageError

        return self.unread[0] if self.unread else UsageError(why)

    def count_given(self, found: Iterable[str]) -> int | None:
        """The partition count of `__consumer_offsets`: from the metadata log, else Kafka's default unless a higher partition number or
        the partition of a group contradicts it; None if unknown. found: the groups in the available partitions."""
        from kseg.internal_topics.groups.coordinator_partition import DEFAULT_PARTITIONS, partition_for

        if self.count is not None:
            return self.count
        here = self.offsets_partitions
        if max(here, default=0) >= DEFAULT_PARTITIONS or any(
            partition_for(group) not in here for group in found
        ):
            return None
        return DEFAULT_PARTITIONS


def group_evidence(paths: Sequence[str], metadata: str | None, at_ms: int | None = None) -> GroupEvidence:
    """Search PATHs, and the metadata log beside them. Unreadable paths are skipped here; the run itself reports them.

    at_ms: use the topics that existed at this time; None for the end of the log. Raises UsageError, UnreadableInput and Refused for
    a metadata log that the user named.
    """
    from kseg.cli.topic_evidence import finder_for, told_of
    from kseg.internal_topics.broker_directories import find_broker_directories, logs_to_read
    from kseg.internal_topics.groups.group_records import CONSUMER_OFFSETS
    from kseg.segment.errors import KsegError
    from kseg.segment.partition.targets import (
        FileTarget,
        LogTarget,
        PartitionTarget,
        directory_of,
        log_dir_of,
    )
    from kseg.segment.storage import places

    given = {path.rstrip("/") or path for path in paths}
    replicas: dict[tuple[str, int], list[LogTarget]] = {}
    unread: list[KsegError] = []
    for path in paths:
        try:
            found = find_broker_directories([path])
        except KsegError as error:
            unread.append(error)
            continue
        for each in found.partitions:
            if each.name is not None and (each.is_live or each.target.path in given):
                replicas.setdefault((each.name.topic, each.name.partition), []).append(each.target)
    chosen: set[str] = set()
    passed_over: list[str] = []
    for (topic, _), targets in replicas.items():
        if topic in GROUP_TOPICS:
            wanted = logs_to_read(targets)
            chosen.update(target.path for target in wanted)
            passed_over += [target.path for target in targets if target not in wanted]
    directories = [
        target for targets in replicas.values() for target in targets if isinstance(target, PartitionTarget)
    ]
    finder = finder_for(directories, metadata)
    files = [target for targets in replicas.values() for target in targets if isinstance(target, FileTarget)]
    around = [os.path.dirname(places.abspath(directory_of(target))) for target in files]
    log_dirs = dict.fromkeys([*map(log_dir_of, directories), *around])
    images = {image.path: image for log_dir in log_dirs if (image := finder.image_for(log_dir)) is not None}
    offsets_partitions = {
        number: any(isinstance(target, PartitionTarget) for target in targets)
        for (topic, number), targets in replicas.items()
        if topic == CONSUMER_OFFSETS
    }
    names = _names(list(images.values()), at_ms)
    return GroupEvidence(
        chosen=frozenset(chosen),
        offsets_partitions=offsets_partitions,
        count=names.partitions.get(CONSUMER_OFFSETS),
        names=names,
        replicas=replicas,
        tiered=_tiered(directories, list(images.values())),
        passed_over=tuple(passed_over),
        findings=told_of(images.values()),
        unread=tuple(unread),
    )


def _tiered(directories: "Sequence[PartitionTarget]", images: "Sequence[MetadataImage]") -> frozenset[str]:
    """Those with tiered storage, by the configuration of their topic or because something of them is known to be in remote storage."""
    from kseg.cli.remote_evidence import remote_spans
    from kseg.segment.partition.directory import own_partition_name
    from kseg.segment.partition.topic_settings import REMOTE_STORAGE

    enabled = {
        topic.name
        for image in images
        for topic in image.topics.values()
        if image.topic_configs(topic.name).get(REMOTE_STORAGE, "").strip().lower() == "true"
    }
    by_config = {
        target.path
        for target in directories
        if (name := own_partition_name(target.path)) is not None and name.topic in enabled
    }
    return frozenset(by_config | {path for path, spans in remote_spans(directories).items() if spans})


def _names(images: "Sequence[MetadataImage]", at_ms: int | None) -> "TopicNames":
    """Ids are unique, so the names of several metadata logs are merged."""
    from kseg.internal_topics.groups.group_rows import TopicNames

    by_id: dict[str, str] = {}
    partitions: dict[str, int] = {}
    ids: dict[str, str] = {}
    deleted: set[str] = set()
    for image in images:
        deleted |= {
            topic_id
            for topic_id, topic in image.removed.items()
            if at_ms is None or topic.timestamp_ms <= at_ms
        }
        by_id |= {topic_id: topic.name for topic_id, topic in image.removed.items()}
        for topic_id, topic in image.topics.items():
            by_id[topic_id] = topic.name
            ids[topic.name] = topic_id
            partitions[topic.name] = len(topic.partitions)
    are_complete = all(image.is_certain for image in images)
    return TopicNames(by_id, partitions, ids, frozenset(deleted), are_complete)


def committed_offsets(paths: Sequence[str]) -> dict[tuple[str, int], list[tuple[str, int]]]:
    """The committed offsets by (topic, partition), each as (group, offset), as the coordinators have them after loading. Unreadable
    partitions of `__consumer_offsets` are left out. Raises UsageError if there is none."""
    from kseg.internal_topics.coordinator_log import read_coordinator_chunks
    from kseg.internal_topics.groups.committed_offsets import committed_offset
    from kseg.internal_topics.groups.group_records import CONSUMER_OFFSETS
    from kseg.internal_topics.groups.group_replay import load_groups
    from kseg.segment.errors import KsegError

    evidence = group_evidence(paths, None)
    if not evidence.offsets_partitions:
        raise evidence.nothing_found(
            f"no partition of {CONSUMER_OFFSETS} in {', '.join(paths)}: nothing is known about groups"
        )
    found: dict[tuple[str, int], list[tuple[str, int]]] = {}
    for (topic, _), targets in evidence.replicas.items():
        for target in targets if topic == CONSUMER_OFFSETS else ():
            if target.path not in evidence.chosen:
                continue
            try:
                loaded = load_groups(read_coordinator_chunks(target), keeps_rewinds=False)
            except KsegError:
                continue
            for key, record in loaded.offsets.offsets.items():
                place = found.setdefault((key.topic, key.partition), [])
                place.append((key.group, committed_offset(record)))
    return found


class GroupRows:
    """Filters the stream of events: adds a row for each requested group that was not found, and for each partition that a share group has
    initialized and for which there is no state, and collects the offsets for a reset file.

    asked: the names of --group. options: of the run. keeps_offsets: whether a reset file is wanted.
    """

    def __init__(
        self, evidence: GroupEvidence, asked: Sequence[str], options: "GroupsOptions", *, keeps_offsets: bool
    ) -> None:
        from kseg.internal_topics.groups.group_results import CoordinatorsOffsets

        self._evidence = evidence
        self._asked = asked
        self._options = options
        self._initialized: list[ShareTopicOfGroup] = []
        self._states: set[tuple[str, str, int]] = set()
        self._unclear: set[str] = set()  # directories with errors
        self._keeps_offsets = keeps_offsets
        self._found: set[str] = set()
        self._offsets = CoordinatorsOffsets[int]()
        self.is_whole = False  # whether all rows have passed

    @property
    def offsets(self) -> list[tuple[str, str, int, int]]:
        """Group, topic, partition and offset, in the order of the rows."""
        return [(*key, offset) for key, offset in self._offsets.by_key.items()]

    def through(self, events: Iterator[Event]) -> Iterator[Event]:
        """The same events, followed by rows of type share_offset without a state, and of type missing_group."""
        from kseg.internal_topics.groups.groups import missing_groups

        for event in events:
            if isinstance(event, Row):
                self._note(event.result)
            elif isinstance(event, Failure) or (isinstance(event, Finding) and event.severity == ERROR):
                self._unclear.update((event.path, os.path.dirname(event.path)))
            yield event
        yield from self._stateless()
        evidence = self._evidence
        count = evidence.count_given(self._found)
        for row in missing_groups(self._asked, self._found, evidence.offsets_partitions, count):
            yield Row(row)
        self.is_whole = True

    def _note(self, result: object) -> None:
        from kseg.internal_topics.groups.group_results import (
            AboutGroup,
            OffsetOfGroup,
            ShareStateOfGroup,
            ShareTopicOfGroup,
        )

        if isinstance(result, AboutGroup):
            self._found.add(result.group)
        if isinstance(result, ShareTopicOfGroup):
            self._initialized.append(result)
        if isinstance(result, ShareStateOfGroup):
            self._states.add((result.group, result.topic_id, result.partition))
        if isinstance(result, OffsetOfGroup) and self._keeps_offsets:
            self._offsets.add(result, result.offset)

    def _stateless(self) -> Iterator[Row]:
        """Rows of the initialized partitions of share groups without a state. A partition of `__share_group_state` that is not here, or
        could not be read completely, may have it. A group coordinator lists no deleted topics."""
        from kseg.internal_topics.groups.coordinator_partition import partition_for
        from kseg.internal_topics.groups.group_results import StatelessPartition
        from kseg.internal_topics.groups.partition_ends import PartitionEnds
        from kseg.internal_topics.groups.share_rows import stateless_row
        from kseg.internal_topics.groups.share_state import SHARE_GROUP_STATE, SharePartitionKey

        options, names = self._options, self._evidence.names
        count = names.partitions.get(SHARE_GROUP_STATE)
        ends = None if options.at_ms is not None else PartitionEnds(options.replicas)
        for each in self._initialized if count else ():
            for number in each.partitions:
                key = SharePartitionKey(each.group, each.topic_id, number)
                if key in self._states or not options.wants_partition(each.topic, number):
                    continue
                home = partition_for(f"{each.group}:{each.topic_id}:{number}", count or 1)
                there = self._evidence.replicas.get((SHARE_GROUP_STATE, home), ())
                is_read = any(target.path in self._evidence.chosen - self._unclear for target in there)
                if is_read and names.ids.get(each.topic) == each.topic_id:
                    yield Row(
                        stateless_row(key, each.topic, ends),
                        StatelessPartition(each.group, each.topic, number),
                    )
