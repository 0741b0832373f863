"""What retention would delete from a log if its broker started now, for the forecast of `doctor`.

A broker that has been down for long, or that starts on an old backup, deletes in its first minute what has expired in the meantime, which
may be the whole log.
"""

from collections.abc import Iterator

from kseg.change.plan.inputs import listing_of
from kseg.compaction.retention.options import AS_RETENTION, RetainOptions
from kseg.compaction.retention.retention_evidence import gather, open_log
from kseg.compaction.retention.rules import Rule, decide
from kseg.compaction.retention.topic_limits import configured, exempted, is_kafka07, known_for
from kseg.jobs.events import Event, Row
from kseg.segment.errors import KsegError
from kseg.segment.partition.targets import PartitionTarget
from kseg.segment.partition.topic_settings import Source, TopicSettings
from kseg.segment.values import dataclass


@dataclass(frozen=True, slots=True)
class DueDeletion:
    """The segments of a partition that exceed a limit. is_everything: no record is left then, neither here nor in remote storage.
    is_by_default: some exceed only a retention.ms that is set nowhere, so that Kafka's default applies. is_by_cleaner: the topic is
    compacted as well, and the cleaner deletes them (Kafka: LogCleaner.cleanFilthiestLog, LogCleanerManager.deletableLogs)."""

    directory: str
    segments: int
    size_bytes: int
    is_everything: bool
    is_by_default: bool
    is_by_cleaner: bool


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
    except KsegError:
        return  # `verify` reports what is wrong with it
    decision = decide(judged, options.limits)
    # what is below the log start was deleted before
    breached = [
        candidate.size_bytes
        for candidate, rule in zip(judged.candidates, decision.rules, strict=False)
        if rule is not Rule.LOG_START
    ]
    if breached:
        is_by_default = Rule.TIME in decision.rules and _has_built_in_time(known)
        is_everything = decision.rolls and judged.remote_end_offset is None
        is_by_cleaner = "compact" in known.policies
        yield Row(
            {},
            DueDeletion(
                target.path, len(breached), sum(breached), is_everything, is_by_default, is_by_cleaner
            ),
        )


def _has_built_in_time(known: TopicSettings) -> bool:
    # local.retention.ms=-2 stands for retention.ms
    names = ("local.retention.ms", "retention.ms") if known.is_tiered else ("retention.ms",)
    found = (known.settings[name] for name in names if name in known.settings)
    limit = next((each for each in found if each.value.strip() != AS_RETENTION), None)
    return limit is not None and limit.source is Source.BUILT_IN
