"""`kseg groups`: committed offsets and lag of consumer, share and streams groups, and when their offsets went back."""

from typing import Annotated

from kseg.cli.option_schema import FILTER, Option
from kseg.cli.options import CommonOptions, Json, NoNow, OnCluster, Paths, Verbose, time_option
from kseg.cli.topic_evidence import MetadataPath
from kseg.segment.errors import Refused, UsageError
from kseg.segment.storage import places

EXAMPLES = (
    ("Which groups are there, and which ones lag", "kseg groups /var/lib/kafka"),
    ("Everything about one group, for a script", "kseg groups --json --group billing /var/lib/kafka"),
    ("Where a group stood at a time, as a file to reset it with", "kseg groups --group billing --at 2026-11-23T02:00:00Z --reset-csv billing.csv /var/lib/kafka"),
    ("When did the group go back?", "kseg groups --group billing --history /var/lib/kafka"),
)  # fmt: skip


def command(
    *,
    paths: Paths,
    groups: Annotated[
        tuple[str, ...],
        Option("--group", metavar="NAME", help="Only this group; may be repeated.", panel=FILTER),
    ] = (),
    at: Annotated[
        int | None,
        time_option(
            "The state at this time, in epoch milliseconds or ISO 8601: records of __consumer_offsets with a later timestamp do not "
            "count. Default: the end of the log.",
            FILTER,
        ),
    ] = None,
    history: Annotated[bool, Option(help="Also list each commit that set an offset back, and when.")] = False,
    reset_csv: Annotated[
        str | None,
        Option(
            metavar="FILE",
            help="Write the committed offsets to a new file that kafka-consumer-groups.sh --reset-offsets --from-file takes: topic, "
            "partition and offset with one --group, else the group before them.",
        ),
    ] = None,
    metadata: MetadataPath = None,
    json: Json = False,
    common: CommonOptions,
    now: NoNow = None,
    verbose: Verbose = False,
    on: OnCluster,
) -> int:
    """Show groups as their coordinators have them after loading: members, committed offsets, lag, and deletions.

    Reads __consumer_offsets and __share_group_state as a 4.3.1 broker does when it starts: classic, consumer, share
    and streams groups, offsets in transactions, tombstones. A record that such a broker fails to load is an error. The lag is
    relative to the log end of the partitions under PATH. A group is in one partition of __consumer_offsets: when that
    partition is not under PATH, nothing is known about the group, and --group says so. The exit status is 1
    when no requested group is found.
    """
    from kseg.cli.group_evidence import group_evidence
    from kseg.cli.group_stream import GroupRows
    from kseg.cli.render import Style
    from kseg.cli.request import Request
    from kseg.cli.run import over_targets
    from kseg.cli.streams import complain, terminal_columns
    from kseg.cli.text.group_words import groups_words
    from kseg.cli.text.groups import GroupsReport
    from kseg.internal_topics.groups.groups import GroupsOptions, is_group_topic, list_groups
    from kseg.internal_topics.groups.reset_csv import reset_csv as as_csv
    from kseg.segment.new_files import write_new_file
    from kseg.segment.partition.targets import Expansion

    if not paths:
        raise UsageError("kseg groups needs at least one PATH")
    if reset_csv is not None and places.lexists(reset_csv):
        raise Refused(f"{reset_csv} already exists")
    evidence = group_evidence(paths, metadata, at)
    if (evidence.replicas or evidence.unread) and not evidence.chosen:
        raise evidence.nothing_found(
            f"no partition of __consumer_offsets or __share_group_state in {', '.join(paths)}"
        )
    options = GroupsOptions(
        at_ms=at,
        groups=frozenset(groups),
        topics=common.topics,
        partition=common.partition,
        with_history=history,
        as_json=json and reset_csv is None,
        names=evidence.names,
        replicas=evidence.replicas,
        tiered=evidence.tiered,
    )
    asked = tuple(dict.fromkeys(groups))
    rows = GroupRows(evidence, asked, options, keeps_offsets=reset_csv is not None)
    report = GroupsReport(evidence, options, terminal_columns())
    style = Style(
        command="groups",
        json=json,
        **common.shown(),
        findings_are_result=True,
        words=groups_words,
        report=report,
        verbose=verbose,
        missed=(lambda row: row.get("type") == "missing_group") if asked else None,
    )
    status = over_targets(
        list_groups,
        options,
        style,
        expand=Expansion.PARTITIONS,
        request=Request(tuple(paths), cluster=on.cluster(light=True), also={"--metadata": metadata}),
        jobs=common.jobs,
        wanted=lambda target: is_group_topic(target) and target.path in evidence.chosen,
        look=lambda _, options: (options, (*evidence.failures(), *evidence.findings)),
        through=rows.through,
    )
    if reset_csv is not None and rows.is_whole:
        data = as_csv(rows.offsets, is_one_group=len(asked) == 1)
        write_new_file(reset_csv, data)
        if not common.quiet:
            complain(f"kseg groups: {report.reset_words(reset_csv, rows.offsets, asked)}")
    return status
