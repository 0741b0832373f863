"""Logs of moves between log dirs that a broker completes at its start although the log it then deletes has more records.

The controller assigns a replica to its new log dir once the `-future` log there has caught up; the broker then puts it in the place of the
former log. If it ends in between, the next start does that, without comparing the two (Kafka: LogManager.recoverAbandonedFutureLogs;
observed with 4.3.1): what the former log has beyond the end of the other one is lost, and a power failure may have taken all of a log that
was copied a moment ago.
"""

import os
from collections.abc import Iterator, Sequence

from kseg.change.apply.lock import is_locked
from kseg.internal_topics.broker_directories import ends_of
from kseg.internal_topics.metadata.metadata_finder import MetadataFinder
from kseg.internal_topics.metadata.metadata_image import MetadataImage, Node
from kseg.internal_topics.metadata.replica_directories import has_segment, topic_id_of
from kseg.segment.diagnosis import MovedLogBehind
from kseg.segment.findings import Finding
from kseg.segment.partition.directory import partitions_in
from kseg.segment.partition.names import PartitionName, PartitionState
from kseg.segment.partition.targets import PartitionTarget


def moved_logs_behind(log_dirs: Sequence[str], finder: MetadataFinder) -> Iterator[Finding]:
    """One finding for each `-future` log. log_dirs: of stopped brokers; others are left out, since their logs grow. Raises UnreadableInput
    for a log dir that cannot be listed."""
    for log_dir in log_dirs:
        image, node = finder.governing_image(log_dir), finder.node_of(log_dir)
        if image is None or not image.is_certain:
            continue
        moved = [
            (os.path.join(log_dir, entry), name)
            for entry, name in partitions_in(log_dir)
            if name.state is PartitionState.FUTURE
        ]
        for path, name in moved if not is_locked(log_dir) else ():
            topic_id = topic_id_of(path)[1]
            if topic_id is None or not _is_assigned(topic_id, name, image, node):
                continue
            former = _former_log(name, topic_id, finder.others_of(log_dir))
            if former is not None:
                yield from _behind(path, former, name)


def _is_assigned(topic_id: str, name: PartitionName, image: MetadataImage, node: Node) -> bool:
    """Whether the replica is assigned to the node's log dir."""
    topic = image.topics.get(topic_id)
    partition = None if topic is None else topic.partitions.get(name.partition)
    if partition is None or node.node_id is None or node.directory_id is None:
        return False
    return partition.directory_of(node.node_id) == node.directory_id


def _former_log(name: PartitionName, topic_id: str, others: Sequence[str]) -> str | None:
    """others: the other log dirs of the node."""
    paths = (os.path.join(other, name.text) for other in others)
    return next((path for path in paths if topic_id_of(path)[1] == topic_id and has_segment(path)), None)


def _behind(path: str, former: str, name: PartitionName) -> Iterator[Finding]:
    (_, end), (_, former_end) = ends_of(PartitionTarget(path)), ends_of(PartitionTarget(former))
    if end < former_end:
        behind = MovedLogBehind(former, max(end, 0), former_end)
        message = (
            f"the records end at offset {behind.end_offset} here, and in {former} at offset {former_end}. The metadata log assigns {name.text} to this log dir: at its next "
            "start a broker completes the move, and deletes the other log with the records that this one lacks"
        )
        yield Finding("moved-log-behind", path, message, numbers=behind.numbers(), diagnosis=behind)
