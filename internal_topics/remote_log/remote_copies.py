"""The segments in remote storage that a broker's retention considers, in its order.

These are the segments whose leader epochs are those of the log (Kafka: RemoteLogManager.isRemoteSegmentWithinLeaderEpochs); epochs without
a record count neither in the log nor in a segment. The log is gone through by epoch. Segments
whose upload was not finished are left out here: nothing reads them.
"""

from collections.abc import Iterable, Mapping

from kseg.internal_topics.remote_log.remote_segments import Lineage, RemotePartition, RemoteSegment
from kseg.segment.partition.remote_span import RemoteCopy


def remote_copies(partition: RemotePartition, lineage: Lineage) -> tuple[RemoteCopy, ...]:
    """lineage: the leader epochs of the log."""
    of_log = _with_records(lineage)
    found: dict[str, RemoteSegment] = {}
    for epoch in sorted(of_log):
        for segment in partition.copies_of(epoch):
            if _is_of_log(segment, of_log):
                found.setdefault(segment.id, segment)
    return tuple(
        RemoteCopy(each.start, each.end + 1, each.size_bytes, each.max_timestamp_ms)
        for each in found.values()
    )


def _with_records(epochs: Iterable[tuple[int, int]]) -> Mapping[int, int]:
    """Start offsets by epoch, without the epochs that begin where the next one does."""
    in_order = sorted(epochs)
    following = [begin for _, begin in in_order[1:]]
    return {
        epoch: begin
        for (epoch, begin), after in zip(in_order, [*following, None], strict=True)
        if begin != after
    }


def _is_of_log(segment: RemoteSegment, of_log: Mapping[int, int]) -> bool:
    """of_log: the epochs of the log with their start offsets, in order. Epochs of the segment before the log's first one do not count."""
    known, epochs = [*of_log.items()], [*_with_records(segment.leader_epochs).items()]
    first_epoch, first_begin = epochs[0]
    last_epoch, _ = epochs[-1]
    if not known or not known[0][0] <= last_epoch <= known[-1][0]:
        return False
    within = [(epoch, begin) for epoch, begin in epochs if epoch >= known[0][0]]
    places = [at for at, (epoch, _) in enumerate(known) if epoch == within[0][0]]
    if not places:
        return False
    at = places[0]
    # from the second one on, each begins where it does in the log
    if known[at + 1 : at + len(within)] != within[1:]:
        return False
    if at and within[0][0] == first_epoch and first_begin < known[at][1]:
        return False
    after = known[at + len(within) :]
    return not after or segment.end < after[0][1]
