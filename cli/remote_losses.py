"""Offsets of partitions with tiered storage that are neither local nor in remote storage, as after the loss of the end of
`__remote_log_metadata` in a power failure: brokers delete local segments once these records say that they were copied.

A broker serves a remote segment only if `__remote_log_metadata` has it, and never copies one below the end of what was copied. It answers
OFFSET_OUT_OF_RANGE in the gap, though the objects may be in the store (observed with 4.3.1). What a partition says counts only where all of
`__remote_log_metadata` is here, and no other node may lead it with later records. A log start below the first remote segment proves nothing
while there is any segment: its checkpoint is a minute old, and a broker that becomes leader raises it. It raises it to a segment whose
deletion was not finished as well, and deletes that segment afterwards: the log start may stay in the gap until the next start (observed).

And logs with tiered storage that end before what was copied from them, as when a power failure took the end of a log whose segments had
been uploaded, or an older copy of a log was put in its place. A broker that leads with such a log continues at its end: nobody gets the
later offsets from remote storage any more, though the store has them, and new records take their place (observed with 4.3.1). A log that
begins where remote storage ends, with its leader epochs, keeps them. Nothing is concluded of a partition that another node may lead: a
follower may be behind what its leader has copied. Nor of a log that was continued since then, with a leader epoch that remote storage does
not know, or that has a record which is not there.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

from kseg.cli.remote_evidence import begins_below, checkpointed_start, local_epochs
from kseg.cli.topic_evidence import log_dirs_of, partitions_among
from kseg.segment.counted import counted
from kseg.segment.diagnosis import RemoteAhead
from kseg.segment.errors import KsegError
from kseg.segment.findings import Finding
from kseg.segment.partition.names import PartitionState
from kseg.segment.partition.targets import PartitionTarget, Target, log_dir_of
from kseg.segment.partition.topic_settings import REMOTE_STORAGE

if TYPE_CHECKING:
    from kseg.internal_topics.broker_directories import BrokerDirectories
    from kseg.internal_topics.metadata.metadata_finder import MetadataFinder
    from kseg.internal_topics.metadata.metadata_image import MetadataImage
    from kseg.internal_topics.remote_log.remote_segments import Lineage, PartitionKey, RemotePartition


def remote_findings(targets: Sequence[Target], finder: "MetadataFinder") -> Iterator[Finding]:
    """A finding for each gap, and for each log that ends before its remote segments (`_ahead`), where no broker runs: while one
    does, segments are copied and deleted."""
    from kseg.change.apply.running_broker import is_in_use

    images = {log_dir: finder.image_for(log_dir) for log_dir in log_dirs_of(targets)}
    tiered = {log_dir: _tiered_topics(image) for log_dir, image in images.items() if image is not None}
    if not any(tiered.values()):
        return
    nodes = {log_dir: finder.node_of(log_dir).node_id for log_dir in images}
    with suppress(KsegError):  # the run itself reports what cannot be read
        replicas = [*_of_topics(targets, tiered)]
        if not replicas or any(map(is_in_use, replicas)):
            return
        known = _known(targets, [image for image in images.values() if image is not None], nodes.values())
        if known is None:
            return
        for target in replicas:
            log_dir = log_dir_of(target)
            image = images.get(log_dir)
            if begins_below(target.path):
                yield from _gaps_of(target.path, known)
            if image is not None:
                yield from _ahead(target.path, image, nodes[log_dir], known)


def _tiered_topics(image: "MetadataImage") -> frozenset[str]:
    names = (topic.name for topic in image.topics.values()) if image.is_certain else ()
    return frozenset(
        name for name in names if image.topic_configs(name).get(REMOTE_STORAGE, "").lower() == "true"
    )


def _of_topics(targets: Sequence[Target], tiered: Mapping[str, Collection[str]]) -> Iterator[PartitionTarget]:
    from kseg.segment.partition.directory import own_partition_name

    for target in partitions_among(targets):
        name = own_partition_name(target.path)
        if (
            name is not None
            and name.state is PartitionState.LIVE
            and name.topic in tiered.get(log_dir_of(target), ())
        ):
            yield target


def _known(
    targets: Sequence[Target], images: "Sequence[MetadataImage]", nodes: Collection[int | None]
) -> "Mapping[PartitionKey, RemotePartition] | None":
    """The remote segments by partition; None unless all of them are certain. nodes: those whose log dirs are here."""
    from kseg.internal_topics.broker_directories import find_broker_directories
    from kseg.internal_topics.remote_log.remote_listing import remote_partitions

    directories = find_broker_directories(log_dirs_of(targets))
    if not all(_has_all_metadata(image, directories, nodes) for image in images):
        return None
    return remote_partitions(directories)


def _has_all_metadata(
    image: "MetadataImage", directories: "BrokerDirectories", nodes: Collection[int | None]
) -> bool:
    from kseg.internal_topics.topic_names import REMOTE_LOG_METADATA

    topic_id, here = image.id_by_name.get(REMOTE_LOG_METADATA), directories.replicas(REMOTE_LOG_METADATA)
    return topic_id is not None and all(
        number in here and {*partition.isr, *partition.elr} <= {*nodes}
        for number, partition in image.topics[topic_id].partitions.items()
    )


def _gaps_of(path: str, known: "Mapping[PartitionKey, RemotePartition]") -> Iterator[Finding]:
    from kseg.recovery.verify.topic_ids import topic_id_of
    from kseg.segment.offset_ranges import minus
    from kseg.segment.partition.directory import list_partition, own_partition_name

    name, topic_id = own_partition_name(path), topic_id_of(path)
    start, history = checkpointed_start(path), local_epochs(path)
    end = list_partition(path).segments[0].base_offset
    if name is None or topic_id is None or start is None or history is None or not history.begins_below(end):
        return
    partition = known.get((topic_id, name.partition))
    lineage = [(each.epoch, each.start_offset) for each in history.entries]
    readable = [] if partition is None else partition.readable(lineage)
    if partition is not None:
        listed = partition.listed_start(lineage)
        if listed is None or not readable:
            return
        start = max(start, listed)
    for first, last in minus([(start, end - 1)], readable):
        stuck = ""
        if readable and first == start:
            stuck = (
                f". A broker may leave the log start at {first}, where a copy or a deletion was not finished: consumers that begin at the earliest "
                f"offset get nothing until it is raised, with kseg retain --log-start-offset {last + 1} or DeleteRecords"
            )
        yield Finding(
            "remote-gap",
            path,
            f"offsets {first} to {last} are below the local log, and no record of __remote_log_metadata has "
            f"them in remote storage: consumers that reach these {counted(last + 1 - first, 'offset')} are reset{stuck}",
            first_offset=first,
            last_offset=last,
        )


def _ahead(
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
