"""Logs with tiered storage that end before what was copied from them, as when a power failure took the end of a log whose segments had been
uploaded, or an older copy of a log was put in its place.

A broker that leads with such a log continues at its end: nobody gets the later offsets from remote storage any more, though the store has
them, and new records take their place (observed with 4.3.1). A log that begins where remote storage ends, with its leader epochs, keeps
them.

Nothing is concluded of a partition that another node may lead: a follower may be behind what its leader has copied. Nor of a log that was
continued since then, with a leader epoch that remote storage does not know, or that has a record which is not there.
"""

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from kseg.cli.remote_evidence import checkpointed_start, local_epochs
from kseg.segment.counted import counted
from kseg.segment.diagnosis import RemoteAhead
from kseg.segment.findings import Finding

if TYPE_CHECKING:
    from kseg.internal_topics.metadata.metadata_image import MetadataImage
    from kseg.internal_topics.remote_log.remote_segments import Lineage, PartitionKey, RemotePartition


def remote_ahead(
    path: str, image: "MetadataImage", node_id: int | None, known: "Mapping[PartitionKey, RemotePartition]"
) -> Iterator[Finding]:
    """The finding about a partition that only this node may lead. known: all remote segments."""
    from kseg.internal_topics.broker_directories import end_offset_of
    from kseg.recovery.verify.topic_ids import topic_id_of
    from kseg.segment.partition.directory import list_partition, own_partition_name
    from kseg.segment.partition.targets import PartitionTarget

    name, topic_id, segments = own_partition_name(path), topic_id_of(path), list_partition(path).segments
    if name is None or topic_id is None or not segments or topic_id not in image.topics:
        return
    assigned = image.topics[topic_id].partitions.get(name.partition)
    partition = known.get((topic_id, name.partition))
    if assigned is None or partition is None or not {*assigned.isr, *assigned.elr} <= {node_id}:
        return
    end, start = end_offset_of(PartitionTarget(path)), checkpointed_start(path)
    start = segments[0].base_offset if start is None else start
    epochs = partition.leader_epochs()
    readable = [span for span in partition.readable(epochs) if span[0] <= start and end <= span[1]]
    if readable and end >= 0 and _is_continued_by(epochs, path, end):
        last = readable[-1][1]
        about = RemoteAhead(start, end, last)
        yield Finding(
            "remote-ahead",
            path,
            f"the log ends at offset {end}, and remote storage has it up to {last}: a broker continues at {end}, and nobody gets these "
            f"{counted(last + 1 - end, 'offset')} from there any more",
            numbers=about.numbers(),
            first_offset=end,
            last_offset=last,
            diagnosis=about,
        )


def _is_continued_by(epochs: "Lineage", path: str, end: int) -> bool:
    """Whether the log, which ends at an offset, is the beginning of what remote storage has."""
    history, begins = local_epochs(path), dict(epochs)
    if history is None or not epochs:
        return False
    first, _ = epochs[0]
    of_log = [(each.epoch, each.start_offset) for each in history.entries if each.start_offset < end]
    # a remote segment may begin within its first leader epoch
    return all(epoch < first or begins.get(epoch, -1) == begin for epoch, begin in of_log if epoch != first)
