"""Topic ids in the partition.metadata files of a data directory (fact sheet §1.4)."""

import os
from collections.abc import Iterator
from contextlib import suppress
from functools import lru_cache

from kseg.segment.errors import FormatError, KsegError
from kseg.segment.files import read_small
from kseg.segment.findings import Finding
from kseg.segment.partition.directory import PartitionDirectory
from kseg.segment.partition.log_dir_state import KRAFT_VERSION
from kseg.segment.partition.names import (
    NAME_BY_ROLE,
    PartitionName,
    PartitionState,
    Role,
    parse_partition_directory,
)
from kseg.segment.sidecar.metadata_files import decode_partition_metadata
from kseg.segment.storage import places

METADATA_FILE = NAME_BY_ROLE[Role.PARTITION_METADATA]


def topic_id_of(partition_path: str) -> str | None:
    """The id in a partition directory, None if there is no readable one (the check of the partition reports that)."""
    try:
        return decode_partition_metadata(read_small(os.path.join(partition_path, METADATA_FILE))).topic_id
    except KsegError:
        return None


def topic_ids(log_dir: str, topic: str | None = None) -> Iterator[tuple[PartitionName, str]]:
    """(partition, topic id) of the live partitions of a data directory that have one, by directory name.

    topic: return only its partitions. The directory is read once as long as it does not change, since each of its partitions may call this.
    """
    try:
        changed_ns = places.stat(log_dir).st_mtime_ns
    except OSError:
        return iter(())
    return (pair for pair in _topic_ids(log_dir, changed_ns) if topic in (None, pair[0].topic))


@lru_cache(maxsize=4)
def _topic_ids(log_dir: str, changed_ns: int) -> tuple[tuple[PartitionName, str], ...]:
    found = []
    with suppress(OSError):
        for entry in sorted(places.listdir(log_dir)):
            with suppress(FormatError):
                name = parse_partition_directory(entry)
                topic_id = topic_id_of(os.path.join(log_dir, entry))
                if name.state is PartitionState.LIVE and topic_id is not None:
                    found.append((name, topic_id))
    return tuple(found)


def missing_metadata(directory: PartitionDirectory, meta_version: int | None) -> Finding | None:
    """The finding that a partition lacks the partition.metadata that a broker needs, with the id that other partitions of the topic
    have. meta_version: of the data directory's meta.properties, None if unknown."""
    log_dir = os.path.dirname(places.abspath(directory.path))
    if not directory.segments or not _needs_topic_id(directory, log_dir, meta_version):
        return None
    words, topic_id = topic_id_of_siblings(directory.name, log_dir)
    message = f"there is no partition.metadata{words}"
    return Finding("partition-metadata-missing", directory.path, message, numbers={"topic_id": topic_id})


def topic_id_of_siblings(name: PartitionName | None, log_dir: str | None) -> tuple[str, str | None]:
    """The id that another partition of the topic has in the data directory: as text that ends a sentence ("" if
    there is none), and the id itself."""
    if name is None or log_dir is None:
        return "", None
    for other, topic_id in topic_ids(log_dir, name.topic):
        return f"; {other.text} has the topic id {topic_id} (kseg recover --topic-id {topic_id})", topic_id
    return "", None


def _needs_topic_id(directory: PartitionDirectory, log_dir: str, meta_version: int | None) -> bool:
    """Whether other evidence shows that a broker with topic ids wrote here: 2.8 was the first to write the file. A broker that keeps its
    metadata in ZooKeeper writes it for some partitions only, and loads the others without it (observed with 2.8.2 on a data directory of
    1.1.1: for those that it moved between data directories)."""
    if directory.name is not None and directory.name.is_metadata_log:
        return False
    if meta_version is not None:
        return meta_version == KRAFT_VERSION
    return next(topic_ids(log_dir), None) is not None
