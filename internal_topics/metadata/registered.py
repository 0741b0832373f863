"""The directory ids that brokers have registered, for a data directory that has lost its own."""

import os
from collections.abc import Iterable, Mapping

from kseg.internal_topics.metadata.metadata_image import MetadataImage
from kseg.internal_topics.metadata.metadata_log import read_metadata_log
from kseg.segment.errors import KsegError
from kseg.segment.partition.names import METADATA_DIRECTORY
from kseg.segment.storage import places


def registered_directories(log_dirs: Iterable[str]) -> Mapping[int, tuple[str, ...]]:
    """Directory ids by node id, from the metadata log in one of these data directories; the longest of several. Empty if none can be
    read."""
    images = list[MetadataImage]()
    for log_dir in log_dirs:
        path = os.path.join(log_dir, METADATA_DIRECTORY)
        if places.isdir(path):
            try:
                images.append(read_metadata_log(path))
            except KsegError:
                continue
    newest = max(images, key=lambda image: image.reach, default=None)
    return {} if newest is None else {node: broker.log_dirs for node, broker in newest.brokers.items()}
