"""The metadata log with which a stopped node will load its logs, if that of another node is known.

A node that was down while the others kept running fetches what it missed from the controllers before it loads a log (Kafka:
BrokerMetadataPublisher; observed with 4.3.1): partitions of topics that were deleted meanwhile, or recreated under the same name, and
partitions that were moved away then become stray, although its own copy of the metadata log still has them.
"""

from collections.abc import Mapping, Sequence

from kseg.change.apply.lock import is_locked
from kseg.internal_topics.metadata.metadata_finder import MetadataFinder
from kseg.internal_topics.metadata.metadata_image import MetadataImage
from kseg.segment.partition.partition_epochs import last_epoch_below


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
        if (
            image is not None
            and image.is_certain
            and _reach(image) > _reach(found)
            and _continues(image, own)
        ):
            found = image
    if found is own or {voter.id for voter in found.voters} == {node.node_id} or is_locked(log_dir):
        return own
    return found


def _reach(image: MetadataImage) -> tuple[int, int]:
    return image.epoch, image.end_offset


def _continues(image: MetadataImage, earlier: MetadataImage) -> bool:
    """Whether a log has all records of an earlier one: the leader epoch is the same at its end."""
    is_longer = image.end_offset >= earlier.end_offset
    return is_longer and last_epoch_below(image.path, earlier.end_offset) == earlier.epoch
