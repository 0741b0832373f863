"""`kseg retain`: what a broker's retention would delete, and why; mark, purge, or restore it."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated

from kseg.cli.change_options import (
    CHANGE,
    InPlaceOptions,
    change,
    change_style,
    command_to_apply,
    look_at_settings,
    options_of_change,
)
from kseg.cli.option_schema import Option
from kseg.cli.options import (
    CommonOptions,
    Html,
    Json,
    Now,
    OnCluster,
    Paths,
    Verbose,
    duration_option,
    offset_option,
    refuse_read_only,
    size_option,
)
from kseg.cli.topic_evidence import CleanupPolicy, MetadataPath, ServerProperties, TopicProperties
from kseg.segment.errors import UsageError
from kseg.segment.quantities import read_duration, read_size

if TYPE_CHECKING:
    from kseg.segment.findings import Finding
    from kseg.segment.partition.targets import Target
    from kseg.segment.partition.topic_settings import TopicSettings

EXAMPLES = (
    (
        "What each topic's own retention would delete, and why the rest stays",
        "kseg retain --server-properties server.properties /var/lib/kafka",
    ),
    (
        "What seven days would delete of one topic",
        "kseg retain --retention-ms 7d --topic orders /var/lib/kafka",
    ),
    (
        "Mark for deletion what is above 50 GiB in each partition of one topic",
        "kseg retain --retention-bytes 50GiB --topic orders --apply /var/lib/kafka",
    ),
    (
        "A partition without its metadata log: state the policy",
        "kseg retain --cleanup-policy delete --retention-ms 7d /mnt/copy/orders-0",
    ),
    ("Free the space of what was marked a minute ago", "kseg retain --purge --apply /var/lib/kafka"),
    (
        "Which segments to delete to free 50 GiB, and the equivalent limits",
        "kseg retain --free 50GiB /var/lib/kafka",
    ),
    ("Restore what was marked", "kseg retain --unmark --apply orders-0"),
    ("What other limits would free", "kseg retain --what-if orders-0"),
    ("With the properties of the topic", "kseg retain --config orders.properties orders-0"),
)

LIMITS = "Limits"
BROKER = "State of the log"


def _read_limit_duration(text: str) -> int:
    """A duration, or -1 for no limit."""
    return -1 if text == "-1" else read_duration(text)


def _read_limit_size(text: str) -> int:
    """A size, or -1 for no limit."""
    return -1 if text == "-1" else read_size(text)


def command(
    *,
    paths: Paths,
    retention_ms: Annotated[
        int | None,
        Option(
            metavar="DURATION",
            read=_read_limit_duration,
            help="Delete segments whose newest record is older than this; -1 is no limit. Default: the topic's "
            "configuration.",
            panel=LIMITS,
        ),
    ] = None,
    retention_bytes: Annotated[
        int | None,
        Option(
            metavar="SIZE",
            read=_read_limit_size,
            help="Delete the oldest segments while at least this much remains; -1 is no limit. Default: the topic's configuration.",
            panel=LIMITS,
        ),
    ] = None,
    log_start_offset: Annotated[
        int | None,
        offset_option(
            "Raise the log start offset to N first; segments entirely below it are deleted.", LIMITS
        ),
    ] = None,
    cleanup_policy: CleanupPolicy = None,
    config: TopicProperties = None,
    free: Annotated[
        int | None,
        size_option(
            "Choose what to delete so that each file system gains this much: over all topics that may be deleted from, the "
            "oldest segments first, never active ones. Not with --spark: the choice needs the segments of all partitions at "
            "once, and each task of a cluster sees one.",
            LIMITS,
        ),
    ] = None,
    what_if: Annotated[bool, Option(help="Also show what other limits would free.", panel=LIMITS)] = False,
    in_place: InPlaceOptions,
    purge: Annotated[
        bool, Option(help="Permanently delete files that were marked long enough ago.", panel=CHANGE)
    ] = False,
    file_delete_delay_ms: Annotated[
        int | None,
        duration_option("How long a file must be marked before --purge deletes it. Default: 60000.", CHANGE),
    ] = None,
    unmark: Annotated[
        bool, Option(help="Restore segments that are marked and not purged.", panel=CHANGE)
    ] = False,
    metadata: MetadataPath = None,
    server_properties: ServerProperties = None,
    high_watermark: Annotated[
        int | None,
        offset_option(
            "The high watermark; nothing at or above it is deleted. Default: the data directory's checkpoint, else the log end.",
            BROKER,
        ),
    ] = None,
    json: Json = False,
    html: Html = None,
    common: CommonOptions,
    now: Now = None,
    verbose: Verbose = False,
    on: OnCluster,
) -> int:
    """Delete what a broker's retention would delete, offline: the plan first, with the reason for each segment.

    Segments go from the oldest on, whole ones only, as long as they are below the log start offset, above the size
    limit, or older than the time limit; the first one that stays keeps all after it. Each topic's own cleanup.policy and
    limits count, as the metadata log has them; options here override the limits, but not the policy,
    which only --cleanup-policy and --config override. A topic with an unknown policy is left alone, and nothing is deleted for an
    unknown limit. With tiered storage the limits are those of local.retention, only segments that are known to be in remote storage are
    deleted, and the log keeps its start. --free chooses by bytes instead: the oldest segments of all topics with delete in their policy.
    With --apply the files are marked with .deleted, as a broker does first; --purge deletes what was marked a while ago (alone, without a
    limit, it marks nothing more); until then --unmark, or `kseg undo`, brings it back. Files of Kafka 0.7 go by their modification time and
    size.
    """
    refuse_read_only("retain", paths)
    if unmark and (purge or what_if or retention_ms is not None or retention_bytes is not None or config):
        raise UsageError("--unmark excludes limits, --purge and --what-if")
    if free is not None and (not free or unmark or what_if or log_start_offset is not None):
        raise UsageError(
            "--free takes a positive number of bytes and excludes --unmark, --what-if and --log-start-offset"
        )
    from kseg.cli.html.html_option import page_for
    from kseg.cli.next_command import plan_options
    from kseg.cli.remote_evidence import with_remote_ends
    from kseg.cli.run import clock_ms
    from kseg.cli.streams import complain
    from kseg.cli.text.retain import RetainReport, is_due, retain_words
    from kseg.cli.topic_evidence import Asked, topic_settings
    from kseg.compaction.retention.options import (
        POLICY_NAMES,
        Limits,
        RetainOptions,
        configured_delay_ms,
        configured_limits,
        notes_on,
    )
    from kseg.compaction.retention.retain import retain_group
    from kseg.compaction.retention.run import RetainRun

    plan = plan_options("retain", locals())
    pairs: Mapping[str, str] = {}
    if config is not None:
        from kseg.compaction.config import TopicConfig

        properties = TopicConfig.read(config)
        configured_limits(properties)  # settings that no broker accepts are refused before anything is read
        configured_delay_ms(properties)
        pairs = properties.pairs
        for note in notes_on(properties) if not common.quiet else ():
            complain(f"kseg retain: {note}")
    now_ms = clock_ms(now)
    cluster = on.cluster()
    if free is not None and cluster is not None:
        raise UsageError("--free chooses over all topics together, which --spark does not do")
    request = common.request(paths, cluster)
    says_more = (
        free,
        retention_ms,
        retention_bytes,
        log_start_offset,
        cleanup_policy,
        config,
        server_properties,
    )
    options = RetainOptions(
        limits=Limits(),
        now_ms=now_ms,
        log_start_offset=log_start_offset,
        high_watermark=high_watermark,
        is_policy_given=cleanup_policy is not None or any(name in pairs for name in POLICY_NAMES),
        free_bytes=free,
        purge=purge,
        purge_only=purge and not what_if and all(said is None for said in says_more),
        unmark=unmark,
        what_if=what_if,
        **options_of_change(in_place, cluster),
    )
    run = RetainRun(options)
    # the delay protects readers of a running broker; freeing a disk does not wait
    delay_ms = 0 if free is not None and purge and file_delete_delay_ms is None else file_delete_delay_ms
    asked = Asked(
        metadata=metadata,
        server_properties=server_properties,
        options={
            "cleanup.policy": cleanup_policy,
            "retention.ms": retention_ms,
            "retention.bytes": retention_bytes,
            "file.delete.delay.ms": delay_ms,
        },
        config=pairs,
    )

    def settings(targets: "Sequence[Target]") -> "tuple[Mapping[str, TopicSettings], tuple[Finding, ...]]":
        known, findings = topic_settings(targets, asked)
        return with_remote_ends(targets, known), findings

    def advice() -> str | None:
        if run.is_due:
            if run.choice is None:
                return command_to_apply(run, "retain", plan, request)
            can = run.choice.attainable_bytes
            return command_to_apply(run, "retain", {**plan, "--free": can}, request) if can else ""
        if run.choice is not None and not purge:
            of_purge = {"--purge": True, "--file-delete-delay-ms": "0"}
            return command_to_apply(run, "retain", of_purge, request)
        return "" if run.choice is not None else None

    style = change_style(
        "retain",
        json=json,
        verbose=verbose,
        shown=common.shown(),
        words=retain_words,
        report=RetainReport(),
        page=page_for(html, "retain", now_ms),
        remains=is_due,
        advice=lambda _tally: advice(),
        after_failure=lambda: None,
    )
    return change(
        retain_group, run, style, request, plan, jobs=common.jobs, look=look_at_settings(run, settings)
    )
