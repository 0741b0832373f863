"""The leader epochs in the checkpoint of a partition directory, for code that needs no other file of it."""

import os

from kseg.segment.errors import KsegError
from kseg.segment.files import read_small
from kseg.segment.partition.names import NAME_BY_ROLE, Role
from kseg.segment.sidecar.checkpoint import decode_leader_epochs
from kseg.segment.sidecar.leader_epochs import EpochEntry


def partition_epochs(partition: str) -> tuple[EpochEntry, ...]:
    """The entries of leader-epoch-checkpoint in file order. Raises UnreadableInput, FormatError."""
    return decode_leader_epochs(read_small(os.path.join(partition, NAME_BY_ROLE[Role.LEADER_EPOCHS])))


def last_epoch_below(partition: str, offset: int) -> int | None:
    """The last leader epoch that begins below an offset of a partition; None if it is unknown."""
    try:
        entries = partition_epochs(partition)
    except KsegError:
        return None
    return max((entry.epoch for entry in entries if entry.start_offset < offset), default=None)
