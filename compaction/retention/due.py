"""What retention would delete from a log if its broker started now, for the forecast of `doctor`.

A broker that has been down for long, or that starts on an old backup, deletes in its first minute what has expired in the meantime, which
may be the whole log. The checkpointed high watermark holds nothing back, unlike in `retain`: after a kill or in a backup it may be that of
an empty log, and a leader raises it to the log end before the first check of retention.

A log with compact,delete is judged as it is now. The cleaner may clean it before it deletes: then it may be below retention.bytes, or
expired segments are merged with an empty one before them whose file is younger, and are deleted as well (observed).

In remote storage (Kafka: RemoteLogManager.RLMExpirationTask) the leader of a partition looks for what expires as soon as it has read
__remote_log_metadata, and every remote.log.manager.task.interval.ms (30 seconds) from then on. What is deleted there is gone: no kseg
command and no broker restores it.

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

from collections.abc import Iterator, Sequence
from dataclasses import replace

from kseg.change.plan.inputs import listing_of
from kseg.compaction.retention.options import AS_RETENTION, Limits, RetainOptions
from kseg.compaction.retention.retention_evidence import gather, open_log
from kseg.compaction.retention.rules import LogToRetain, Rule, decide
from kseg.compaction.retention.topic_limits import configured, exempted, is_kafka07, known_for
from kseg.jobs.events import Event, Row
from kseg.segment.errors import KsegError
from kseg.segment.partition.remote_span import RemoteCopy
from kseg.segment.partition.targets import PartitionTarget
from kseg.segment.partition.topic_settings import Source, TopicSettings
from kseg.segment.values import dataclass


@dataclass(frozen=True, slots=True)
class DueDeletion:
    """The segments of a partition that exceed a limit. remote_segments, remote_bytes: those in remote storage, of a topic with tiered
    storage. remote_segments_at_most: a broker may delete so many of them (`remote_expiry`). is_everything: no record is left then, neither
    here nor in remote storage. is_by_default: some exceed only a retention.ms that is set nowhere, so that Kafka's default applies.
    is_by_cleaner: the topic is compacted as well, and the cleaner deletes them (Kafka: LogCleaner.cleanFilthiestLog,
    LogCleanerManager.deletableLogs), also from a log at which it fails, unless that is the first one that it cleans.
    is_tiered: the topic has tiered storage."""

    directory: str
    segments: int
    size_bytes: int
    remote_segments: int
    remote_segments_at_most: int
    remote_bytes: int
    is_everything: bool
    is_by_default: bool
    is_by_cleaner: bool
    is_tiered: bool


def due_deletion(target: PartitionTarget, options: RetainOptions) -> Iterator[Event]:
    """One row, without values, whose result is a `DueDeletion`; none if no segment exceeds a limit, or if that cannot be determined."""
    if exempted(target) is not None:
        return
    try:
        listing = listing_of(target.path, follow_links=True)
        known = known_for(target, listing.files, options)
        options, unknown = configured(target, known, options)
        if unknown is not None or known is None or is_kafka07(listing.files) or listing.odd_logs:
            return
        log, dir_state = open_log(target, listing.names)
        with log:
            judged = gather(log, dir_state, listing.files, options).log_to_retain
            judged = replace(judged, high_watermark=judged.log_end_offset)
    except KsegError:
        return  # `verify` reports what is wrong with it
    due = _due(target.path, judged, options.limits, known)
    if due is not None:
        yield Row({}, due)


def _due(path: str, judged: LogToRetain, limits: Limits, known: TopicSettings) -> DueDeletion | None:
    decision = decide(judged, limits)
    remote = remote_expiry(judged, known) if limits.is_tiered else None
    # what is below the log start was deleted before
    breached = [
        candidate.size_bytes
        for candidate, rule in zip(judged.candidates, decision.rules, strict=False)
        if rule is not Rule.LOG_START
    ]
    is_everything = decision.rolls and not limits.is_copied and not known.remote_copies
    if remote is not None and remote.is_everything:
        is_everything = True
        breached = [candidate.size_bytes for candidate in judged.candidates if candidate.size_bytes]
    if not breached and remote is None:
        return None
    of_time = Rule.TIME in decision.rules and _has_built_in_time(known, is_local=limits.is_copied)
    of_remote_time = remote is not None and remote.by_time and _has_built_in_time(known, is_local=False)
    return DueDeletion(
        path,
        len(breached),
        sum(breached),
        0 if remote is None else remote.segments,
        0 if remote is None else remote.segments_at_most,
        0 if remote is None else remote.size_bytes,
        is_everything,
        of_time or of_remote_time,
        "compact" in known.policies,
        limits.is_tiered,
    )


def _has_built_in_time(known: TopicSettings, *, is_local: bool) -> bool:
    # local.retention.ms=-2 stands for retention.ms
    names = ("local.retention.ms", "retention.ms") if is_local else ("retention.ms",)
    found = (known.settings[name] for name in names if name in known.settings)
    limit = next((each for each in found if each.value.strip() != AS_RETENTION), None)
    return limit is not None and limit.source is Source.BUILT_IN


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
