"""Which partition directories a broker renames as stray at its next start, and which topic id they should have.

A KRaft broker (3.7 and later) compares each directory with the metadata while it loads the logs, and renames it to
`<topic-partition>.<32 hex digits>-stray` (Kafka: LogManager.isStrayReplica; observed with 4.3.1, `-future` directories too) when

1. it has no partition.metadata: lost, or never written because the broker stopped while it created the partition (nothing is lost then),
2. the metadata has no partition of that topic id and number: the topic was deleted, or created again under its name,
3. this node is not one of the partition's replicas.

Then it creates the partitions that the metadata assigns to it, empty. The topic's name is not compared: a directory with the id
of another topic is loaded, and the partition that it is named after is not served (InconsistentTopicIdException).
"""

import os

from kseg.internal_topics.metadata.metadata_image import MetadataImage, Topic
from kseg.segment.diagnosis import WrongTopicId
from kseg.segment.findings import Finding
from kseg.segment.partition.directory import list_partition
from kseg.segment.partition.log_dir_state import read_log_dir_state
from kseg.segment.partition.names import FileState, PartitionName, PartitionState, Role
from kseg.segment.partition.topic_identity import TopicIdentity
from kseg.segment.terminal import shell_quoted
from kseg.segment.values import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Directory:
    """A partition directory. topic_id: of its partition.metadata, None when that is missing or cannot be read. node_id,
    directory_id: of its log dir, None when unknown."""

    path: str
    name: PartitionName
    topic_id: str | None
    has_metadata_file: bool
    node_id: int | None
    directory_id: str | None = None


def identity_of(directory: Directory, image: MetadataImage) -> TopicIdentity:
    """The identity of a directory from the metadata log. If that may be incomplete, only the deletion of a topic is certain."""
    name = directory.name
    if name.is_metadata_log or name.state not in (PartitionState.LIVE, PartitionState.FUTURE):
        return TopicIdentity()
    named = image.topics.get(image.id_by_name.get(name.topic, ""))
    if not image.is_certain:
        why = _removed(directory, image)
        return TopicIdentity(_stray(directory, why, named)) if why else TopicIdentity()
    named_id = None if named is None else named.id
    if directory.topic_id is None:
        return _without_id(directory, image, named)
    why = _removed(directory, image) or _not_here(directory, image)
    finding = _stray(directory, why, named) if why else None
    topic = image.topics.get(directory.topic_id)
    if finding is None and topic is not None and topic.name != name.topic:
        finding = _of_another(directory, topic, named)
    is_assigned = named is not None and _is_replica(directory, named)
    is_promoted = not why and topic is not None and _is_promoted(directory, topic)
    return TopicIdentity(finding, named_id=named_id, is_assigned=is_assigned, is_promoted=is_promoted)


def _without_id(directory: Directory, image: MetadataImage, named: Topic | None) -> TopicIdentity:
    """Identity of a directory whose partition.metadata is missing or unreadable: by name, unless several topics had that name."""
    former = sorted(each.id for each in image.removed.values() if each.name == directory.name.topic)
    is_here = named is not None and _is_replica(directory, named)
    topic_id = named.id if named is not None and is_here and not former else None
    finding = None
    if not directory.has_metadata_file:
        why = "there is no partition.metadata"
        if former and named is not None:
            why += f", and the name was that of a deleted topic too ({', '.join(former)})"
        finding = (
            _unfinished(directory, named) if _was_never_written(directory) else _stray(directory, why, named)
        )
    return TopicIdentity(finding, topic_id, None if named is None else named.id, is_here)


def _was_never_written(directory: Directory) -> bool:
    """Whether the files are no more than what a broker creates before it writes partition.metadata: one log at offset 0 without a record.
    An offset of the partition in a checkpoint shows that there were records."""
    entries = list_partition(directory.path).entries
    logs = [
        (entry.name.base_offset, entry.size_bytes, entry.name.state)
        for entry in entries
        if entry.name.role is Role.LOG
    ]
    if logs != [(0, 0, FileState.LIVE)] or any(
        entry.name.role is Role.PRODUCER_SNAPSHOT for entry in entries
    ):
        return False
    around, name = read_log_dir_state(os.path.dirname(directory.path)), directory.name
    return not any(around.offset(role, name.topic, name.partition) for role in around.checkpoints)


