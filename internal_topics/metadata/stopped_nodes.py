"""Stopped nodes of one cluster whose data directories are examined together."""

import os
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence

from kseg.change.apply.lock import is_locked
from kseg.internal_topics.metadata.metadata_finder import MetadataFinder
from kseg.internal_topics.metadata.metadata_image import Broker, MetadataImage
from kseg.internal_topics.metadata.newer_log import continues
from kseg.internal_topics.metadata.replica_directories import topic_id_of
from kseg.segment.diagnosis import ReplicaBehind
from kseg.segment.partition.directory import partitions_in
from kseg.segment.values import dataclass


@dataclass(frozen=True, slots=True)
class StoppedNodes:
    """log_dirs: those of the nodes. newest: the newest metadata log of the cluster."""

    log_dirs: Sequence[str]
    newest: MetadataImage
    finder: MetadataFinder

    @property
    def newest_node(self) -> int | None:
        """The node that has the newest metadata log."""
        return self.node_id(os.path.dirname(self.newest.path))

    def node_id(self, log_dir: str) -> int | None:
        return self.finder.node_of(log_dir).node_id

    def broker_of(self, log_dir: str) -> Broker | None:
        """The registration of the broker that a log dir belongs to."""
        node_id = self.node_id(log_dir)
        return None if node_id is None else self.newest.brokers.get(node_id)

    def log_dirs_of(self, node_id: int | None) -> list[str]:
        return [log_dir for log_dir in self.log_dirs if self.node_id(log_dir) == node_id]

    def behind_newest(self, end_offset: int) -> ReplicaBehind:
        """The diagnosis of a metadata log that ends there."""
        node_id = -1 if self.newest_node is None else self.newest_node
        return ReplicaBehind(self.newest.path, node_id, end_offset, self.newest.end_offset)


def stopped_nodes(log_dirs: Iterable[str], finder: MetadataFinder) -> Iterator[StoppedNodes]:
    """The stopped nodes by cluster, for clusters with several nodes here and a metadata log. log_dirs: those of the run."""
    by_cluster: dict[str, dict[str, int]] = defaultdict(dict)
    for log_dir in log_dirs:
        node = finder.node_of(log_dir)
        if node.cluster_id is not None and node.node_id is not None:
            by_cluster[node.cluster_id][log_dir] = node.node_id
    for nodes in by_cluster.values():
        if len({*nodes.values()}) > 1:
            of_cluster = [log_dir for log_dir in nodes if not is_locked(log_dir)]
            newest = newest_image(finder, of_cluster)
            if newest is not None:
                yield StoppedNodes(of_cluster, newest, finder)


def newest_image(finder: MetadataFinder, log_dirs: Sequence[str]) -> MetadataImage | None:
    """The newest metadata log. A quorum of its own, as after a format with --standalone, may have reached a later epoch: of logs of which
    neither continues the other and that have no voter in common, the one that knows the partitions here counts."""
    images = (finder.image_for(log_dir) for log_dir in log_dirs)
    certain = [image for image in images if image is not None and image.is_certain]
    newest = max(certain, key=lambda image: image.reach, default=None)
    if newest is None or not any(_is_of_another_quorum(image, newest) for image in certain):
        return newest
    paths = (os.path.join(log_dir, name) for log_dir in log_dirs for name, _ in partitions_in(log_dir))
    here = {topic_id_of(path).topic_id for path in paths}
    return max(certain, key=lambda image: (len(here & image.topics.keys()), *image.reach))


def _is_of_another_quorum(image: MetadataImage, newest: MetadataImage) -> bool:
    have_voters = bool(image.voters) and bool(newest.voters)
    return have_voters and {*image.voters}.isdisjoint(newest.voters) and not continues(newest, image)
