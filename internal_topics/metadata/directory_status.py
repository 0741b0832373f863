"""The metadata's verdict on each partition directory under PATH, and the replicas that should be there and are missing.

    known      the metadata has the partition, and a replica of it on this node
    deleted    marked `-delete`: a broker removes it
    stray      marked `-stray`; or a broker marks it so at its next start: see `strays`
    future     marked `-future`: the destination of a move between log dirs
    missing    the metadata places a replica in this log dir, and it has no directory: see `missing_replicas`

If the metadata log cannot be read to its end, a stray cannot be distinguished from a newer partition, and no status is given.
The topic's name comes from its id if the metadata log ever named it: names of `-delete` and `-stray` directories may be truncated,
and a deleted topic's name may have been used again.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from enum import StrEnum
from typing import Self

from kseg.internal_topics.broker_directories import BrokerPartition
from kseg.internal_topics.metadata.metadata_image import MetadataImage, Node
from kseg.internal_topics.metadata.missing_replicas import missing_replicas
from kseg.internal_topics.metadata.replica_directories import topic_id_of
from kseg.internal_topics.metadata.strays import Directory, identity_of
from kseg.segment.diagnosis import MissingReplica
from kseg.segment.partition.names import PartitionState
from kseg.segment.partition.targets import PartitionTarget
from kseg.segment.storage import places
from kseg.segment.values import dataclass

_BY_SUFFIX = {
    PartitionState.DELETE: "marked for deletion; a broker removes it",
    PartitionState.STRAY: "a broker has set it aside",
    PartitionState.FUTURE: "the destination of a move between log dirs",
}


class DirectoryStatus(StrEnum):
    """The values are printed."""

    KNOWN = "known"
    DELETED = "deleted"
    STRAY = "stray"
    FUTURE = "future"
    MISSING = "missing"


_OF_AN_EARLIER_STATE: dict[DirectoryStatus | None, str] = {
    DirectoryStatus.STRAY: "the metadata had no replica of it here then",
    DirectoryStatus.MISSING: "the metadata had a replica here then, and today there is none",
    DirectoryStatus.KNOWN: "",
}


@dataclass(frozen=True, slots=True)
class DirectoryVerdict:
    """status: None when it cannot be determined. reason: why, in words; for a known one, what is wrong with its directory, if anything."""

    path: str
    topic: str
    partition: int
    topic_id: str | None
    status: DirectoryStatus | None
    reason: str = ""

    @property
    def is_doubtful(self) -> bool:
        """Whether a running broker may be about to delete or to complete the directory: one that becomes stray at the next start."""
        return self.status is DirectoryStatus.STRAY and self.reason not in _BY_SUFFIX.values()

    def as_of_then(self) -> Self:
        """The same verdict for an earlier state, which does not determine what a broker does at its next start."""
        words = _OF_AN_EARLIER_STATE.get(self.status)
        return self if words is None or self.reason in _BY_SUFFIX.values() else replace(self, reason=words)

    def of_zookeeper(self) -> Self:
        """The verdict on a directory that this log does not know, where the broker keeps its metadata in ZooKeeper."""
        words = "the broker keeps its metadata in ZooKeeper, and this log does not know the topic id"
        return replace(self, status=None, reason=words)

    def as_row(self) -> dict[str, object]:
        """The `directory` line of the JSON."""
        return {
            "type": "directory",
            "path": self.path,
            "topic": self.topic,
            "partition": self.partition,
            "topic_id": self.topic_id,
            "status": None if self.status is None else str(self.status),
            "reason": self.reason or None,
        }


def status_of(found: BrokerPartition, node: Node, image: MetadataImage) -> DirectoryVerdict | None:
    """The status of a directory; None if its name is not that of a partition."""
    if found.name is None or not isinstance(found.target, PartitionTarget):
        return None
    path, name = found.target.path, found.name
    has_file, topic_id, problem = topic_id_of(path)
    topic = image.names.get(topic_id or "") or name.topic
    status, reason = _status(
        Directory(path=path, name=name, topic_id=topic_id, has_metadata_file=has_file, node_id=node.node_id),
        image,
    )
    return DirectoryVerdict(path, topic, name.partition, topic_id, status, reason or problem)


def _status(directory: Directory, image: MetadataImage) -> tuple[DirectoryStatus | None, str]:
    name = directory.name
    if name.is_metadata_log:
        return DirectoryStatus.KNOWN, ""
    if name.state is PartitionState.DELETE:
        return DirectoryStatus.DELETED, _BY_SUFFIX[name.state]
    if name.state is PartitionState.STRAY:
        return DirectoryStatus.STRAY, _BY_SUFFIX[name.state]
    identity = identity_of(directory, image)
    if identity.becomes_stray:
        return DirectoryStatus.STRAY, "" if identity.finding is None else identity.finding.message
    if name.state is PartitionState.FUTURE:
        return DirectoryStatus.FUTURE, _BY_SUFFIX[name.state]
    if not image.is_certain and not _is_in(directory, image):
        return None, "the metadata log cannot be read to its end"
    return DirectoryStatus.KNOWN, "" if identity.finding is None else identity.finding.message


def _is_in(directory: Directory, image: MetadataImage) -> bool:
    topic = image.topics.get(directory.topic_id or "")
    return topic is not None and directory.name.partition in topic.partitions


def missing_from(
    log_dir: str,
    node: Node,
    image: MetadataImage,
    others: Callable[[], Sequence[str]],
    gone: Callable[[], Iterable[str]],
) -> Iterator[DirectoryVerdict]:
    """A verdict for each replica without a directory in a log dir; an empty directory has its own. others, gone: as for
    `missing_replicas`."""
    for finding in missing_replicas(log_dir, node, image, others, gone):
        if places.isdir(finding.path):
            continue
        missing = finding.diagnosis
        assert isinstance(missing, MissingReplica)
        yield DirectoryVerdict(
            finding.path,
            missing.topic,
            missing.partition,
            missing.topic_id,
            DirectoryStatus.MISSING,
            finding.message,
        )
