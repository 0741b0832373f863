"""Nodes without a metadata log, which set aside partitions that were created after the newest snapshot of the controllers.

A node with an empty metadata log first gets the newest snapshot of the leader, and its high watermark is then the end of it. So its loader
regards itself as caught up, and the broker, if it is ready, loads its logs with the state of the snapshot (Kafka: KafkaRaftClient,
MetadataLoader.stillNeedToCatchUp). Partitions that were created since, or assigned to the node, become stray, and are created again, empty,
once the rest is fetched: the empty replica may be elected. Observed with 4.3.1: always for a broker that waited for its controller, and for
a combined node on a busy machine. A broker that was slower than the fetch set nothing aside. With a copy of the metadata log, none does.
"""

import os
from collections.abc import Iterator, Sequence

from kseg.internal_topics.metadata.metadata_image import MetadataImage
from kseg.internal_topics.metadata.metadata_log import read_metadata_file
from kseg.internal_topics.metadata.replica_directories import topic_id_of
from kseg.internal_topics.metadata.stopped_nodes import StoppedNodes
from kseg.segment.counted import counted, listed
from kseg.segment.errors import KsegError
from kseg.segment.findings import Finding
from kseg.segment.partition.directory import partitions_in
from kseg.segment.partition.log_dir_state import has_metadata_log
from kseg.segment.partition.names import METADATA_DIRECTORY, PartitionState

_LISTED = 5


def strays_without_metadata(nodes: StoppedNodes) -> Iterator[Finding]:
    """A finding for each node that may set partitions aside, about the metadata log that it lacks."""
    newest, lacking = nodes.newest, dict(_without_metadata_log(nodes))
    snapshot = _earliest_snapshot(nodes) if lacking else None
    if snapshot is None:
        return
    for node_id, own in lacking.items():
        names = [name for log_dir in own for name in _created_since(log_dir, node_id, newest, snapshot)]
        if names:
            message = (
                f"the metadata log is not there, and on node {nodes.newest_node} it ends at offset {newest.end_offset} ({newest.path}). Node {node_id} fetches it, beginning "
                f"with the snapshot at offset {snapshot.end_offset}, and may load its logs before it has the rest: it then sets "
                f"{counted(len(names), 'partition')} aside as stray ({listed(names, _LISTED)}), creates {'it' if len(names) == 1 else 'them'} again, empty, and may lead"
            )
            path = os.path.join(own[0], METADATA_DIRECTORY)
            yield Finding.about("replica-behind", path, message, nodes.behind_newest(0))


def _without_metadata_log(nodes: StoppedNodes) -> Iterator[tuple[int, Sequence[str]]]:
    """The nodes of which all log dirs are here, none with a metadata log, and these log dirs."""
    for node_id, broker in nodes.newest.brokers.items():
        own = nodes.log_dirs_of(node_id)
        if len(own) >= max(len(broker.log_dirs), 1) and not any(map(has_metadata_log, own)):
            yield node_id, own


def _earliest_snapshot(nodes: StoppedNodes) -> MetadataImage | None:
    """Of the newest snapshots of each controller here, any of which may be the leader, the earliest one."""
    voters = {voter.id for voter in nodes.newest.voters}
    controllers = [log_dir for log_dir in nodes.log_dirs if nodes.node_id(log_dir) in voters]
    images = [nodes.finder.image_for(log_dir) for log_dir in controllers if has_metadata_log(log_dir)]
    found = []
    for path in {image.snapshot for image in images if image is not None and image.snapshot is not None}:
        try:
            found.append(read_metadata_file(path))
        except KsegError:
            continue
    return min(found, key=lambda image: image.end_offset, default=None)


def _created_since(
    log_dir: str, node_id: int, newest: MetadataImage, snapshot: MetadataImage
) -> Iterator[str]:
    """The partitions that the node has a replica of, but not in the state of the snapshot."""
    for directory, name in partitions_in(log_dir):
        topic_id = topic_id_of(os.path.join(log_dir, directory)).topic_id
        if name.state is PartitionState.LIVE and topic_id is not None:
            states = (image.topics.get(topic_id) for image in (newest, snapshot))
            now, then = (
                topic is not None
                and name.partition in topic.partitions
                and node_id in topic.partitions[name.partition].replicas
                for topic in states
            )
            if now and not then:
                yield name.text
