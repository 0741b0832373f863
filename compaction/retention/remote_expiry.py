"""Which segments in remote storage a broker's retention deletes (Kafka: RemoteLogManager.RLMExpirationTask).

The leader of a partition looks for them remote.log.manager.task.interval.ms (30 seconds) after its start, again and again, whatever
log.initial.task.delay.ms says (observed with 4.3.1). What is deleted there is gone: no kseg command and no broker restores it.

1. The limits are retention.ms and retention.bytes of the topic, not those of local.retention; cleanup.policy does not matter.
2. Segments are gone through from the oldest one on, up to the first one that stays:
       time    its greatest timestamp is retention.ms ago
       size    what is in remote storage, with the local segments from its end on, exceeds retention.bytes by at least its size
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
    """segments, size_bytes: what is deleted. by_time: retention.ms deletes some of it. is_everything: no record is left, neither there nor
    here."""

    segments: int
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
    expired, by_time = _expired(copies, judged, retention_ms, known.number("retention.bytes"))
    start = max((each.end_offset for each in expired), default=judged.log_start_offset)
    left = [
        candidate
        for index, candidate in enumerate(judged.candidates)
        if candidate.size_bytes and judged.upper_bound(index) > start
    ]
    is_everything = len(expired) == len(copies) and all(
        _is_old(each.stamp_ms, judged, retention_ms) for each in left
    )
    if not expired and not (is_everything and left):
        return None
    size_bytes = sum(each.size_bytes for each in expired)
    return RemoteExpiry(len(expired), size_bytes, by_time or bool(is_everything and left), is_everything)


def _expired(
    copies: Sequence[RemoteCopy], judged: LogToRetain, retention_ms: int | None, retention_bytes: int | None
) -> tuple[Sequence[RemoteCopy], bool]:
    """The copies that expire, and whether any does because of its age."""
    end = max((each.end_offset for each in copies), default=0)
    excess = 0
    if retention_bytes is not None and retention_bytes >= 0:
        local = sum(each.size_bytes for each in judged.candidates if each.base_offset + 1 >= end)
        excess = sum(each.size_bytes for each in copies) + local - retention_bytes
    expired, by_time = [], False
    for copy in copies:
        is_old = _is_old(copy.max_timestamp_ms, judged, retention_ms)
        if not is_old and (excess <= 0 or copy.size_bytes > excess):
            break
        excess -= copy.size_bytes
        by_time |= is_old
        expired.append(copy)
    return expired, by_time


def _is_old(timestamp_ms: int, judged: LogToRetain, retention_ms: int | None) -> bool:
    return retention_ms is not None and 0 <= retention_ms <= judged.now_ms - timestamp_ms
