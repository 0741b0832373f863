"""`kseg list`: the inventory."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import chain
from typing import TYPE_CHECKING, Annotated

from kseg.cli.option_schema import Option
from kseg.cli.options import CommonOptions, Html, Json, Now, OnCluster, Paths, Verbose
from kseg.segment.errors import UsageError

if TYPE_CHECKING:
    from kseg.cli.request import Request
    from kseg.jobs.events import Event
    from kseg.segment.partition.targets import Target

# Listing a partition from the ends of its log takes 0.15 ms, starting a process 50 ms.
_WORTH_A_PROCESS = 1000

EXAMPLES = (
    ("What is in a data directory", "kseg list /var/lib/kafka"),
    ("The same for a script", "kseg list --json /var/lib/kafka"),
    ("The largest topics first", "kseg list --sort size /var/lib/kafka"),
    ("The partitions of a topic, with exact numbers", "kseg list --partitions --count --topic orders /var/lib/kafka"),
    ("Where consumer groups lag most", "kseg list --groups --sort lag /var/lib/kafka"),
    ("Every file", "kseg list --verbose orders-0"),
    ("What is in tiered storage, and is anything missing", "kseg list --remote /var/lib/kafka"),
)  # fmt: skip


def command(
    *,
    paths: Paths,
    by_partition: Annotated[
        bool, Option("--partitions", help="Print one line per partition instead of one per topic.")
    ] = False,
    sort: Annotated[
        str,
        Option(
            choices=("name", "size", "time", "records", "lag"),
            help="Sort by this column, largest first; by lag with --groups.",
        ),
    ] = "name",
    count: Annotated[
        bool | None,
        Option(
            help=(
                "Read every batch header, for exact numbers of records. Default: with --json and "
                "--verbose only; without, records are estimated from the offsets, and only the ends of "
                "each log are read."
            )
        ),
    ] = None,
    remote: Annotated[
        bool,
        Option(
            help=(
                "Show tiered storage, from __remote_log_metadata under PATH: which offsets of each "
                "partition are local, remote, both or missing, and which uploads dangle."
            )
        ),
    ] = False,
    groups: Annotated[
        bool,
        Option(
            help="Also show how far behind groups are in each partition, from their commits to __consumer_offsets."
        ),
    ] = False,
    json: Json = False,
    html: Html = None,
    common: CommonOptions,
    now: Now = None,
    verbose: Verbose = False,
    on: OnCluster,
) -> int:
    """List topics: a line for each, with its size, its records and its time range.

    With --verbose or --json every file with its kind, and for each partition segments, bytes, offsets, time range, codecs,
    leader epochs, last stable offset, open transactions and missing side files. Unknown files are listed too.
    """
    if remote:
        if by_partition or sort != "name" or count is not None or groups:
            raise UsageError("--remote excludes --partitions, --sort, --count and --groups")
        request = common.request(paths, on.cluster(light=True))
        return _list_remote(request, json, html, common, verbose)
    from kseg.cli.group_evidence import committed_offsets
    from kseg.cli.placement_evidence import doubts_of_metadata_logs, replicas_missing, topic_names
    from kseg.cli.render import Style
    from kseg.cli.run import clock_ms, over_targets, page_for
    from kseg.cli.streams import terminal_columns
    from kseg.cli.text.list import ListReport, inventory_words, sums_first, with_topic_names
    from kseg.cli.topic_evidence import finder_for
    from kseg.inspection.inventory import list_target
    from kseg.inspection.query import ListOptions
    from kseg.segment.partition.targets import Expansion, PartitionTarget

    if sort == "lag" and not groups:
        raise UsageError("--sort lag requires --groups")
    if groups and not paths:
        raise UsageError("kseg list needs at least one PATH")
    is_full = json or verbose or html is not None
    now_ms = clock_ms(now)
    offsets, unread = committed_offsets(paths) if groups else (None, [])
    options = ListOptions(
        now_ms=now_ms,
        count=is_full if count is None else count,
        files=is_full,
        shapes=html is not None,
        groups=offsets,
    )
    style = Style(
        command="list",
        json=json,
        **common.shown(),
        words=inventory_words,
        report=ListReport(by_partition, sort, options.count, terminal_columns()),
        verbose=verbose,
        page=page_for(html, "list", now_ms),
    )

    names: dict[str, str] = {}

    def look(targets: "Sequence[Target]", options: ListOptions) -> "tuple[ListOptions, tuple[Event, ...]]":
        finder = finder_for(targets, None)
        names.update(topic_names(targets, finder))
        is_table = sum(isinstance(target, PartitionTarget) for target in targets) > 1
        options = replace(options, is_brief=is_table and not is_full and not options.count)
        doubts = doubts_of_metadata_logs(targets, finder)
        return options, (*unread, *doubts, *chain.from_iterable(replicas_missing(targets, finder).values()))

    def through(events: "Iterator[Event]") -> "Iterator[Event]":
        named = with_topic_names(events, names)
        return named if json else sums_first(named)

    return over_targets(
        list_target,
        options,
        style,
        expand=Expansion.INVENTORY,
        request=common.request(paths, on.cluster(light=True)),
        jobs=common.jobs,
        confirms=True,
        through=through,
        look=look,
        worth_a_process=None if is_full or options.count else _WORTH_A_PROCESS,
    )


def _list_remote(
    request: "Request", json: bool, html: str | None, common: CommonOptions, verbose: bool
) -> int:
    """Show what is in tiered storage."""
    from kseg.cli.render import Style, show
    from kseg.cli.run import clock_ms, notice, page_for, workers
    from kseg.cli.run_summary import RunSummary
    from kseg.cli.streams import terminal_columns
    from kseg.cli.text.remote import RemoteReport, remote_words
    from kseg.internal_topics.broker_directories import find_broker_directories
    from kseg.internal_topics.remote_log.remote_listing import (
        RemoteOptions,
        RemoteTarget,
        list_remote,
        topic_partitions,
    )

    paths = request.paths
    if not paths:
        raise UsageError("kseg list needs at least one PATH")
    style = Style(
        command="list",
        json=json,
        **common.shown(),
        words=remote_words,
        report=RemoteReport(terminal_columns()),
        verbose=verbose,
        findings_are_result=True,
        remains=_has_missing,
        request=request,
        page=page_for(html, "list", clock_ms()),
    )
    tally = RunSummary(1)
    directories = find_broker_directories(paths)
    target = RemoteTarget(", ".join(paths), directories)
    over = workers(request.cluster, 1, notice(style))
    options = RemoteOptions(request.topics, request.partition)
    events = over(list_remote, [target], options, finished=tally.finish_target)
    return show(events, style, [each.path for each in topic_partitions(directories)], tally)


def _has_missing(row: Mapping[str, object]) -> bool:
    """Whether offsets of a partition are neither local nor remote."""
    return bool(row.get("missing_offsets"))
