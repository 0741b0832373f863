"""Whether a metadata log is older than the partitions: an old copy of it was restored, or a controller was started again with one.

A broker appends with the leader epoch that the metadata log has for a partition, so no partition can have a later one. A single partition
with a later epoch may have been assembled by hand; if more than half of the partitions in the metadata log have one, and were written to
after its last record, the metadata log is the older side. (A metadata log that was recreated for existing partitions has low epochs too,
but later records.) A node that starts with an older metadata log renames as stray what was created since.
"""

import os
from collections.abc import Iterable

from kseg.internal_topics.metadata.metadata_image import MetadataImage
from kseg.internal_topics.metadata.replica_directories import topic_id_of
from kseg.segment.counted import counted
from kseg.segment.errors import KsegError
from kseg.segment.findings import Finding
from kseg.segment.partition.directory import own_partition_name
from kseg.segment.partition.names import NAME_BY_ROLE, PartitionState, Role
from kseg.segment.partition.partition_epochs import partition_epochs
from kseg.segment.storage import places


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
