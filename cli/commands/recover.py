"""`kseg recover`: make a log sound again, as a broker would or keeping every valid batch; a plan first."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import chain
from typing import TYPE_CHECKING, Annotated, Any

from kseg.cli.change_options import (
    CHANGE,
    AcceptUnreadable,
    Apply,
    FollowLinks,
    HardLink,
    JournalDir,
    Quarantine,
    change,
    change_style,
    check_way,
    identity,
    keeping_of,
)
from kseg.cli.option_schema import Option
from kseg.cli.options import (
    DropCache,
    Jobs,
    Json,
    NoProgress,
    Now,
    OnCluster,
    Partition,
    Paths,
    Quiet,
    Topics,
    Verbose,
    read_duration,
    read_offset,
    read_size,
)
from kseg.cli.topic_evidence import MetadataPath, ServerProperties

if TYPE_CHECKING:
    from kseg.cli.run_summary import RunSummary
    from kseg.segment.partition.targets import Target

EXAMPLES = (
    ("What would be repaired, and what either policy costs", "kseg recover /var/lib/kafka"),
    ("Repair one partition, keeping every valid batch", "kseg recover --apply /var/lib/kafka/orders-0"),
    (
        "Leave exactly what a broker's own recovery would leave",
        "kseg recover --policy kafka --apply /var/lib/kafka",
    ),
    (
        "A repaired copy; the damaged directory stays as it is",
        "kseg recover --output /mnt/repaired /var/lib/kafka",
    ),
    ("Rebuild all indexes and snapshots from the log", "kseg recover --rebuild --apply orders-0"),
    ("So that the broker starts without recovery", "kseg recover --apply --mark-clean /var/lib/kafka"),
)

BROKER = "What the broker would know"

DEFAULT_POLICY = "salvage"


def command(
    *,
    paths: Paths,
    policy: Annotated[
        str,
        Option(
            "--policy",
            choices=("salvage", "kafka"),
            help="salvage keeps every valid batch; kafka leaves what a broker's log loading leaves.",
        ),
    ] = DEFAULT_POLICY,
    apply: Apply = False,
    output: Annotated[
        str | None,
        Option(
            "--output",
            metavar="DIR",
            help="Write a repaired copy of the partitions below this directory; the input does not change.",
            panel=CHANGE,
        ),
    ] = None,
    hard_link: HardLink = False,
    quarantine: Quarantine = None,
    journal: JournalDir = None,
    accept_unreadable: AcceptUnreadable = False,
    rebuild: Annotated[
        bool, Option("--rebuild", help="Rebuild all side files from the log, valid ones too.", panel=CHANGE)
    ] = False,
    mark_clean: Annotated[
        bool,
        Option(
            "--mark-clean",
            help="Write the clean-shutdown marker if every partition of the data directory is valid.",
            panel=CHANGE,
        ),
    ] = False,
    topic_id: Annotated[
        str | None,
        Option(
            "--topic-id",
            metavar="UUID",
            help="Write a missing partition.metadata with this id. Default: the id in the metadata log, if that is certain.",
            panel=CHANGE,
        ),
    ] = None,
    metadata: MetadataPath = None,
    server_properties: ServerProperties = None,
    node_id: Annotated[
        int | None,
        Option(
            "--node-id",
            metavar="N",
            read=read_offset,
            help="Write a lost meta.properties with this node id. Default: that of the other data directories.",
            panel=CHANGE,
        ),
    ] = None,
    cluster_id: Annotated[
        str | None,
        Option(
            "--cluster-id",
            metavar="ID",
            help="Write a lost meta.properties with this cluster id. Default: that of the other data directories.",
            panel=CHANGE,
        ),
    ] = None,
    directory_id: Annotated[
        str | None,
        Option(
            "--directory-id",
            metavar="UUID",
            help="Write a lost meta.properties with this directory id; none: without. Default: the id in the metadata log.",
            panel=CHANGE,
        ),
    ] = None,
    clean_shutdown: Annotated[
        bool | None,
        Option(
            "--clean-shutdown/--unclean-shutdown",
            help="Whether the broker was shut down cleanly. Default: whether the clean-shutdown marker exists.",
            panel=BROKER,
        ),
    ] = None,
    recovery_point: Annotated[
        int | None,
        Option(
            "--recovery-point",
            metavar="N",
            read=read_offset,
            help="The log is known to be on disk up to this offset. Default: the data directory's checkpoint, else 0.",
            panel=BROKER,
        ),
    ] = None,
    log_start_offset: Annotated[
        int | None,
        Option(
            "--log-start-offset",
            metavar="N",
            read=read_offset,
            help="Where the log starts. Default: the data directory's checkpoint, else 0.",
            panel=BROKER,
        ),
    ] = None,
    index_interval_bytes: Annotated[
        int | None,
        Option(
            "--index-interval-bytes",
            metavar="SIZE",
            read=read_size,
            help="Kafka's index.interval.bytes. Default: what the topic is configured to, else 4096.",
            panel=BROKER,
        ),
    ] = None,
    segment_index_bytes: Annotated[
        int | None,
        Option(
            "--segment-index-bytes",
            metavar="SIZE",
            read=read_size,
            help="Kafka's segment.index.bytes. Default: what the topic is configured to, else 10MiB.",
            panel=BROKER,
        ),
    ] = None,
    producer_id_expiration_ms: Annotated[
        int | None,
        Option(
            "--producer-id-expiration-ms",
            metavar="DURATION",
            read=read_duration,
            help="Kafka's producer.id.expiration.ms. Default: what the broker is configured to, else 86400000.",
            panel=BROKER,
        ),
    ] = None,
    follow_links: FollowLinks = False,
    json: Json = False,
    topics: Topics = (),
    partition: Partition = None,
    now: Now = None,
    jobs: Jobs = None,
    quiet: Quiet = False,
    verbose: Verbose = False,
    no_progress: NoProgress = False,
    drop_cache: DropCache = False,
    on: OnCluster,
) -> int:
    """Make logs sound again, offline: plan first, then --apply in place or --output a repaired copy.

    Policy salvage takes out what is invalid, up to the next valid batch, and keeps everything else with its offsets.
    Policy kafka does what a broker does when it loads the log: it throws away everything behind the first damage.
    What leaves a file goes to a quarantine, and `kseg undo` brings it back. The exit status is 1 when a repair is due
    and was only planned.
    """
    check_way(apply, output, hard_link)
    keeping = keeping_of(journal, quarantine, output)
    from kseg.cli.next_command import apply_command
    from kseg.cli.request import Request
    from kseg.cli.run import clock_ms, workers
    from kseg.cli.text.recover import RecoverReport, is_due, is_planned, recover_words
    from kseg.cli.topic_evidence import (
        Asked,
        finder_for,
        replicas_missing,
        server_pairs,
        topic_identities,
        topic_settings,
    )
    from kseg.recovery.policy import LoadSettings, Policy
    from kseg.recovery.repair.meta_properties_repair import RequestedIdentity
    from kseg.recovery.repair.options import RecoverOptions
    from kseg.recovery.repair.recover import recover_group
    from kseg.recovery.repair.run import RecoverRun

    now_ms = clock_ms() if now is None else now
    load_options = {
        "index_interval_bytes": index_interval_bytes,
        "segment_index_bytes": segment_index_bytes,
        "producer_id_expiration_ms": producer_id_expiration_ms,
    }
    settings = {name: value for name, value in load_options.items() if value is not None}
    identity_asked = RequestedIdentity(node_id, cluster_id, directory_id)
    identity_asked.check()
    cluster = on.cluster()
    request = Request(paths, topics, partition, cluster)
    run_id, shared = identity(apply, cluster, output)
    options = RecoverOptions(
        settings=LoadSettings(now_ms=now_ms, **settings),
        policy=Policy(policy),
        is_clean=clean_shutdown,
        recovery_point=recovery_point,
        log_start_offset=log_start_offset,
        apply=apply,
        run_id=run_id,
        follow_links=follow_links,
        output=output,
        hard_link=hard_link,
        keeping=keeping,
        accept_unreadable=accept_unreadable,
        rebuild=rebuild,
        mark_clean=mark_clean,
        topic_id=topic_id,
        identity=identity_asked,
        drop_cache=drop_cache,
        shared=shared,
    )
    given = {
        "--policy": policy if policy != DEFAULT_POLICY else None,
        "--accept-unreadable": accept_unreadable,
        "--rebuild": rebuild,
        "--mark-clean": mark_clean,
        "--topic-id": topic_id,
        "--metadata": metadata,
        "--server-properties": server_properties,
        "--node-id": node_id,
        "--cluster-id": cluster_id,
        "--directory-id": directory_id,
        "--clean-shutdown": clean_shutdown is True,
        "--unclean-shutdown": clean_shutdown is False,
        "--recovery-point": recovery_point,
        "--log-start-offset": log_start_offset,
        "--index-interval-bytes": index_interval_bytes,
        "--segment-index-bytes": segment_index_bytes,
        "--producer-id-expiration-ms": producer_id_expiration_ms,
        "--follow-links": follow_links,
        "--quarantine": quarantine,
        "--journal": journal,
        "--now": now,
    }
    run = RecoverRun(options, workers(cluster, jobs), _registered)
    asked = Asked(
        metadata=metadata,
        server_properties=server_properties,
        options={name.replace("_", "."): value for name, value in settings.items()},
        assumes_defaults=True,
    )

    def look(targets: "Sequence[Target]") -> None:
        finder = finder_for(targets, metadata, server_pairs(server_properties))
        identities, told = topic_identities(targets, metadata, finder)
        run.missing = replicas_missing(targets, finder)
        run.told = (*told, *chain.from_iterable(run.missing.values()))
        known, _ = topic_settings(targets, asked, finder)  # what the evidence says of itself is told already
        run.options = replace(run.options, identities=identities, topics=known)

    planned = list[bool]()

    def remains(values: Mapping[str, Any]) -> bool:
        planned.extend([True] * is_planned(values))
        return is_due(values)

    style = change_style(
        "recover",
        request,
        json=json,
        quiet=quiet,
        no_progress=no_progress,
        verbose=verbose,
        words=recover_words,
        report=RecoverReport(),
        remains=remains,
        advice=lambda tally: apply_command("recover", given | _acceptance(tally), request) if planned else "",
    )
    return change(recover_group, run, style, request, jobs=jobs, look=look)


def _registered(log_dirs: Sequence[str]) -> Mapping[int, tuple[str, ...]]:
    """Read only where a meta.properties is lost."""
    from kseg.internal_topics.metadata.registered import registered_directories

    return registered_directories(log_dirs)


def _acceptance(tally: "RunSummary") -> dict[str, object]:
    """What a plan that counts unreadable bytes as lost needs to be carried out."""
    return {"--accept-unreadable": True} if tally.unreadable else {}
