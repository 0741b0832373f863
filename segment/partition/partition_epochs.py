"""The leader epochs in the checkpoint of a partition directory, for code that needs no other file of it."""

import os

from kseg.segment.files import read_small
from kseg.segment.partition.names import NAME_BY_ROLE, Role
from kseg.segment.sidecar.checkpoint import decode_leader_epochs
from kseg.segment.sidecar.leader_epochs import EpochEntry


def partition_epochs(partition: str) -> tuple[EpochEntry, ...]:
    """The entries of leader-epoch-checkpoint in file order. Raises UnreadableInput, FormatError."""
    return decode_leader_epochs(read_small(os.path.join(partition, NAME_BY_ROLE[Role.LEADER_EPOCHS])))
