"""`kseg metadata`: the controller's decisions, and whether the directories on disk agree with them."""

from collections.abc import Mapping
from typing import Annotated, Any

from kseg.cli.option_schema import FILTER, Option
from kseg.cli.options import (
    Json,
    NoJobs,
    NoNow,
    NoProgress,
    OnCluster,
    Partition,
    Paths,
    Quiet,
    Topics,
    Verbose,
    node_option,
    offset_option,
    time_option,
)
from kseg.segment.errors import UsageError

EXAMPLES = (
    ("What belongs on this broker's disks, and what is there", "kseg metadata /var/lib/kafka"),
    ("Who deleted the topic, and when", "kseg metadata --history --topic orders /var/lib/kafka"),
    ("Which partitions did broker 3 hold before it died", "kseg metadata --node 3 --at 2026-11-21T09:00:00Z /var/lib/kafka"),
    ("Everything about one topic", "kseg metadata --topic orders /var/lib/kafka"),
    ("All ACLs", "kseg metadata --kind acl /var/lib/kafka"),
    ("The state as of an offset, for a script", "kseg metadata --json --offset 68 __cluster_metadata-0"),
)  # fmt: skip


def command(
    *,
    paths: Paths,
    at: Annotated[
        int | None,
        time_option(
            "The state at this time: every batch with a timestamp up to it. Default: the end of the log.",
            FILTER,
        ),
    ] = None,
    offset: Annotated[
        int | None, offset_option("The state after the record with this offset of the metadata log.", FILTER)
    ] = None,
    history: Annotated[
        bool,
        Option(
            help="Show the changes with their offsets and times instead of the state, as far back as the log reaches."
        ),
    ] = False,
    kinds: Annotated[
        tuple[str, ...],
        Option(
            "--kind",
            metavar="KIND",
            choices=(
                *("feature", "broker", "controller", "topic", "partition", "config", "quota", "acl"),
                *("scram", "token", "removed_topic", "directory"),
            ),
            help="Only entries of this kind: feature, broker, controller, topic, partition, config, quota, acl, scram, token, "
            "removed_topic or directory. May be repeated.",
            panel=FILTER,
        ),
    ] = (),
    topics: Topics = (),
    partition: Partition = None,
    node: Annotated[int | None, node_option("Only partitions with a replica on this broker.", FILTER)] = None,
    show_secrets: Annotated[
        bool,
        Option(help="Print passwords and other sensitive configurations, and the keys of SCRAM credentials."),
    ] = False,
    json: Json = False,
    now: NoNow = None,
    jobs: NoJobs = None,
    quiet: Quiet = False,
    verbose: Verbose = False,
    no_progress: NoProgress = False,
    on: OnCluster,
) -> int:
    """Show the cluster's metadata from its log: topics, partitions, configurations, brokers, access, and the replicas on disk.

    Reads __cluster_metadata-0, snapshot and log together, at its end or at an earlier place, and compares the
    partition directories under PATH with it: known, deleted, stray, future, missing. A directory or file of a metadata log is
    enough as PATH. The exit status is 1 when a partition is missing, or the metadata log is damaged.
    """
    if at is not None and offset is not None:
        raise UsageError("--at and --offset are mutually exclusive")
    if history and kinds:
        raise UsageError("--history and --kind are mutually exclusive")
    from kseg.cli.render import Style, show
    from kseg.cli.request import Request
    from kseg.cli.run import notice, workers
    from kseg.cli.run_summary import RunSummary
    from kseg.cli.streams import complain, terminal_columns
    from kseg.cli.text.metadata import MetadataReport, metadata_words, tabulated
    from kseg.internal_topics.broker_directories import find_broker_directories
    from kseg.internal_topics.metadata.describe import MetadataOptions, MetadataTarget, describe_metadata
    from kseg.internal_topics.metadata.metadata_place import AsOf

    if not paths:
        raise UsageError("kseg metadata needs at least one PATH")
    as_of = None if at is None and offset is None else AsOf(offset, at)
    options = MetadataOptions(
        as_of=as_of,
        history=history,
        topics=topics,
        partition=partition,
        kinds=kinds,
        node=node,
        show_secrets=show_secrets,
    )
    is_narrow = bool(kinds) or bool(topics) or partition is not None or node is not None
    is_table = is_narrow and not history and not json
    found: set[str] = set()  # types of the lines in the table

    def in_table(row: Mapping[str, Any]) -> Mapping[str, Any] | None:
        line = tabulated(row)
        if line is not None:
            found.add(row["type"])
        return line

    style = Style(
        command="metadata",
        json=json,
        quiet=quiet,
        progress=not no_progress,
        table=is_table,
        tabulated=in_table if is_table else None,
        words=metadata_words,
        remains=_is_wrong,
        report=None if is_table else MetadataReport(terminal_columns(), is_narrow=is_narrow),
        verbose=verbose,
        findings_are_result=True,
        request=Request(tuple(paths), topics, partition),
    )
    tally = RunSummary(1, errors_settle=True)
    cluster = on.cluster(light=True)
    target = MetadataTarget(", ".join(paths), find_broker_directories(paths))
    over = workers(cluster, 1, notice(style))
    events = over(describe_metadata, [target], options, finished=tally.finish_target)
    status = show(events, style, paths, tally)
    if is_table and not found and not quiet and not tally.targets_failed:
        complain("kseg metadata: no entry matches")
    return status


def _is_wrong(row: Mapping[str, object]) -> bool:
    """Whether a row makes the exit status 1: a missing partition, or a metadata log that cannot be read to its end."""
    if row["type"] == "directory":
        return row["status"] == "missing"
    return row["type"] == "metadata" and row["certain"] is False
