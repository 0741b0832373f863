"""Committed offsets that a coordinator deletes soon after a start: which logs show this, and the steps for groups that lose offsets.

The offsets of a group that was empty when its broker stopped, or in a backup, age meanwhile: those older than offsets.retention.minutes are
deleted 10 minutes after the coordinator has loaded them, and consumers that start later fall back to auto.offset.reset
(`internal_topics.groups.offset_expiry`).
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from kseg.cli.doctor.next_step import NextStep
from kseg.cli.next_command import command_line
from kseg.cli.request import Request
from kseg.cli.text.amounts import rough_duration_words
from kseg.internal_topics.groups.offset_expiry import ExpiringOffsets, ExpiryCheck
from kseg.segment.counted import counted, listed
from kseg.segment.java.java_text import INT_BITS, LONG_BITS, parse_integer
from kseg.segment.partition.directory import own_partition_name
from kseg.segment.partition.targets import PartitionTarget, log_dir_of
from kseg.segment.terminal import shell_quoted, shown_path, visible

if TYPE_CHECKING:
    from kseg.internal_topics.metadata.metadata_finder import MetadataFinder

RETENTION_MINUTES = "offsets.retention.minutes"
_CHECK_INTERVAL = "offsets.retention.check.interval.ms"
CSV_FILE = "offsets.csv"
_DEFAULT_MINUTES = 7 * 24 * 60
_DEFAULT_CHECK_MS = 600_000
_MINUTE_MS = 60_000
_MOST_MINUTES = (1 << 31) - 1
_LISTED = 5
_NAMED = 20  # groups in a command


def expiry_check(
    targets: Sequence[PartitionTarget],
    server: Mapping[str, str] | None,
    finder: "MetadataFinder",
    now_ms: int,
) -> ExpiryCheck | None:
    """How to look for expiring offsets; None if a broker does not start with the properties.

    targets: the partitions that brokers load as they are. server: server.properties, None if it was not given. Dynamic properties do not
    count (Kafka: GroupCoordinatorConfig.RECONFIGURABLE_CONFIGS does not have it).
    """
    minutes = _number(server, RETENTION_MINUTES, _DEFAULT_MINUTES, INT_BITS)
    after_ms = _number(server, _CHECK_INTERVAL, _DEFAULT_CHECK_MS, LONG_BITS)
    if minutes is None or after_ms is None:
        return None
    paths = frozenset(target.path for target in targets if _may_lead(target, finder))
    return ExpiryCheck(now_ms, minutes * _MINUTE_MS, server is None, paths, after_ms)


def _number(server: Mapping[str, str] | None, name: str, default: int, bits: int) -> int | None:
    """A property of at least 1; None if the broker would not start with it."""
    text = (server or {}).get(name)
    number = default if text is None else parse_integer(text.strip(), bits)
    return None if number is None or number < 1 else number


def _may_lead(target: PartitionTarget, finder: "MetadataFinder") -> bool:
    """Whether the node of a directory is in sync. A replica that is not copies its leader, which may have kept running."""
    log_dir, name = log_dir_of(target), own_partition_name(target.path)
    image = finder.image_for(log_dir)
    if image is None or name is None:
        return True
    topic = image.topics.get(image.id_by_name.get(name.topic, ""))
    partition = None if topic is None else topic.partitions.get(name.partition)
    node_id = finder.node_of(log_dir).node_id
    return partition is None or node_id is None or not partition.isr or node_id in partition.isr


def keep_offsets(
    found: Sequence[ExpiringOffsets], check: ExpiryCheck, request: Request
) -> Iterator[NextStep]:
    """The steps for groups that lose offsets in topics that exist: nobody but the user knows whether they are still wanted."""
    wanted = [each for each in found if each.is_of_topics]
    if not wanted:
        return
    names = [each.group for each in wanted]
    named = tuple(names) if len(names) <= _NAMED else ()
    partly = [each.group for each in wanted if each.needs_return]
    if_others = (
        f" (those of {visible(listed(partly, _LISTED, 'group'))} only if consumers of other topics are back by then)"
        if partly
        else ""
    )
    yield NextStep(
        f"A coordinator deletes committed offsets of {visible(listed(names, _LISTED, 'group'))} {rough_duration_words(check.after_ms / 1000)} "
        f"after it has loaded them, because they are older than {RETENTION_MINUTES}{if_others}. Consumers that subscribe and are back by then keep "
        "theirs; later ones start where auto.offset.reset says, and repeat or skip everything. Save the offsets: kafka-consumer-groups.sh restores them, but not before the "
        "coordinator has deleted the old ones; until then it would delete the new ones with them.",
        command_line(
            "groups", {"--reset-csv": CSV_FILE, "--group": named}, replace(request, topics=(), partition=None)
        ),
        is_due=False,
    )
    oldest = [each.oldest_ms for each in wanted if each.oldest_ms is not None]
    if not oldest:
        return
    file = str(request.also.get("--server-properties") or "server.properties")
    own = sum(each.of_own_expiry for each in wanted)
    but = (
        f" (which does not keep {counted(own, 'offset')} with an expiry of their own, as old clients set it: restore them from {CSV_FILE})"
        if own
        else ""
    )
    yield NextStep(
        f"If the groups are still wanted, start with a longer {RETENTION_MINUTES} in {shown_path(file)} of every broker{but}; remove the line "
        "once their consumers have committed.",
        f"printf '\\n{RETENTION_MINUTES}=%s\\n' {_minutes_to_keep(min(oldest), check)} >> {shell_quoted(file)}",
        is_due=False,
    )


def _minutes_to_keep(oldest_ms: int, check: ExpiryCheck) -> int:
    """A retention that keeps the oldest offset as long as one that is committed now."""
    minutes = math.ceil((check.now_ms - oldest_ms + check.retention_ms) / _MINUTE_MS)
    return min(minutes, _MOST_MINUTES)
