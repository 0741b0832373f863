"""`kseg retain`: what a broker's retention would delete, and why; mark, purge, or restore it."""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Annotated, NamedTuple

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
from kseg.cli.topic_evidence import (
    Asked,
    CleanupPolicy,
    MetadataPath,
    ServerProperties,
    TopicProperties,
    topic_settings,
)
from kseg.segment.errors import UsageError
from kseg.segment.quantities import read_duration, read_size

if TYPE_CHECKING:
    from kseg.cli.request import Request
    from kseg.compaction.retention.run import RetainRun
    from kseg.segment.findings import Finding
    from kseg.segment.partition.targets import Target
    from kseg.segment.partition.topic_settings import TopicSettings

EXAMPLES = (
    ("What each topic's own retention would delete, and why the rest stays", "kseg retain --server-properties server.properties /var/lib/kafka"),
    ("What seven days would delete of one topic", "kseg retain --retention-ms 7d --topic orders /var/lib/kafka"),
    ("Mark for deletion what is above 50 GiB in each partition of one topic", "kseg retain --retention-bytes 50GiB --topic orders --apply /var/lib/kafka"),
    ("A partition without its metadata log: state the policy", "kseg retain --cleanup-policy delete --retention-ms 7d /mnt/copy/orders-0"),
    ("Free the space of what was marked a minute ago", "kseg retain --purge --apply /var/lib/kafka"),
    ("Which segments to delete to free 50 GiB, and the equivalent limits", "kseg retain --free 50GiB /var/lib/kafka"),
    ("Restore what was marked", "kseg retain --unmark --apply orders-0"),
    ("What other limits would free", "kseg retain --what-if orders-0"),
    ("With the properties of the topic", "kseg retain --config orders.properties orders-0"),
)  # fmt: skip

LIMITS = "Limits"
BROKER = "State of the log"


def _read_limit_duration(text: str) -> int:
    """A duration, or -1 for no limit."""
    return -1 if text == "-1" else read_duration(text)


def _read_limit_size(text: str) -> int:
    """A size, or -1 for no limit."""
    return -1 if text == "-1" else read_size(text)


class LimitOptions(NamedTuple):
    """What is deleted: the limits, the policy, and the choice by bytes."""

    retention_ms: Annotated[
        int | None,
        Option(
            metavar="DURATION",
            read=_read_limit_duration,
            help="Delete segments whose newest record is older than this; -1 is no limit. Default: the topic's "
            "configuration.",
            panel=LIMITS,
        ),
    ] = None
    retention_bytes: Annotated[
        int | None,
        Option(
            metavar="SIZE",
            read=_read_limit_size,
            help="Delete the oldest segments while at least this much remains; -1 is no limit. Default: the topic's configuration.",
            panel=LIMITS,
        ),
    ] = None
    log_start_offset: Annotated[
        int | None,
        offset_option(
            "Raise the log start offset to N first; segments entirely below it are deleted.", LIMITS
        ),
    ] = None
    cleanup_policy: CleanupPolicy = None
    config: TopicProperties = None
    free: Annotated[
        int | None,
        size_option(
            "Choose what to delete so that each file system gains this much: over all topics that may be deleted from, the "
            "oldest segments first, never active ones. Not with --spark: the choice needs the segments of all partitions at "
            "once, and each task of a cluster sees one.",
            LIMITS,
        ),
    ] = None
    what_if: Annotated[bool, Option(help="Also show what other limits would free.", panel=LIMITS)] = False

    @property
    def given(self) -> bool:
        """Whether any of them is, or a file with limits."""
        named = self.retention_ms, self.retention_bytes, self.log_start_offset, self.free
        return any(value is not None for value in (*named, self.cleanup_policy, self.config))

    def configured(self, *, is_quiet: bool) -> Mapping[str, str]:
        """The pairs of --config. Raises UsageError for settings that no broker accepts, before anything is read."""
        if self.config is None:
            return {}
        from kseg.cli.streams import complain
        from kseg.compaction.config import TopicConfig
        from kseg.compaction.retention.options import (
            configured_delay_ms,
            configured_expiration_ms,
            configured_limits,
            notes_on,
        )

        properties = TopicConfig.read(self.config)
        configured_limits(properties)
        configured_delay_ms(properties)
        configured_expiration_ms(properties)
        for note in notes_on(properties) if not is_quiet else ():
            complain(f"kseg retain: {note}")
        return properties.pairs


