"""Which segments in remote storage a broker's retention deletes (Kafka: RemoteLogManager.RLMExpirationTask).

The leader of a partition looks for them as soon as it has read __remote_log_metadata, and every remote.log.manager.task.interval.ms
(30 seconds) from then on. What is deleted there is gone: no kseg command and no broker restores it.

1. The limits are retention.ms and retention.bytes of the topic, not those of local.retention; cleanup.policy does not matter.
2. Segments are gone through from the oldest one on, up to the first one that stays:
       time    its greatest timestamp is retention.ms ago
       size    what is in remote storage, with the local segments from its end on, exceeds retention.bytes by at least its size;
               a broker that has just started may count all local segments, those twice that are in remote storage as well, and delete
               segments that are within the limit (UnifiedLog.onlyLocalLogSegmentsSize, until RLMCopyTask has found the end of what is
               in remote storage; observed with 4.3.1 in a third of the starts)
3. The log start becomes the end of the last one that is deleted, and local segments below it are deleted.
4. An active segment that exceeds a local limit is rolled, copied, and then subject to the same rules. So nothing is left of a log whose
   local segments are older than retention.ms as well.
"""

from collections.abc import Sequence

from kseg.compaction.retention.rules import LogToRetain
from kseg.segment.partition.remote_span import RemoteCopy
from kseg.segment.partition.topic_settings import TopicSettings
from kseg.segment.values import dataclass


@dataclass(frozen=True, slots=True)
class RemoteExpiry:
    """segments, size_bytes: what is deleted. segments_at_most: if local segments are counted twice. by_time: retention.ms deletes some of
    it. is_everything: no record is left, neither there nor here."""

    segments: int
    segments_at_most: int
    size_bytes: int
    by_time: bool
    is_everything: bool


def remote_expiry(judged: LogToRetain, known: TopicSettings) -> RemoteExpiry | None:
    """None if nothing expires, or what is in remote storage is unknown."""
    if known.remote_copies is None:
        return None
    copies = [
        each
        for each in known.remote_copies
        if judged.log_start_offset < each.end_offset <= judged.log_end_offset
    ]
    retention_ms = known.number("retention.ms")
    end = max((each.end_offset for each in copies), default=0)
    only_here = sum(each.size_bytes for each in judged.candidates if each.base_offset + 1 >= end)
    expired = _expired(copies, judged, known, only_here)
    at_most = _expired(copies, judged, known, judged.size_bytes)
    start = max((each.end_offset for each in expired), default=judged.log_start_offset)
    left = [
        candidate
        for index, candidate in enumerate(judged.candidates)
        if candidate.size_bytes and judged.upper_bound(index) > start
    ]
    is_everything = len(expired) == len(copies) and all(
        _is_old(each.stamp_ms, judged, retention_ms) for each in left
    )
    if not at_most and not (is_everything and left):
        return None
    return RemoteExpiry(
        len(expired),
        len(at_most),
        sum(each.size_bytes for each in expired),
        any(_is_old(each.max_timestamp_ms, judged, retention_ms) for each in expired)
        or bool(is_everything and left),
        is_everything,
    )


def _expired(
    copies: Sequence[RemoteCopy], judged: LogToRetain, known: TopicSettings, local_bytes: int
) -> Sequence[RemoteCopy]:
    """The copies that expire. local_bytes: of the local segments that count beside them."""
    retention_ms, retention_bytes = known.number("retention.ms"), known.number("retention.bytes")
    excess = 0
    if retention_bytes is not None and retention_bytes >= 0:
        excess = sum(each.size_bytes for each in copies) + local_bytes - retention_bytes
    for count, copy in enumerate(copies):
        is_old = _is_old(copy.max_timestamp_ms, judged, retention_ms)
        if not is_old and (excess <= 0 or copy.size_bytes > excess):
            return copies[:count]
        excess -= copy.size_bytes
    return copies


def _is_old(timestamp_ms: int, judged: LogToRetain, retention_ms: int | None) -> bool:
    return retention_ms is not None and 0 <= retention_ms <= judged.now_ms - timestamp_ms
