"""The retention that follows a start: what it deletes, and the step for logs that it empties.

A broker checks the retention limits log.initial.task.delay.ms (30 seconds) after it has loaded its logs, and every
log.retention.check.interval.ms (5 minutes) from then on (Kafka: LogManager.startupWithConfigOverrides). For topics that are compacted as
well, the log cleaner does so, without that delay: after log.cleaner.backoff.ms (15 seconds). With log.cleaner.enable=false nothing does
(Kafka: LogManager.cleanupLogs; observed with 4.3.1, for which the property is deprecated). In remote storage the leader of a partition
deletes as soon as it has read __remote_log_metadata, which may take a second or more, and every remote.log.manager.task.interval.ms
(30 seconds) from then on. A broker whose reader cannot connect deletes nothing there (observed with 4.3.1).
"""

import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from kseg.cli.doctor.next_step import NextStep
from kseg.cli.next_command import command_line
from kseg.cli.remote_evidence import with_remote_ends
from kseg.cli.request import Request
from kseg.cli.topic_evidence import Asked, topic_settings
from kseg.compaction.retention.due import DueDeletion, due_deletion
from kseg.compaction.retention.options import Limits, RetainOptions
from kseg.jobs.events import Event, Row
from kseg.segment.counted import listed
from kseg.segment.partition.targets import PartitionTarget
from kseg.segment.terminal import shown_path

if TYPE_CHECKING:
    from kseg.internal_topics.metadata.metadata_finder import MetadataFinder

_LISTED = 5
_EXAMPLES = 3
_POSTPONED = "log.initial.task.delay.ms=3600000"
_UNREAD = "rlmm.config.remote.log.metadata.consumer.bootstrap.servers=127.0.0.1:1"
_CLEANER = "log.cleaner.enable"


def due_deletions(
    targets: Sequence[PartitionTarget],
    asked: Asked,
    finder: "MetadataFinder | None",
    over: Callable[..., Iterator[Event]],
    now_ms: int,
) -> Iterator[DueDeletion]:
    """The partitions from which a broker that starts now deletes segments, in order. Topics whose policy is unknown are left out; limits
    that are set nowhere are Kafka's defaults. asked: the evidence. over: runs work on targets."""
    strict, _ = topic_settings(targets, asked, finder)
    wanted = [target for target in targets if not strict[target.path].unknown]
    topics, _ = topic_settings(wanted, replace(asked, assumes_defaults=True), finder)
    has_cleaner = (asked.server or {}).get(_CLEANER, "").strip().lower() != "false"
    options = RetainOptions(limits=Limits(), now_ms=now_ms, topics=with_remote_ends(wanted, topics))
    for event in over(due_deletion, wanted, options) if wanted else ():
        due = event.result if isinstance(event, Row) else None
        if isinstance(due, DueDeletion) and (has_cleaner or not due.is_by_cleaner):
            yield due


def retention_rows(found: Sequence[DueDeletion], *, is_default_known: bool) -> Iterator[dict[str, object]]:
    """One row for each data directory. is_default_known: server.properties was given, so that the default for a limit that is set nowhere
    is no guess."""
    by_log_dir: dict[str, list[DueDeletion]] = {}
    for each in found:
        by_log_dir.setdefault(os.path.dirname(each.directory), []).append(each)
    for log_dir, due in by_log_dir.items():
        emptied = [os.path.basename(each.directory) for each in due if each.is_everything]
        yield {
            "type": "retention",
            "log_dir": log_dir,
            "partitions": len(due),
            "segments": sum(each.segments for each in due),
            "bytes": sum(each.size_bytes for each in due),
            "remote_segments": sum(each.remote_segments for each in due),
            "remote_segments_at_most": sum(each.remote_segments_at_most for each in due),
            "remote_bytes": sum(each.remote_bytes for each in due),
            "partitions_emptied": len(emptied),
            "examples": emptied[:_EXAMPLES],
            "assumes_default": not is_default_known and any(each.is_by_default for each in due),
        }


def keep_expired(found: Sequence[DueDeletion], request: Request) -> Iterator[NextStep]:
    """The step for logs that retention empties: nobody but the user knows whether their records are still wanted."""
    emptied = [each for each in found if each.is_everything]
    if not emptied:
        return
    names = [os.path.basename(each.directory) for each in emptied]
    yield NextStep(
        f"Everything in {shown_path(listed(names, _LISTED))} exceeds the limits of retention: a broker deletes it half a minute after "
        "it has loaded its logs. If the records are still wanted, as after the restore of a backup, copy them away first, or start the "
        f"broker with {_postponing(emptied)}: that leaves an hour to raise retention.ms (kafka-configs.sh). {_keeping_remote(emptied)}"
        "See which limit deletes what.",
        command_line("retain", {"--server-properties": _properties_file(request)}, request),
        is_due=False,
    )


def keep_counted_twice(found: Sequence[DueDeletion], request: Request) -> Iterator[NextStep]:
    """The step for segments in remote storage that a broker may delete although they are within the limits."""
    names = [
        os.path.basename(each.directory)
        for each in found
        if each.remote_segments_at_most > each.remote_segments and not each.is_everything
    ]
    if names:
        yield NextStep(
            f"Of {shown_path(listed(names, _LISTED))}, a broker may delete segments in remote storage that are within retention.bytes, which "
            "nothing reverts: after a start 4.3.1 may count twice what is there and here as well. To keep them, start all "
            f"brokers with {_UNREAD}, with which nothing is deleted or read there, raise retention.bytes by the size of the local log "
            "(kafka-configs.sh), and start them again without it; some minutes later the limit can be lowered. See what is in remote storage.",
            command_line("list", {"--remote": True}, request),
            is_due=False,
        )


def _postponing(emptied: Sequence[DueDeletion]) -> str:
    """The properties with which a broker does not delete local segments at once."""
    of_cleaner = [os.path.basename(each.directory) for each in emptied if each.is_by_cleaner]
    if not of_cleaner:
        return f"{_POSTPONED} in server.properties"
    return (
        f"{_POSTPONED} and, for {shown_path(listed(of_cleaner, _LISTED))}, where the cleaner deletes, {_CLEANER}=false in "
        "server.properties (until the limits are raised)"
    )


def _keeping_remote(emptied: Sequence[DueDeletion]) -> str:
    """What keeps segments in remote storage, empty if there are none."""
    tiered = [os.path.basename(each.directory) for each in emptied if each.is_tiered]
    if not tiered:
        return ""
    return (
        f"That does not delay the deletion in remote storage, which nothing reverts: for {shown_path(listed(tiered, _LISTED))}, start all "
        f"brokers with {_UNREAD}, with which nothing is deleted or read there, raise the limit, and start them again without it. "
    )


def _properties_file(request: Request) -> object:
    return request.also.get("--server-properties") or "server.properties"
