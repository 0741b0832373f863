"""`kseg retain`: what a broker's retention would delete, and why; marking it, purging it, taking it back."""

from dataclasses import replace
from typing import Annotated

from kseg.cli.change import CHANGE, change, identity
from kseg.cli.declare import Option
from kseg.cli.options import (
    Jobs,
    Json,
    NoProgress,
    Now,
    OnCluster,
    Partition,
    Paths,
    Quiet,
    Topics,
    read_duration,
    read_offset,
    read_size,
)
from kseg.segment.errors import UsageError

EXAMPLES = (
    (
        "What seven days of retention would delete, and why the rest stays",
        "kseg retain --retention-ms 7d orders-0",
    ),
    (
        "Mark for deletion what is above 50 GiB in each partition",
        "kseg retain --retention-bytes 50GiB --apply /var/lib/kafka",
    ),
    ("Free the space of what was marked a minute ago", "kseg retain --purge --apply /var/lib/kafka"),
    ("Take the marks back", "kseg retain --unmark --apply orders-0"),
    ("What other limits would free", "kseg retain --what-if orders-0"),
    ("With the properties of the topic", "kseg retain --config orders.properties orders-0"),
)

LIMITS = "What goes"
BROKER = "What the broker would know"


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
            "--retention-ms",
            metavar="DURATION",
            read=_read_limit_duration,
            help="Segments go whose youngest record is older than this; -1 is no limit. Default: no limit.",
            panel=LIMITS,
        ),
    ] = None,
    retention_bytes: Annotated[
        int | None,
        Option(
            "--retention-bytes",
            metavar="SIZE",
            read=_read_limit_size,
            help="Segments go as long as this much is left; -1 is no limit. Default: no limit.",
            panel=LIMITS,
        ),
    ] = None,
    log_start_offset: Annotated[
        int | None,
        Option(
            "--log-start-offset",
            metavar="N",
            read=read_offset,
            help="Raise the log start offset to N first; whole segments below it go.",
            panel=LIMITS,
        ),
    ] = None,
    cleanup_policy: Annotated[
        str | None,
        Option(
            "--cleanup-policy",
            choices=("delete", "compact", "compact,delete"),
            help="Kafka's cleanup.policy; with compact alone only the log start offset deletes. Default: delete.",
            panel=LIMITS,
        ),
    ] = None,
    config: Annotated[
        str | None,
        Option(
            "--config",
            metavar="FILE",
            help="Topic properties under Kafka's names; options given here go before.",
            panel=LIMITS,
        ),
    ] = None,
    what_if: Annotated[
        bool, Option("--what-if", help="Also say what other limits would free.", panel=LIMITS)
    ] = False,
    apply: Annotated[
        bool, Option("--apply", help="Mark the files of what goes, with .deleted.", panel=CHANGE)
    ] = False,
    purge: Annotated[
        bool,
        Option("--purge", help="Delete files that were marked long enough ago; for good.", panel=CHANGE),
    ] = False,
    file_delete_delay_ms: Annotated[
        int | None,
        Option(
            "--file-delete-delay-ms",
            metavar="DURATION",
            read=read_duration,
            help="How long a mark must be there before --purge deletes the file. Default: 60000.",
            panel=CHANGE,
        ),
    ] = None,
    unmark: Annotated[
        bool, Option("--unmark", help="Bring back segments that are marked and not purged.", panel=CHANGE)
    ] = False,
    high_watermark: Annotated[
        int | None,
        Option(
            "--high-watermark",
            metavar="N",
            read=read_offset,
            help="Nothing at or above it goes. Default: the data directory's checkpoint, else the log end.",
            panel=BROKER,
        ),
    ] = None,
    json: Json = False,
    topics: Topics = (),
    partition: Partition = None,
    now: Now = None,
    jobs: Jobs = None,
    quiet: Quiet = False,
    no_progress: NoProgress = False,
    on: OnCluster,
) -> int:
    """Delete what a broker's retention would delete, offline: the plan first, with the reason for each segment.

    Segments go from the oldest on, whole ones only, as long as they are below the log start offset, above the size
    limit, or older than the time limit; the first one that stays keeps all behind it. Nothing is deleted for a limit
    that was not given, and nothing by time or size of __consumer_offsets and __transaction_state, which a broker
    compacts, unless --cleanup-policy says otherwise. With --apply the files are marked with .deleted, as a broker does first; --purge deletes what
    was marked a while ago; until then --unmark, or `kseg undo`, brings it back. Files of Kafka 0.7 go by their
    modification time and size.
    """
    if unmark and (purge or what_if or retention_ms is not None or retention_bytes is not None or config):
        raise UsageError("--unmark goes with no limit and not with --purge or --what-if")
    from kseg.cli.advice import apply_command
    from kseg.cli.render import Style
    from kseg.cli.retained import is_due, retain_words
    from kseg.cli.run import clock_ms
    from kseg.cli.stream import complain
    from kseg.compaction.retention.options import (
        Limits,
        RetainOptions,
        configured_delay_ms,
        configured_limits,
        notes_on,
        policies_of,
    )
    from kseg.compaction.retention.whole import Run
    from kseg.compaction.retention.work import retain_group

    limits, delay_ms = Limits(), None
    if config is not None:
        from kseg.compaction.config import TopicConfig

        properties = TopicConfig.read(config)
        limits, delay_ms = configured_limits(properties), configured_delay_ms(properties)
        for note in notes_on(properties) if not quiet else ():
            complain(f"kseg retain: {note}")
    if retention_ms is not None:
        limits = replace(limits, retention_ms=retention_ms)
    if retention_bytes is not None:
        limits = replace(limits, retention_bytes=retention_bytes)
    if cleanup_policy is not None:
        limits = replace(limits, policies=policies_of(tuple(cleanup_policy.split(","))))
    now_ms = clock_ms() if now is None else now
    cluster = on.cluster()
    run_id, shared = identity(apply, cluster)
    options = RetainOptions(
        limits=limits,
        now_ms=now_ms,
        log_start_offset=log_start_offset,
        high_watermark=high_watermark,
        is_policy_given=cleanup_policy is not None,
        apply=apply,
        run_id=run_id,
        purge=purge,
        unmark=unmark,
        what_if=what_if,
        shared=shared,
    )
    delay_ms = file_delete_delay_ms if file_delete_delay_ms is not None else delay_ms
    if delay_ms is not None:
        options = replace(options, file_delete_delay_ms=delay_ms)
    run = Run(options)
    given = {
        "--retention-ms": retention_ms,
        "--retention-bytes": retention_bytes,
        "--log-start-offset": log_start_offset,
        "--high-watermark": high_watermark,
        "--cleanup-policy": cleanup_policy,
        "--config": config,
        "--file-delete-delay-ms": file_delete_delay_ms,
        "--purge": purge,
        "--unmark": unmark,
        "--now": now,
        "--partition": partition,
    }
    style = Style(
        command="retain",
        json=json,
        quiet=quiet,
        progress=not no_progress,
        findings_are_result=True,
        words=retain_words,
        remains=is_due,
        advice=lambda tally: (
            apply_command("retain", given, topics, paths) if run.is_due and not tally.failures else ""
        ),
    )
    return change(
        retain_group,
        run,
        style,
        paths=paths,
        topics=topics,
        partition=partition,
        jobs=jobs,
        cluster=cluster,
    )
