"""Determine the node of a log dir whose meta.properties does not name it, from where the metadata log places its partitions.

The existing partition directories were placed on one node, and since 3.7 in one directory of it. So:

1. Whatever can still be read of meta.properties counts; a directory id is registered by one node.
2. Of all registered directories (node, directory id), those remain in which most of the partitions found here, by their topic
   ids, were placed; if the log names no directory, every directory of the replica's node. Directories that belong to other log
   dirs with a meta.properties are excluded.
3. If one remains, it is this one. If several of one node remain, only the node is known.

A partition that the log does not contain, or places elsewhere, is stray (`strays`), and is outvoted as long as most others agree.
"""

import os
from collections.abc import Iterator
from collections.abc import Set as AbstractSet
from contextlib import suppress

from kseg.internal_topics.metadata.metadata_image import LOST, MIGRATING, UNASSIGNED, MetadataImage, Node
from kseg.segment.errors import FormatError, KsegError
from kseg.segment.files import read_small
from kseg.segment.partition.names import NAME_BY_ROLE, PartitionState, Role, parse_partition_directory
from kseg.segment.sidecar.metadata_files import decode_partition_metadata
from kseg.segment.storage import places

_Place = tuple[int, str | None]  # node id and directory id (None for a node that has registered none)


def node_by_placement(
    log_dir: str, known: Node, image: MetadataImage, taken: AbstractSet[str], *, is_own: bool
) -> Node:
    """`known`, completed from the placement of partitions.

    taken: directory ids of other log dirs. is_own: the metadata log is in this log dir, so that its cluster is certain even
    without any partition here.
    """
    holders = [broker.id for broker in image.brokers.values() if known.directory_id in broker.log_dirs]
    if len(holders) == 1 and known.node_id in (None, holders[0]):
        return Node(holders[0], known.cluster_id or image.cluster_id, known.directory_id)
    here = [*_placed(log_dir, image)]
    score = {
        place: sum(place in placed or (place[0], None) in placed for placed in here)
        for place in _registered(image)
        if _fits(place, known) and place[1] not in taken
    }
    best = max(score.values(), default=0)
    if 2 * best <= len(here) and (here or not is_own):
        return known
    places = [place for place, count in score.items() if count == best]
    nodes = {node for node, _ in places}
    if len(nodes) != 1:
        return known
    (node_id,) = nodes
    directory_id = known.directory_id or (places[0][1] if len(places) == 1 else None)
    return Node(node_id, known.cluster_id or image.cluster_id, directory_id)


def _registered(image: MetadataImage) -> Iterator[_Place]:
    for broker in image.brokers.values():
        yield from ((broker.id, directory_id) for directory_id in broker.log_dirs or (None,))


def _fits(place: _Place, known: Node) -> bool:
    return known.node_id in (None, place[0]) and (
        known.directory_id is None or place[1] in (None, known.directory_id)
    )


def _placed(log_dir: str, image: MetadataImage) -> Iterator[set[_Place]]:
    """Where the log places each partition found here; a directory of None means any directory of the node."""
    names: list[str] = []
    with suppress(OSError):
        names = sorted(places.listdir(log_dir))
    for entry in names:
        with suppress(KsegError):
            name = parse_partition_directory(entry)
            if name.state is not PartitionState.LIVE:
                continue
            path = os.path.join(log_dir, entry, NAME_BY_ROLE[Role.PARTITION_METADATA])
            topic = image.topics.get(decode_partition_metadata(read_small(path)).topic_id)
            partition = None if topic is None else topic.partitions.get(name.partition)
            if partition is None:
                raise FormatError("the metadata log has no such partition")
            yield {
                (node, None if directory in (MIGRATING, UNASSIGNED, LOST) else directory)
                for node in partition.replicas
                for directory in [partition.directory_of(node)]
            }
