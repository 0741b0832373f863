"""Compacted topics that grow without end because no cleaner cleans them: the rows, and the steps.

What 4.3.1 does (observed): the cleaner fails, the broker's log says "Marking its partition (…) as uncleanable" once, the metric
kafka.log:type=LogCleanerManager,name=uncleanable-partitions-count counts the partition, and nothing cleans it before the next start, after
which it fails again. It fails at a batch with negative timestamps that loses some of its records: such batches are accepted, but the
cleaner cannot write them. A compaction by kseg can, and the cleaner continues after it.
"""

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from kseg.cli.doctor.next_step import NextStep
from kseg.cli.next_command import command_line
from kseg.cli.request import Request
from kseg.cli.text.amounts import size_words
from kseg.cli.topic_evidence import Asked, topic_settings
from kseg.compaction.cleaner.options import CleanSettings, CompactOptions
from kseg.compaction.cleaner.uncleaned import DEFAULT_MIN_CLEANABLE_DIRTY_RATIO, Cause, Uncleaned, uncleaned
from kseg.jobs.events import Event, Row
from kseg.segment.counted import listed
from kseg.segment.partition.targets import PartitionTarget
from kseg.segment.terminal import shown_path

if TYPE_CHECKING:
    from kseg.internal_topics.metadata.metadata_finder import MetadataFinder

_LISTED = 5
_MOST_PATHS = 8  # of a command; with more it names the paths of the run


def uncleaned_logs(
    targets: Sequence[PartitionTarget],
    asked: Asked,
    finder: "MetadataFinder | None",
    over: Callable[..., Iterator[Event]],
    now_ms: int,
) -> Iterator[Uncleaned]:
    """The partitions of compacted topics that no cleaner has cleaned for a day although they were due, in order. asked: the evidence.
    over: runs work on targets."""
    topics, _ = topic_settings(targets, asked, finder)
    wanted = [target for target in targets if "compact" in topics[target.path].policies]
    settings = CleanSettings(now_ms=now_ms, min_cleanable_dirty_ratio=DEFAULT_MIN_CLEANABLE_DIRTY_RATIO)
    options = CompactOptions(settings=settings, topics=topics)
    for event in over(uncleaned, wanted, options) if wanted else ():
        if isinstance(event, Row) and isinstance(event.result, Uncleaned):
            yield event.result


def uncleaned_row(log: Uncleaned) -> dict[str, object]:
    return {
        "type": "uncleaned",
        "partition": os.path.basename(log.directory),
        "path": log.directory,
        "cause": log.cause.value,
        "bytes": log.size_bytes,
        "dirty_bytes": log.dirty_bytes,
        "freed_bytes": log.freed_bytes,
        "first_dirty_offset": log.first_dirty_offset,
        "last_stable_offset": log.held_at,
        "dirty_since": log.dirty_since_ms,
        "last_written": log.last_written_ms,
    }


def clean_logs(found: Sequence[Uncleaned], request: Request) -> Iterator[NextStep]:
    """The steps before a start, by cause. What an open transaction holds back is cleaned once that has ended."""
    negative = [each for each in found if each.cause is Cause.NEGATIVE_TIMESTAMPS]
    if negative:
        yield NextStep(
            f"{_names(negative)} grows until this is done: a broker's cleaner fails at records with negative timestamps, marks the partition as "
            "uncleanable, and fails again after each start. kseg compacts it while no broker runs, and the broker's cleaner continues from "
            "there, unless a batch that keeps several such records later loses some of them: then repeat this. Until then retention does not "
            "delete from it either, if its cleanup.policy has delete, except after a start until the cleaner has failed. With "
            "message.timestamp.before.max.ms=315360000000 (10 years) for the topic, a broker rejects more of them. "
            f"{_freed_words(negative)}",
            _compact(negative, request, {"--apply": True}),
        )
    future = [each for each in found if each.cause is Cause.FUTURE_TIMESTAMPS]
    if future:
        yield NextStep(
            f"{_names(future)} grows until this is done: records have timestamps in the future, and a cleaner stops at the first segment that is not "
            "older than min.compaction.lag.ms by its timestamps. kseg compacts it without this limit while no broker runs; on a running one "
            "min.compaction.lag.ms=0 for the topic does so (kafka-configs.sh). With message.timestamp.after.max.ms=3600000 (an hour) for the "
            f"topic, a broker rejects more of them. {_freed_words(future)}",
            _compact(future, request, {"--apply": True, "--min-compaction-lag-ms": "0"}),
        )
    unknown = [each for each in found if each.cause is Cause.UNKNOWN]
    if unknown:
        yield NextStep(
            f'No cleaner has cleaned {_names(unknown)} for a day, although it was due. See whether the broker\'s log has "Marking its partition" or '
            "an error of kafka-log-cleaner-thread, whether log.cleaner.enable is false, and whether the metric DeadThreadCount of the LogCleaner "
            f"is 0. See what a compaction would do. {_freed_words(unknown)}",
            _compact(unknown, request, {}),
            is_due=False,
        )


def _names(found: Sequence[Uncleaned]) -> str:
    return shown_path(listed([os.path.basename(each.directory) for each in found], _LISTED))


def _freed_words(found: Sequence[Uncleaned]) -> str:
    return f"It frees {size_words(sum(each.freed_bytes for each in found))}."


def _compact(found: Sequence[Uncleaned], request: Request, given: Mapping[str, object]) -> str:
    if len(found) <= _MOST_PATHS:
        request = replace(request, paths=tuple(each.directory for each in found), topics=(), partition=None)
    return command_line("compact", {**given, "--first-dirty-offset": "checkpoint"}, request)
