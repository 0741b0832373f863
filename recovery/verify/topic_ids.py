"""Topic ids as the partitions of a data directory have them (partition.metadata, fact sheet §1.4)."""

import os
from collections.abc import Iterator
from contextlib import suppress

from kseg.segment.errors import FormatError, KsegError
from kseg.segment.files import read_small
from kseg.segment.partition.names import (
    NAME_BY_ROLE,
    PartitionName,
    PartitionState,
    Role,
    parse_partition_directory,
)
from kseg.segment.sidecar.metadata_files import decode_partition_metadata

METADATA_FILE = NAME_BY_ROLE[Role.PARTITION_METADATA]


def topic_id_of(partition_path: str) -> str | None:
    """The id in a partition directory, None when there is none that can be read (the partition itself says so)."""
    try:
        return decode_partition_metadata(read_small(os.path.join(partition_path, METADATA_FILE))).topic_id
    except KsegError:
        return None


def topic_ids(log_dir: str, topic: str | None = None) -> Iterator[tuple[PartitionName, str]]:
    """(partition, topic id) of the live partitions of a data directory that have one, by directory name.

    topic: only its partitions are looked into.
    """
    with suppress(OSError):
        for entry in sorted(os.listdir(log_dir)):
            with suppress(FormatError):
                name = parse_partition_directory(entry)
                if name.state is not PartitionState.LIVE or topic not in (None, name.topic):
                    continue
                topic_id = topic_id_of(os.path.join(log_dir, entry))
                if topic_id is not None:
                    yield name, topic_id


def missing_topic_id(log_dir: str, name: PartitionName | None) -> str:
    """That there is no partition.metadata, and the id that another partition of the topic has, if one has."""
    missing = "there is no partition.metadata"
    if name is None:
        return missing
    sibling = next(topic_ids(log_dir, name.topic), None)
    if sibling is None:
        return missing
    return (
        f"{missing}; {sibling[0].text} has the topic id {sibling[1]} (kseg recover --topic-id {sibling[1]})"
    )