class MarkOptions(NamedTuple):
    """What happens to files that are marked as deleted."""

    purge: Annotated[
        bool, Option(help="Permanently delete files that were marked long enough ago.", panel=CHANGE)
    ] = False
    file_delete_delay_ms: Annotated[
        int | None,
        duration_option("How long a file must be marked before --purge deletes it. Default: 60000.", CHANGE),
    ] = None
    unmark: Annotated[bool, Option(help="Restore segments that are marked and not purged.", panel=CHANGE)] = (
        False
    )


def command(
    *,
    paths: Paths,
    limits: LimitOptions,
    in_place: InPlaceOptions,
    marks: MarkOptions,
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
    _refuse_contradictions(limits, marks)
    from kseg.cli.next_command import plan_options
    from kseg.cli.run import clock_ms, page_for
    from kseg.cli.text.retain import RetainReport, is_due, retain_words
    from kseg.compaction.retention.options import POLICY_NAMES, Limits, RetainOptions
    from kseg.compaction.retention.retain import retain_group
    from kseg.compaction.retention.run import RetainRun

    plan = plan_options("retain", locals())
    pairs = limits.configured(is_quiet=common.quiet)
    now_ms = clock_ms(now)
    cluster = on.cluster()
    if limits.free is not None and cluster is not None:
        raise UsageError("--free chooses over all topics together, which --spark does not do")
    request = common.request(paths, cluster)
    is_wanted = limits.given or limits.what_if or server_properties is not None
    options = RetainOptions(
        limits=Limits(),
        now_ms=now_ms,
        log_start_offset=limits.log_start_offset,
        high_watermark=high_watermark,
        is_policy_given=limits.cleanup_policy is not None or any(name in pairs for name in POLICY_NAMES),
        free_bytes=limits.free,
        purge=marks.purge,
        purge_only=marks.purge and not is_wanted,
        unmark=marks.unmark,
        what_if=limits.what_if,
        **options_of_change(in_place, cluster),
    )
    run = RetainRun(options)
    asked = Asked(
        metadata=metadata,
        server_properties=server_properties,
        options={
            "cleanup.policy": limits.cleanup_policy,
            "retention.ms": limits.retention_ms,
            "retention.bytes": limits.retention_bytes,
            "file.delete.delay.ms": _delay_ms(limits, marks),
        },
        config=pairs,
    )
    style = change_style(
        "retain",
        json=json,
        verbose=verbose,
        shown=common.shown(),
        words=retain_words,
        report=RetainReport(),
        page=page_for(html, "retain", now_ms),
        remains=is_due,
        advice=lambda _tally: _advice(run, plan, request),
        after_failure=lambda: None,
    )
    look = look_at_settings(run, partial(_settings, asked))
    return change(retain_group, run, style, request, plan, jobs=common.jobs, look=look)


def _refuse_contradictions(limits: LimitOptions, marks: MarkOptions) -> None:
    """Raises UsageError for options that exclude each other."""
    is_limited = limits.retention_ms is not None or limits.retention_bytes is not None or limits.config
    if marks.unmark and (marks.purge or limits.what_if or is_limited):
        raise UsageError("--unmark excludes limits, --purge and --what-if")
    if limits.free is not None and (
        not limits.free or marks.unmark or limits.what_if or limits.log_start_offset is not None
    ):
        raise UsageError(
            "--free takes a positive number of bytes and excludes --unmark, --what-if and --log-start-offset"
        )


def _delay_ms(limits: LimitOptions, marks: MarkOptions) -> int | None:
    """How long a file must be marked before it is purged, None for the configured time. The delay protects readers of a running broker;
    freeing a disk does not wait."""
    if limits.free is not None and marks.purge and marks.file_delete_delay_ms is None:
        return 0
    return marks.file_delete_delay_ms


def _settings(
    asked: Asked, targets: "Sequence[Target]"
) -> "tuple[Mapping[str, TopicSettings], tuple[Finding, ...]]":
    """The settings of each partition, with the end of what a remote log has of it, and the findings about their sources."""
    from kseg.cli.remote_evidence import with_remote_ends

    known, findings = topic_settings(targets, asked)
    return with_remote_ends(targets, known), findings


def _advice(run: "RetainRun", plan: Mapping[str, object], request: "Request") -> str | None:
    """The command that follows a run; empty for none, None for the one that the findings suggest."""
    if run.is_due and run.choice is None:
        return command_to_apply(run, "retain", plan, request)
    if run.is_due and run.choice is not None:
        can = run.choice.attainable_bytes
        return command_to_apply(run, "retain", {**plan, "--free": can}, request) if can else ""
    if run.choice is None:
        return None
    if run.options.purge:
        return ""
    return command_to_apply(run, "retain", {"--purge": True, "--file-delete-delay-ms": "0"}, request)
