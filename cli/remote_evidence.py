"""The leader epochs of segments in remote storage, for partitions that have lost their leader-epoch checkpoint: with tiered storage it is
more than an index of the local log, and `__remote_log_metadata` has the missing part."""

import os
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace

from kseg.cli.topic_evidence import log_dirs_of
from kseg.segment.errors import KsegError
from kseg.segment.files import read_small
from kseg.segment.partition.names import NAME_BY_ROLE, Role
from kseg.segment.partition.targets import PartitionTarget, Target
from kseg.segment.partition.topic_settings import TopicSettings


def with_remote_epochs(
    targets: Sequence[Target], topics: Mapping[str, TopicSettings]
) -> Mapping[str, TopicSettings]:
    """The settings by path, with the epochs of the partitions that have lost them."""
    wanted = [
        target.path
        for target in targets
        if isinstance(target, PartitionTarget)
        and target.path in topics
        and topics[target.path].is_tiered
        and not _has_epochs(target.path)
    ]
    if not wanted:
        return topics
    from kseg.internal_topics.broker_directories import find_broker_directories
    from kseg.internal_topics.remote_log.remote_listing import remote_epochs
    from kseg.recovery.verify.topic_ids import topic_id_of
    from kseg.segment.partition.directory import own_partition_name

    found = dict(topics)
    with suppress(KsegError):  # the run itself reports what cannot be read
        known = remote_epochs(find_broker_directories(log_dirs_of(targets)))
        for path in wanted:
            name, topic_id = own_partition_name(path), topic_id_of(path)
            epochs = () if name is None or topic_id is None else known.get((topic_id, name.partition), ())
            found[path] = replace(found[path], remote_epochs=tuple(epochs))
    return found


def _has_epochs(path: str) -> bool:
    """Whether the checkpoint has the epochs below the first local segment."""
    from kseg.segment.partition.directory import list_partition
    from kseg.segment.sidecar.checkpoint import decode_leader_epochs
    from kseg.segment.sidecar.leader_epochs import EpochHistory

    segments = list_partition(path).segments
    try:
        data = read_small(os.path.join(path, NAME_BY_ROLE[Role.LEADER_EPOCHS]))
        history = EpochHistory(decode_leader_epochs(data))
    except (KsegError, OSError):
        return False
    return not segments or history.begins_below(segments[0].base_offset)
