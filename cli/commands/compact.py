"""`kseg compact`: what a broker's log cleaner would do, offline; a plan first."""

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

from kseg.cli.change_options import (
    CopyOptions,
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
    count_option,
    duration_option,
    offset_option,
    read_offset,
    refuse_read_only,
    size_option,
)
from kseg.cli.topic_evidence import CleanupPolicy, MetadataPath, ServerProperties, TopicProperties

if TYPE_CHECKING:
    from kseg.compaction.cleaner.options import CleanSettings

EXAMPLES = (
    ("What compaction would free, and what stays", "kseg compact /var/lib/kafka/accounts-0"),
    ("Compact what is due, as the broker would", "kseg compact --apply --first-dirty-offset checkpoint /var/lib/kafka"),
    ("A partition without its metadata log: state the policy", "kseg compact --cleanup-policy compact /mnt/copy/accounts-0"),
    ("Include the newest records by rolling the active segment first", "kseg compact --apply --include-active accounts-0"),
    ("A compacted copy; the log stays as it is", "kseg compact --output /mnt/small accounts-0"),
    ("With the properties of the topic", "kseg compact --config accounts.properties accounts-0"),
    ("Skip damaged segments, and those that would be merged with them", "kseg compact --damaged skip --apply accounts-0"),
)  # fmt: skip

WHAT = "Which segments are cleaned"
RESULT = "Cleaned segments"
BROKER = "State of the log"


def _read_first_dirty(text: str) -> str:
    """An offset, or the keyword for the one in the data directory's checkpoint."""
    if text != "checkpoint":
        read_offset(text)
    return text


def _read_ratio(text: str) -> float:
    """A number from 0 to 1."""
    try:
        ratio = float(text)
    except ValueError:
        ratio = -1.0
    if not 0 <= ratio <= 1:
        raise ValueError("takes a number from 0 to 1")
    return ratio


class CleaningOptions(NamedTuple):
    """The settings of a cleaning, which take precedence over those of the topics."""

    min_compaction_lag_ms: Annotated[
        int | None, duration_option("Do not clean segments with younger records. Default: 0.", WHAT)
    ] = None
    max_compaction_lag_ms: Annotated[
        int | None,
        duration_option(
            "Clean regardless of the ratio when records have waited longer. Default: no limit.", WHAT
        ),
    ] = None
    min_cleanable_dirty_ratio: Annotated[
        float | None,
        Option(
            metavar="R",
            read=_read_ratio,
            help="Do not clean logs with a lower ratio of dirty bytes. Default: 0.",
            panel=WHAT,
        ),
    ] = None
    delete_retention_ms: Annotated[
        int | None,
        duration_option(
            "How long to keep tombstones and markers after the first pass. Default: 86400000.", RESULT
        ),
    ] = None
    segment_bytes: Annotated[
        int | None, size_option("Merge adjacent segments up to this size. Default: 1GiB.", RESULT)
    ] = None
    segment_index_bytes: Annotated[
        int | None, size_option("Merge adjacent segments up to this index size. Default: 10MiB.", RESULT)
    ] = None
    index_interval_bytes: Annotated[
        int | None, size_option("Kafka's index.interval.bytes. Default: 4096.", RESULT)
    ] = None
    map_memory: Annotated[
        int | None,
        size_option(
            "Memory for the keys of one pass, 24 bytes each; more keys take more passes, and a plan of several passes keeps "
            "the log between them in $TMPDIR. Default: 128MiB.",
            RESULT,
        ),
    ] = None

    def given(self) -> dict[str, Any]:
        """Those that were given, by field of `CleanSettings`."""
        named = self._asdict() | {"map_bytes": self.map_memory}
        return {name: value for name, value in named.items() if value is not None and name != "map_memory"}


