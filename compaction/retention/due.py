"""What retention would delete from a log if its broker started now, for the forecast of `doctor`.

A broker that has been down for long, or that starts on an old backup, deletes in its first minute what has expired in the meantime, which
may be the whole log. The checkpointed high watermark holds nothing back, unlike in `retain`: after a kill or in a backup it may be that of
an empty log, and a leader raises it to the log end before the first check of retention.

A log with compact,delete is judged as it is now. The cleaner may clean it before it deletes: then it may be below retention.bytes, or
expired segments are merged with an empty one before them whose file is younger, and are deleted as well (observed).
"""

from collections.abc import Iterator
from dataclasses import replace

from kseg.change.plan.inputs import listing_of
from kseg.compaction.retention.options import AS_RETENTION, Limits, RetainOptions
from kseg.compaction.retention.remote_expiry import remote_expiry
from kseg.compaction.retention.retention_evidence import gather, open_log
from kseg.compaction.retention.rules import LogToRetain, Rule, decide
from kseg.compaction.retention.topic_limits import configured, exempted, is_kafka07, known_for
from kseg.jobs.events import Event, Row
from kseg.segment.errors import KsegError
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
