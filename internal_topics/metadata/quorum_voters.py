"""The state and the voters of the quorum that a metadata log directory belongs to."""

import os
from collections.abc import Iterable
from contextlib import suppress

from kseg.internal_topics.metadata.metadata_image import MetadataImage
from kseg.segment.errors import KsegError
from kseg.segment.files import read_small
from kseg.segment.partition.names import METADATA_DIRECTORY, NAME_BY_ROLE, Role
from kseg.segment.sidecar.metadata_files import QuorumState, decode_quorum_state


def voters_of(image: MetadataImage, log_dirs: Iterable[str]) -> set[int]:
    """The node ids of all voters named in the metadata log or in the quorum-state of these log dirs; empty if the voters are unknown."""
    voters = {voter.id for voter in image.voters}
    for log_dir in log_dirs:
        state = quorum_state(os.path.join(log_dir, METADATA_DIRECTORY))
        voters.update(() if state is None else state.current_voters or ())
    return voters


def quorum_state(metadata_log: str) -> QuorumState | None:
    """The quorum-state of a metadata log, None if it cannot be read."""
    with suppress(KsegError):
        return decode_quorum_state(read_small(os.path.join(metadata_log, NAME_BY_ROLE[Role.QUORUM_STATE])))
    return None