def command(
    *,
    paths: Paths,
    first_dirty_offset: Annotated[
        str | None,
        Option(
            metavar="N|checkpoint",
            read=_read_first_dirty,
            help="Clean from this offset on, the first dirty one; `checkpoint` takes it from the data directory. Default: the log start.",
            panel=WHAT,
        ),
    ] = None,
    cleanup_policy: CleanupPolicy = None,
    config: TopicProperties = None,
    cleaning: CleaningOptions,
    include_active: Annotated[
        bool,
        Option(
            help="Roll the active segment first, so that it is cleaned too, unless it is damaged.", panel=WHAT
        ),
    ] = False,
    damaged: Annotated[
        str,
        Option(
            choices=("refuse", "skip"),
            help="For a log with damage: refuse it, or skip the damaged segments and those that would be merged with them.",
            panel=WHAT,
        ),
    ] = "refuse",
    top_keys: Annotated[
        int, count_option("In a plan, list this many keys whose old values take the most space.", RESULT)
    ] = 10,
    in_place: InPlaceOptions,
    copy: CopyOptions,
    log_start_offset: Annotated[
        int | None,
        offset_option("The log start offset. Default: the data directory's checkpoint, else 0.", BROKER),
    ] = None,
    metadata: MetadataPath = None,
    server_properties: ServerProperties = None,
    high_watermark: Annotated[
        int | None,
        offset_option(
            "The high watermark; nothing at or above it is cleaned. Default: the data directory's checkpoint, else the log end.",
            BROKER,
        ),
    ] = None,
    producer_id_expiration_ms: Annotated[
        int | None,
        duration_option(
            "Keep the newest batch of producers that are younger, if only as a header. Default: 86400000.",
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
    """Keep the newest record of each key, as the broker's log cleaner does, offline: the plan first.

    Removes records that a later one with the same key replaces, aborted transactions, records without a key, and
    expired tombstones and transaction markers. Offsets never change. The last segment stays as it is, as does
    everything after an open transaction and everything that is too young. Old segments stay as .deleted until a broker starts, or
    `kseg retain --purge` deletes them; `kseg undo` brings them back. Only topics whose cleanup.policy says so are
    cleaned, with each topic's own settings as the metadata log has them; options here override the settings, but
    not the policy, which only --cleanup-policy and --config override. A topic with an unknown policy is left alone. The exit status is 1
    when a compaction is due and was only planned.
    """
    refuse_read_only("compact", paths)
    cluster = on.cluster()
    changes = options_of_change(in_place, cluster, copy)
    from kseg.cli.next_command import plan_options
    from kseg.cli.run import clock_ms, page_for
    from kseg.cli.shared_targets import Sharing
    from kseg.cli.text.compact import CompactReport, compact_words, is_due
    from kseg.cli.topic_evidence import Asked, topic_settings
    from kseg.compaction.cleaner.compact import compact_group
    from kseg.compaction.cleaner.options import CompactOptions, Damaged
    from kseg.compaction.cleaner.run import CompactRun

    plan = plan_options("compact", locals())
    now_ms = clock_ms(now)
    settings, pairs = _configured(config, now_ms, is_quiet=common.quiet)
    given = cleaning.given()
    if producer_id_expiration_ms is not None:
        given["producer_id_expiration_ms"] = producer_id_expiration_ms
    settings = replace(settings, **given)
    settings.check()
    request = common.request(paths, cluster)
    options = CompactOptions(
        settings=settings,
        first_dirty_offset=None if first_dirty_offset in (None, "checkpoint") else int(first_dirty_offset),
        from_checkpoint=first_dirty_offset == "checkpoint",
        log_start_offset=log_start_offset,
        high_watermark=high_watermark,
        include_active=include_active,
        damaged=Damaged(damaged),
        top_keys=top_keys,
        **changes,
    )
    run = CompactRun(options)
    asked = Asked(
        metadata=metadata,
        server_properties=server_properties,
        options={
            "cleanup.policy": cleanup_policy,
            **{name.replace("_", "."): value for name, value in given.items() if name != "map_bytes"},
        },
        config=pairs,
    )
    style = change_style(
        "compact",
        json=json,
        verbose=verbose,
        shown=common.shown(),
        words=compact_words,
        report=CompactReport(),
        page=page_for(html, "compact", now_ms),
        remains=is_due,
        advice=lambda _tally: command_to_apply(run, "compact", plan, request) if run.is_due else "",
        after_failure=lambda: None,  # damage must be repaired first
    )
    return change(
        compact_group,
        run,
        style,
        request,
        plan,
        jobs=common.jobs,
        look=look_at_settings(run, partial(topic_settings, asked=asked)),
        sharing=Sharing.LARGE,
    )


def _configured(
    config: str | None, now_ms: int, *, is_quiet: bool
) -> "tuple[CleanSettings, Mapping[str, str]]":
    """The settings from --config, and its pairs. Raises UsageError for settings that no broker accepts, before anything is read."""
    from kseg.compaction.cleaner.options import CleanSettings

    settings = CleanSettings(now_ms=now_ms)
    if config is None:
        return settings, {}
    from kseg.cli.streams import complain
    from kseg.compaction.cleaner.settings_file import configured, notes_on
    from kseg.compaction.config import TopicConfig
    from kseg.compaction.retention.options import configured_limits

    properties = TopicConfig.read(config)
    settings = configured(properties, settings)
    configured_limits(properties)
    for note in notes_on(properties) if not is_quiet else ():
        complain(f"kseg compact: {note}")
    return settings, properties.pairs
