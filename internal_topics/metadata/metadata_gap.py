"""Decide whether a node can load a metadata log that lacks offsets. The node does not notice the gap, but fails on the first record that
refers to a lost one.

Most batches of a metadata log are NoOpRecords. If one of these is lost, or a change that no later record builds upon, a node loads
everything after it (observed with 4.3.1: of 15 logs that lacked one batch each, a node started with those in which no record contradicts
the state before it). If there are other voters, removing the damaged batch is nevertheless no repair: this node would never fetch the
missing records, whereas one whose log ends before them does.
"""

import os
from dataclasses import replace

from kseg.internal_topics.metadata.metadata_image import MetadataImage
from kseg.internal_topics.metadata.metadata_log import MetadataReading, read_metadata_log
from kseg.internal_topics.metadata.quorum_voters import voters_of
from kseg.internal_topics.metadata.refused_features import METADATA_VERSION
from kseg.segment.diagnosis import MetadataGap
from kseg.segment.findings import Finding


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
