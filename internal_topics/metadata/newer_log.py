"""The metadata log with which a stopped node will load its logs, if that of another node is known.

A node that was down while the others kept running fetches what it missed from the controllers before it loads a log (Kafka:
BrokerMetadataPublisher; observed with 4.3.1): partitions of topics that were deleted meanwhile, or recreated under the same name, and
partitions that were moved away then become stray, although its own copy of the metadata log still has them.

Conversely, nothing becomes stray because a broker without the role of a controller lacks the end of its metadata log, as after a power
loss: such a node writes what it fetches without syncing it (observed with 4.3.1). One that lacks all of it may begin with a snapshot
(`fetched_metadata`).

`outdated_log`: an old copy of the metadata log was restored, or a controller was started again with one. A broker appends with the leader
epoch that the metadata log has for a partition, so no partition can have a later one. A single partition with a later epoch may have been
assembled by hand; if more than half of the partitions in the metadata log have one, and were written to after its last record, the metadata
log is the older side. (A metadata log that was recreated for existing partitions has low epochs too, but later records.) A node that starts
with an older metadata log renames as stray what was created since.
"""

import os
from collections.abc import Iterable, Mapping, Sequence

from kseg.change.apply.lock import is_locked
from kseg.internal_topics.metadata.metadata_finder import MetadataFinder
from kseg.internal_topics.metadata.metadata_image import MetadataImage
from kseg.internal_topics.metadata.quorum_voters import voters_of
from kseg.internal_topics.metadata.replica_directories import topic_id_of
from kseg.segment.counted import counted
from kseg.segment.errors import KsegError
from kseg.segment.findings import Finding
from kseg.segment.partition.directory import own_partition_name
from kseg.segment.partition.log_dir_state import read_log_dir_state
from kseg.segment.partition.names import NAME_BY_ROLE, PartitionState, Role
from kseg.segment.partition.partition_epochs import last_epoch_below, partition_epochs
from kseg.segment.storage import places


def images_at_start(log_dirs: Sequence[str], finder: MetadataFinder) -> Mapping[str, MetadataImage]:
    """For each log dir with a metadata log: that log, or the longest one in any of the log dirs that continues it. A node that is the only
    voter fetches nothing, and a running node has everything that it has read in its own log."""
    images = {log_dir: _at_start(log_dir, log_dirs, finder) for log_dir in log_dirs}
    return {log_dir: image for log_dir, image in images.items() if image is not None}


def _at_start(log_dir: str, log_dirs: Sequence[str], finder: MetadataFinder) -> MetadataImage | None:
    own, node = finder.image_for(log_dir), finder.node_of(log_dir)
    if own is None or not own.is_certain or own.is_cut or node.cluster_id is None:
        return own
    found = own
    for other in log_dirs:
        theirs = finder.node_of(other)
        if theirs.cluster_id != node.cluster_id or theirs.node_id == node.node_id:
            continue
        image = finder.image_for(other)
        if image is not None and image.is_certain and image.reach > found.reach and continues(image, own):
            found = image
    if found is own or {voter.id for voter in found.voters} == {node.node_id} or is_locked(log_dir):
        return own
    return found


def continues(image: MetadataImage, earlier: MetadataImage) -> bool:
    """Whether a log has all records of an earlier one: the leader epoch is the same at its end."""
    if not earlier.end_offset:
        return True
    is_longer = image.end_offset >= earlier.end_offset
    return is_longer and last_epoch_below(image.path, earlier.end_offset) == earlier.epoch


def may_learn_of_topic(partition: str, image: MetadataImage, finder: MetadataFinder) -> bool:
    """Whether the node of a partition directory may learn of its topic before it loads its logs, although its own metadata log, the image,
    does not have it: the node is no voter, and the image has no record at all, or the shutdown was not clean and the partition was created
    after the last record of the image."""
    log_dir, topic_id = os.path.dirname(image.path), topic_id_of(partition).topic_id
    node_id, voters = finder.node_of(log_dir).node_id, voters_of(image, [log_dir])
    is_own = node_id is not None and node_id == finder.node_of(os.path.dirname(partition)).node_id
    if not is_own or not voters or node_id in voters:
        return False
    if topic_id is None or topic_id in image.topics or topic_id in image.removed:
        return False
    return not image.end_offset or (
        not read_log_dir_state(log_dir).is_clean and _created_ms(partition) > image.timestamp_ms
    )


def _created_ms(partition: str) -> float:
    """When a partition directory got its partition.metadata, which a broker writes once; 0 if that is unknown."""
    try:
        return places.stat(os.path.join(partition, NAME_BY_ROLE[Role.PARTITION_METADATA])).st_mtime * 1000
    except OSError:
        return 0


def outdated_log(image: MetadataImage, partitions: Iterable[str]) -> Finding | None:
    """The finding about a metadata log that is older than these partition directories of its node; None if it is not."""
    known, later = 0, list[str]()
    for path in partitions:
        name = own_partition_name(path)
        topic = image.topics.get(topic_id_of(path).topic_id or "")
        placed = None if name is None or topic is None else topic.partitions.get(name.partition)
        if name is None or placed is None or name.state is not PartitionState.LIVE:
            continue
        known += 1
        epoch = _last_epoch(path, image.timestamp_ms)
        if epoch is not None and epoch > placed.leader_epoch:
            later.append(f"{name.text} has {epoch}, the metadata log {placed.leader_epoch}")
    if 2 * len(later) <= known:
        return None
    message = (
        f"{len(later):,} of {counted(known, 'partition')} {'has' if len(later) == 1 else 'have'} later leader epochs than this metadata log (first: {later[0]}): it is "
        "an older copy, and does not know what was created, deleted or moved since"
    )
    return Finding("metadata-log-outdated", image.path, message, numbers={"partitions": len(later)})


def _last_epoch(partition: str, after_ms: int) -> int | None:
    """None if the leader epochs were not written after this time."""
    path = os.path.join(partition, NAME_BY_ROLE[Role.LEADER_EPOCHS])
    try:
        if places.stat(path).st_mtime * 1000 <= after_ms:
            return None
        entries = partition_epochs(partition)
    except (OSError, KsegError):
        return None
    return max((entry.epoch for entry in entries), default=None)
