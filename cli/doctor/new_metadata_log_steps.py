"""The steps for a node whose metadata log is lost everywhere: it is the only controller, and no broker or backup has a copy.

Topics and their ids, configurations, ACLs and SCRAM credentials are gone. The records are not: a broker serves them again once their
topics exist and their directories have the ids of these topics (each step observed with 4.3.1, tests/kafka/test_new_metadata_log.py):

1. Start a node with the same node and cluster id and an empty data directory. It creates a new metadata log, and sets nothing aside as
   stray.
2. Create the topics there, with the same number of partitions and without retention, since their configurations are lost.
3. Move its metadata log into the data directory, together with its meta.properties, whose directory id the new log contains.
4. Follow the steps of `kseg doctor` that give each partition the id of its new topic.
"""

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from kseg.cli.doctor.next_step import NextStep, likewise
from kseg.cli.next_command import command_line
from kseg.cli.request import Request
from kseg.segment.counted import shown_of
from kseg.segment.partition.directory import own_partition_name
from kseg.segment.partition.names import (
    INTERNAL_TOPICS,
    METADATA_DIRECTORY,
    NAME_BY_ROLE,
    PartitionState,
    Role,
)
from kseg.segment.partition.targets import PartitionTarget, Target
from kseg.segment.terminal import shell_quoted, shell_word

_LISTED = 5  # topics with a step of their own
# otherwise the default retention of a broker would delete what a topic was configured to keep
_KEPT = "retention.ms=-1"
_INTERNAL = "cleanup.policy=compact"
_PROPERTIES = "new.properties"


def topics_in(targets: Sequence[Target]) -> dict[str, int]:
    """The number of partitions of each topic, as far as the directories show it."""
    topics: dict[str, int] = {}
    names = (own_partition_name(target.path) for target in targets if isinstance(target, PartitionTarget))
    for name in names:
        if name is not None and name.state is PartitionState.LIVE and not name.is_metadata_log:
            topics[name.topic] = max(topics.get(name.topic, 0), name.partition + 1)
    return topics


def new_log_steps(
    log_dir: str, topics: Mapping[str, int], cluster_id: str | None, server: str, flags: str, request: Request
) -> Iterator[NextStep]:
    """topics: the partition count of each, as far as the directories show it. server: HOST:PORT for clients. flags: options of
    `kafka-storage.sh format` for the quorum."""
    made = f"{os.path.abspath(log_dir)}-new"
    dirs = shell_quoted(rf"s#^(log\.dirs?|metadata\.log\.dir)=.*#\1={made}#")
    yield _step(
        "If it is lost everywhere and this node is the only controller, create a new one. "
        "Configurations, ACLs and credentials are then lost; the records are not. First, write the "
        f"properties of a node with an empty data directory, {made}.",
        f"sed -E {dirs} server.properties > {_PROPERTIES}",
    )
    yield _step(
        f"Format it{'' if flags else ' (with --standalone if controller.quorum.voters is not set)'}.",
        format_command(cluster_id, _PROPERTIES, flags),
    )
    yield _step("Start it.", f"kafka-server-start.sh -daemon {_PROPERTIES}")
    yield from _topic_steps(topics, server, request)
    yield _step("Stop it.", "kafka-server-stop.sh")
    moved = (METADATA_DIRECTORY, NAME_BY_ROLE[Role.META_PROPERTIES])
    paths = " ".join(shell_quoted(os.path.join(made, name)) for name in moved)
    yield _step(
        "Move the new log into the data directory, together with the meta.properties that has its directory id.",
        f"mv {paths} {shell_quoted(os.path.join(log_dir, ''))}",
    )
    yield _step(
        "Run doctor again for the steps that give the partitions the ids of the new topics; then start "
        "the node with its own server.properties.",
        command_line("doctor", {}, request),
    )


def format_command(cluster_id: str | None, properties: str, *flags: str) -> str:
    """cluster_id: None where the user has to look it up."""
    cluster = "CLUSTER-ID" if cluster_id is None else shell_word(cluster_id)
    words = ("kafka-storage.sh format", *filter(None, flags), f"--cluster-id {cluster} --config {properties}")
    return " ".join(words)


def _topic_steps(topics: Mapping[str, int], server: str, request: Request) -> Iterator[NextStep]:
    shown = shown_of(len(topics), _LISTED)
    first = (
        "{} with the number of partitions found here (there may have been more), and with each --config that it had; "
        f"{_KEPT} keeps its records until its retention is set again"
    )
    in_order = sorted(topics, key=lambda topic: topic in INTERNAL_TOPICS)
    for number, topic in enumerate(in_order[:shown]):
        words = "{} in the same way" if number else first
        config = _INTERNAL if topic in INTERNAL_TOPICS else _KEPT
        yield _step(
            f"Create {words.format(topic)}.",
            f"kafka-topics.sh --bootstrap-server {server} --create --topic {shell_word(topic)} "
            f"--partitions {topics[topic]} --replication-factor 1 --config {config}",
        )
    command = command_line("list", {"--partitions": True}, request)
    yield from (replace(step, is_due=False) for step in likewise(len(topics) - shown, "topic", command))


def _step(why: str, command: str) -> NextStep:
    """Not due, because these steps are only for a log of which no copy exists."""
    return NextStep(why, command, is_due=False)
