"""Logs of moves between log dirs that have fewer records than the logs that a broker deletes for them.

1. The controller assigns a replica to its new log dir once the `-future` log there has caught up; the broker then puts it in the place of
   the former log. If it ends in between, the next start does that, without comparing the two (Kafka:
   LogManager.recoverAbandonedFutureLogs; observed with 4.3.1).
2. Then the former log is marked for deletion, and deleted log.segment.delete.delay.ms (a minute) later, or as long after the next start.

What the former log has beyond the end of the other one is lost then. Nothing syncs a log before it takes the place of another, so that a
power failure may have taken all of it. The same holds for a replica that was reassigned to another node.

A `-future` log never has more than the log that it copies, unless that one lost its end. At its next start a broker truncates the copy to
that end (observed with 4.3.1).
"""

import os
from collections.abc import Iterator, Sequence

from kseg.change.apply.lock import is_locked
from kseg.internal_topics.broker_directories import ends_of
from kseg.internal_topics.metadata.elections import electable
from kseg.internal_topics.metadata.metadata_finder import MetadataFinder
from kseg.internal_topics.metadata.metadata_image import MetadataImage, Node, Partition
from kseg.internal_topics.metadata.replica_directories import has_segment, topic_id_of
from kseg.segment.diagnosis import MovedLogBehind
from kseg.segment.errors import KsegError
from kseg.segment.findings import Finding
from kseg.segment.partition.directory import partitions_in
from kseg.segment.partition.names import PartitionName, PartitionState
from kseg.segment.partition.partition_log import PartitionLog
from kseg.segment.partition.targets import PartitionTarget


def moved_logs_behind(log_dirs: Sequence[str], finder: MetadataFinder) -> Iterator[Finding]:
    """One finding for each log. log_dirs: of stopped brokers; others are left out, since their logs grow. Raises UnreadableInput for a log
    dir that cannot be listed."""
    for log_dir in log_dirs:
        image, node = finder.governing_image(log_dir), finder.node_of(log_dir)
        if image is None or not image.is_certain or node.node_id is None or is_locked(log_dir):
            continue
        for entry, name in partitions_in(log_dir):
            path = os.path.join(log_dir, entry)
            if name.state is PartitionState.FUTURE:
                yield from _before_the_change(path, name, image, node, finder.others_of(log_dir))
            elif name.state is PartitionState.DELETE:
                yield from _after_the_change(path, name, image, log_dirs, finder)


def _before_the_change(
    path: str, name: PartitionName, image: MetadataImage, node: Node, others: Sequence[str]
) -> Iterator[Finding]:
    """path: the log of the move. others: the other log dirs of the node."""
    topic_id = topic_id_of(path).topic_id
    partition = _partition(topic_id, name, image)
    former = _live(name, topic_id, others)
    if partition is None or node.node_id is None or former is None:
        return
    if partition.directory_of(node.node_id) == node.directory_id is not None:
        then = (
            f"The metadata log assigns {name.text} to this log dir: at its next start a broker completes the move, and deletes the other log "
            "with the records that this one lacks"
        )
        yield from _behind(path, former, then)
    elif node.node_id in electable(partition) and _epoch(path) >= _epoch(former):
        then = f"{name.text} is being moved there, and at its next start a broker truncates that log to the end of this one"
        yield from _behind(former, path, then)


def _after_the_change(
    former: str, name: PartitionName, image: MetadataImage, log_dirs: Sequence[str], finder: MetadataFinder
) -> Iterator[Finding]:
    """former: the log that is marked for deletion. log_dirs: of the run. A replica of its own node counts, or those of all nodes that may
    lead."""
    log_dir, topic_id = os.path.dirname(former), topic_id_of(former).topic_id
    partition, node = _partition(topic_id, name, image), finder.node_of(log_dir)
    leaders = set() if partition is None else electable(partition)
    nodes = {node.node_id: [log_dir, *finder.others_of(log_dir)]}
    if node.node_id not in leaders:
        nodes = {leader: _of_node(leader, node, log_dirs, finder) for leader in leaders}
    found = [
        path for leader, each in nodes.items() if leader in leaders and (path := _live(name, topic_id, each))
    ]
    if not found or len(found) < len(nodes):
        return
    path = max(found, key=lambda each: ends_of(PartitionTarget(each))[1])
    if _epoch(former) >= _epoch(path):
        then = f"{name.text} was moved from there, and node {node.node_id} deletes that log a minute after its start"
        yield from _behind(path, former, then)


def _of_node(node_id: int, former: Node, log_dirs: Sequence[str], finder: MetadataFinder) -> list[str]:
    """The log dirs of a stopped node in the cluster of the former one."""
    wanted = (former.cluster_id, node_id)
    nodes = ((each, finder.node_of(each)) for each in log_dirs)
    return [each for each, node in nodes if (node.cluster_id, node.node_id) == wanted and not is_locked(each)]


def _partition(topic_id: str | None, name: PartitionName, image: MetadataImage) -> Partition | None:
    topic = image.topics.get(topic_id or "")
    return None if topic is None else topic.partitions.get(name.partition)


def _live(name: PartitionName, topic_id: str | None, log_dirs: Sequence[str]) -> str | None:
    paths = (os.path.join(log_dir, name.text) for log_dir in log_dirs)
    return next(
        (path for path in paths if topic_id_of(path).topic_id == topic_id and has_segment(path)), None
    )


def _epoch(path: str) -> int:
    """The leader epoch of a log's last batch; -1 if none is known. The checkpoint does not tell: a broker that loads a log that is marked
    for deletion removes all of its entries (observed with 4.3.1)."""
    try:
        with PartitionLog(PartitionTarget(path)) as log:
            last = log.newest_batch
    except KsegError:
        return -1
    return -1 if last is None else last.leader_epoch


def _behind(path: str, former: str, then: str) -> Iterator[Finding]:
    """then: the sentence about what a broker does."""
    (_, end), (_, former_end) = ends_of(PartitionTarget(path)), ends_of(PartitionTarget(former))
    if end < former_end:
        behind = MovedLogBehind(former, max(end, 0), former_end)
        message = f"the records end at offset {behind.end_offset} here, and in {former} at offset {former_end}. {then}"
        yield Finding.about("moved-log-behind", path, message, behind)
