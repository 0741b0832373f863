"""The steps that need a running broker: change feature levels and topic configurations that 4.3.1 refuses, abort hanging transactions,
and reset groups whose committed offset is outside the log."""

from collections.abc import Iterator
from dataclasses import replace

from kseg.cli.doctor.next_step import NextStep, likewise
from kseg.cli.doctor.situation import ANY_SERVER, Situation
from kseg.cli.next_command import command_line
from kseg.segment.counted import shown_of
from kseg.segment.terminal import shell_quoted, shortened, shown_path, visible

_LISTED = 5  # transactions and groups with a step of their own
_WITH_SNAPSHOT = "with metadata.log.max.record.bytes.between.snapshots=1"
_SNAPSHOT_WRITTEN = "wait until each has a newer .checkpoint file in __cluster_metadata-0"


def set_features(situation: Situation) -> Iterator[NextStep]:
    """A feature level can only be changed by a version of Kafka that supports it, and is replayed until a snapshot
    follows the change."""
    for each in situation.refused_features.values():
        if each.is_past:
            yield NextStep(
                f"The metadata log still sets feature {shown_path(each.name)} to level {each.level}, "
                "which 4.3.1 does not support, before it sets a later one, and a 4.3.1 node fails on that "
                f"record. Start the version that ran here last on all nodes {_WITH_SNAPSHOT}, "
                f"{_SNAPSHOT_WRITTEN}, and then start 4.3.1.",
                f"kafka-features.sh --bootstrap-server {situation.server} describe",
            )
        elif each.is_of_older:
            yield NextStep(
                "The metadata.version of the cluster is older than 3.3-IV3, and a 4.3.1 node does not "
                f"start with it. Start a version from 3.3 to 3.9 on all nodes {_WITH_SNAPSHOT}, raise the "
                f"metadata.version, {_SNAPSHOT_WRITTEN}, and then start 4.3.1.",
                f"kafka-features.sh --bootstrap-server {situation.server} upgrade --metadata 3.3",
            )
        else:
            yield NextStep(
                f"Feature {shown_path(each.name)} has level {each.level}, which 4.3.1 does not support: "
                "a newer version wrote it. Start the version that ran here last.",
                f"kafka-features.sh --bootstrap-server {situation.server} describe",
            )


def remove_configs(situation: Situation) -> Iterator[NextStep]:
    """No tool changes a metadata log offline, so the property has to be removed through a version that starts with it."""
    refused = list(situation.refused_configs.values())
    shown = shown_of(len(refused), _LISTED)
    for each in refused[:shown]:
        yield NextStep(
            f"{each.name}={visible(shortened(each.value))} of topic {shown_path(each.topic)} prevents a "
            "4.3.1 node from starting; older versions allowed it. Start the version that ran here last, "
            "remove or correct the property, and then start 4.3.1.",
            f"kafka-configs.sh --bootstrap-server {situation.server} --alter --entity-type topics "
            f"--entity-name {shell_quoted(each.topic)} --delete-config {each.name}",
        )
    yield from likewise(len(refused) - shown, "property", command_line("metadata", {}, situation.request))


def end_transactions(situation: Situation) -> Iterator[NextStep]:
    shown = shown_of(len(situation.hanging), _LISTED)
    for each in situation.hanging[:shown]:
        if each.abort_command is not None:
            warning = (
                " Its producer had committed it: read_committed consumers never get its records, so export "
                "them before, and produce them again afterwards."
            )
            yield NextStep(
                f"With the broker running, abort the hanging transaction in {each.topic}-{each.partition}."
                f"{warning if each.is_committed else ''}",
                each.abort_command.replace(ANY_SERVER, situation.server),
            )
    command = command_line("transactions", {"--verbose": True}, situation.request)
    yield from likewise(len(situation.hanging) - shown, "transaction", command, "list the command for each")
    yield from _save_lost_commits(situation, command)


def _save_lost_commits(situation: Situation, listing: str) -> Iterator[NextStep]:
    lost = situation.lost_commits
    shown = shown_of(len(lost), _LISTED)
    for each in lost[:shown]:
        partition = f"{each.topic}-{each.partition}"
        options = {
            "--to": "json",
            "--producer-id": str(each.producer_id),
            "--from-offset": str(each.first_offset),
            "--to-offset": str(each.last_offset + 1),
            "--output": f"{partition}-{each.first_offset}",
        }
        yield NextStep(
            f"The transaction in {partition} from offset {each.first_offset} was committed, but its coordinator has lost the decision and aborts "
            "it: read_committed consumers never get its records then. Export them, and produce them again.",
            command_line(
                "export", options, replace(situation.request, paths=(each.path,), topics=(), partition=None)
            ),
        )
    yield from likewise(len(lost) - shown, "transaction", listing)


def set_groups(situation: Situation) -> Iterator[NextStep]:
    """A consumer whose committed offset is outside the log falls back to auto.offset.reset, which may skip or repeat everything."""
    by_topic: dict[tuple[str, str], list[int]] = {}
    for each in situation.stranded:
        by_topic.setdefault((each.group, each.topic), []).append(each.partition)
    shown = shown_of(len(by_topic), _LISTED)
    for (group, topic), numbers in list(by_topic.items())[:shown]:
        partitions = ",".join(map(str, sorted(numbers)))
        yield NextStep(
            f"With the broker running and the group's consumers stopped, preview where {group} would "
            f"resume in {topic}; then replace --dry-run by --execute.",
            f"kafka-consumer-groups.sh --bootstrap-server {situation.server} --group {shell_quoted(group)} "
            f"--topic {topic}:{partitions} --reset-offsets --to-latest --dry-run",
        )
    yield from likewise(len(by_topic) - shown, "group", command_line("groups", {}, situation.request))