def _removed(directory: Directory, image: MetadataImage) -> str:
    """The verdict that the topic was deleted. Ids are never reused, so it is certain at any offset."""
    removed = image.removed.get(directory.topic_id or "")
    if removed is None:
        return ""
    return f"its topic {removed.id} was deleted (offset {removed.offset} of the metadata log)"


def _not_here(directory: Directory, image: MetadataImage) -> str:
    """Why the metadata has no replica of the partition on this node; empty if it has one."""
    topic = image.topics.get(directory.topic_id or "")
    if topic is None:
        return f"the metadata log does not know its topic id {directory.topic_id}"
    partition = topic.partitions.get(directory.name.partition)
    if partition is None:
        return f"the topic {topic.name} has no partition {directory.name.partition} in the metadata log"
    if directory.node_id is not None and directory.node_id not in partition.replicas:
        nodes = ", ".join(map(str, partition.replicas))
        return f"this is node {directory.node_id}, and the replicas of the partition are on {nodes}"
    return ""


def _is_replica(directory: Directory, topic: Topic) -> bool:
    """Whether the metadata has a replica of this partition of the topic on the directory's node."""
    partition = topic.partitions.get(directory.name.partition)
    return partition is not None and (directory.node_id is None or directory.node_id in partition.replicas)


def _is_promoted(directory: Directory, topic: Topic) -> bool:
    """By topic id, and not by name (observed with 4.3.1)."""
    if (
        directory.name.state is not PartitionState.FUTURE
        or directory.node_id is None
        or directory.directory_id is None
    ):
        return False
    partition = topic.partitions[directory.name.partition]
    return partition.directory_of(directory.node_id) == directory.directory_id


def _stray(directory: Directory, why: str, named: Topic | None) -> Finding:
    return _finding("becomes-stray", directory, f"{why}: {_renaming(directory, named)}", named)


def _unfinished(directory: Directory, named: Topic | None) -> Finding:
    why = "a broker stopped while it created the partition (no partition.metadata, and no record was ever written)"
    message = f"{why}: {_renaming(directory, named)}; nothing is lost"
    numbers = {"topic_id": None if named is None else named.id}
    return Finding("replica-unfinished", directory.path, message, numbers=numbers)


def _renaming(directory: Directory, named: Topic | None) -> str:
    name = directory.name.text
    is_recreated = (
        named is not None and _is_replica(directory, named) and directory.name.state is PartitionState.LIVE
    )
    then = f" and recreates {name} empty" if is_recreated else ""
    return f"at its next start a KRaft broker (3.7 or later) renames the directory to {name}.…-stray{then}"


def _of_another(directory: Directory, topic: Topic, named: Topic | None) -> Finding:
    name = directory.name
    if named is None:
        then = f"a broker loads it, but serves nothing from it: there is no topic {name.topic}"
    else:
        then = f"a broker does not serve {name.text} (InconsistentTopicIdException)"
    message = f"its topic id {topic.id} is that of {topic.name}: {then}"
    return _finding("topic-id-conflict", directory, message, named)


def _finding(kind: str, directory: Directory, message: str, named: Topic | None) -> Finding:
    if named is not None and directory.topic_id == named.id:
        advice = "its topic id is right, so no repair changes that: compare the node id with where the partition is assigned"
        return Finding(kind, directory.path, f"{message} ({advice})", numbers={"topic_id": named.id})
    wanted = "ID" if named is None else named.id
    command = f"kseg recover --apply --topic-id {wanted} {shell_quoted(directory.path)}"
    sure = f"if it is {directory.name.topic}" if named is not None else "when its topic's id is known"
    named_id = None if named is None else named.id
    # otherwise the id is that of another topic, or it is missing and can be determined
    is_unknown = kind == "becomes-stray" and directory.topic_id is not None
    wrong = WrongTopicId(named.id) if is_unknown and named is not None else None
    numbers = {"topic_id": named_id}
    return Finding(kind, directory.path, f"{message} ({sure}: {command})", numbers=numbers, diagnosis=wrong)
