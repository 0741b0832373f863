"""What `groups` needs to know about a broker besides the records of its groups: topic names, locations of the logs, and which partitions of
`__consumer_offsets` are available. Determined once, and passed on as plain values."""

import os
from collections.abc import Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import TYPE_CHECKING

from kseg.segment.partition.names import GROUP_TOPICS
from kseg.segment.values import dataclass

if TYPE_CHECKING:
    from kseg.internal_topics.groups.group_rows import TopicNames
    from kseg.internal_topics.groups.partition_ends import Replicas
    from kseg.internal_topics.metadata.metadata_finder import MetadataFinder
    from kseg.internal_topics.metadata.metadata_image import MetadataImage
    from kseg.jobs.events import Failure
    from kseg.segment.errors import KsegError
    from kseg.segment.findings import Finding
    from kseg.segment.partition.targets import LogTarget, PartitionTarget


@dataclass(frozen=True, slots=True)
class GroupEvidence:
    """chosen: the partitions of group topics to load; of several replicas the most recent one. offsets_partitions: the
    numbers of those of `__consumer_offsets`, and whether each is complete. count: the partition count of `__consumer_offsets` in the
    metadata log, None if unknown. offsets_replicas: the number of replicas of each of them there. tiered: the directories of
    partitions with tiered storage, whose log may begin in remote storage. passed_over: the replicas that were not chosen.
    newest_image: the newest of the metadata logs. findings: about the metadata log. unread: why PATHs are skipped; the run itself may
    have read them."""

    chosen: frozenset[str]
    offsets_partitions: dict[int, bool]
    count: int | None
    offsets_replicas: dict[int, int]
    names: "TopicNames"
    replicas: "Replicas"
    tiered: frozenset[str]
    passed_over: tuple[str, ...]
    newest_image: "MetadataImage | None"
    findings: "tuple[Finding, ...]"
    unread: "Mapping[str, KsegError]"

    def read(self, topic: str, partition: int, unclear: AbstractSet[str]) -> "Sequence[LogTarget]":
        """The replicas under PATH of a partition of a group topic; none if it was not read completely. unclear: directories with errors."""
        found = self.replicas.get((topic, partition), ())
        return found if any(target.path in self.chosen - unclear for target in found) else ()

    def nothing_found(self, why: str) -> "KsegError":
        """The error if no partition was found: what is missing may be in a PATH that cannot be read."""
        from kseg.segment.errors import UsageError

        return next(iter(self.unread.values()), UsageError(why))

    def failures(self) -> "list[Failure]":
        """Those of the PATHs that are skipped."""
        from kseg.jobs.events import Failure

        return [Failure.of(path, error) for path, error in self.unread.items()]

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


def group_evidence(
    paths: Sequence[str],
    metadata: str | None,
    at_ms: int | None = None,
    finder: "MetadataFinder | None" = None,
) -> GroupEvidence:
    """Search PATHs, and the metadata log beside them.

    at_ms: use the topics that existed at this time; None for the end of the log. finder: of the metadata logs of these paths, if there is
    one already. Raises UsageError, UnreadableInput and Refused for
    a metadata log that the user named.
    """
    from kseg.cli.topic_evidence import finder_for, told_of
    from kseg.internal_topics.broker_directories import logs_to_read, readable_directories
    from kseg.internal_topics.groups.group_records import CONSUMER_OFFSETS
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
    found, unread = readable_directories(paths)
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
    finder = finder or finder_for(directories, metadata)
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
        offsets_replicas={
            number: len(partition.replicas)
            for image in images.values()
            for topic in image.topics.values()
            if topic.name == CONSUMER_OFFSETS
            for number, partition in topic.partitions.items()
        },
        names=names,
        replicas=replicas,
        tiered=_tiered(directories, list(images.values())),
        passed_over=tuple(passed_over),
        newest_image=max(images.values(), key=lambda image: image.reach, default=None),
        findings=told_of(images.values()),
        unread=unread,
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


def committed_offsets(
    paths: Sequence[str],
) -> "tuple[dict[tuple[str, int], list[tuple[str, int]]], list[Failure]]":
    """The committed offsets by (topic, partition), each as (group, offset), as the coordinators have them after loading, and what could not
    be read. Raises UsageError if there is no partition of `__consumer_offsets`."""
    from kseg.internal_topics.coordinator_log import read_coordinator_chunks
    from kseg.internal_topics.groups.committed_offsets import committed_offset
    from kseg.internal_topics.groups.group_records import CONSUMER_OFFSETS
    from kseg.internal_topics.groups.group_replay import load_groups
    from kseg.jobs.events import Failure
    from kseg.segment.errors import KsegError

    evidence = group_evidence(paths, None)
    if not evidence.offsets_partitions:
        raise evidence.nothing_found(
            f"no partition of {CONSUMER_OFFSETS} in {', '.join(paths)}: nothing is known about groups"
        )
    failures = evidence.failures()
    found: dict[tuple[str, int], list[tuple[str, int]]] = {}
    for (topic, _), targets in evidence.replicas.items():
        for target in targets if topic == CONSUMER_OFFSETS else ():
            if target.path not in evidence.chosen:
                continue
            try:
                loaded = load_groups(read_coordinator_chunks(target), keeps_rewinds=False)
            except KsegError as error:
                failures.append(Failure.of(target.path, error))
                continue
            for key, record in loaded.offsets.offsets.items():
                place = found.setdefault((key.topic, key.partition), [])
                place.append((key.group, committed_offset(record)))
    return found, failures
