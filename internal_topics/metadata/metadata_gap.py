"""Decide whether a node can load a metadata log that lacks offsets. The node does not notice the gap, but fails on the first record that
refers to a lost one.

Most batches of a metadata log are NoOpRecords. If one of these is lost, or a change that no later record builds upon, a node loads
everything after it (observed with 4.3.1: of 15 logs that lacked one batch each, a node started with those in which no record contradicts
the state before it). If there are other voters, removing the damaged batch is nevertheless no repair: this node would never fetch the
missing records, as one whose log ends before them does.
"""

import os
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import replace

from kseg.internal_topics.metadata.metadata_image import MetadataImage
from kseg.internal_topics.metadata.metadata_log import MetadataReading, read_metadata_log
from kseg.internal_topics.metadata.refused_features import METADATA_VERSION
from kseg.segment.diagnosis import MetadataGap
from kseg.segment.errors import KsegError
from kseg.segment.files import read_small
from kseg.segment.findings import Finding
from kseg.segment.partition.names import METADATA_DIRECTORY, NAME_BY_ROLE, Role
from kseg.segment.sidecar.metadata_files import decode_quorum_state


def with_judged_gaps(image: MetadataImage, node_id: int | None) -> MetadataImage:
    """The image of a metadata log directory in which each doubt about missing offsets says whether the node can start without them
    (`MetadataGap.is_loadable`). node_id: the node that the directory belongs to."""
    if not any(isinstance(doubt.diagnosis, MetadataGap) for doubt in image.doubts):
        return image
    is_only_voter = voters_of(image, [os.path.dirname(image.path)]) == {node_id}
    whole = read_metadata_log(image.path, MetadataReading(everything=True))
    has_version = METADATA_VERSION in whole.features
    is_loadable = is_only_voter and has_version and not whole.contradictions and not whole.is_in_transaction
    doubts = tuple(_judged(doubt, is_loadable) for doubt in image.doubts)
    return replace(image, doubts=doubts, contradictions=whole.contradictions)


def _judged(doubt: Finding, is_loadable: bool) -> Finding:
    gap = doubt.diagnosis
    return (
        replace(doubt, diagnosis=replace(gap, is_loadable=is_loadable))
        if isinstance(gap, MetadataGap)
        else doubt
    )


def voters_of(image: MetadataImage, log_dirs: Iterable[str]) -> set[int]:
    """The node ids of all voters named in the metadata log or in the quorum-state of these log dirs; empty if the voters are unknown."""
    voters = {voter.id for voter in image.voters}
    for log_dir in log_dirs:
        path = os.path.join(log_dir, METADATA_DIRECTORY, NAME_BY_ROLE[Role.QUORUM_STATE])
        with suppress(KsegError):
            voters.update(decode_quorum_state(read_small(path)).current_voters or ())
    return voters
