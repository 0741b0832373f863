"""`kseg recover`: repair a log, as a broker would or keeping every valid batch; a plan first."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

from kseg.cli.change_options import (
    CHANGE,
    CopyOptions,
    InPlaceOptions,
    change,
    change_style,
    command_to_apply,
    options_of_change,
)
from kseg.cli.option_schema import Option
from kseg.cli.options import (
    CommonOptions,
    DropCache,
    Json,
    Now,
    OnCluster,
    Paths,
    Verbose,
    duration_option,
    node_option,
    offset_option,
    refuse_read_only,
    size_option,
)
from kseg.cli.placement_evidence import replicas_missing, topic_identities
from kseg.cli.topic_evidence import (
    Asked,
    MetadataPath,
    ServerProperties,
    finder_for,
    server_pairs,
    topic_settings,
)
from kseg.segment.errors import UsageError

if TYPE_CHECKING:
    from kseg.cli.request import Request
    from kseg.cli.run_summary import RunSummary
    from kseg.recovery.repair.meta_properties_repair import RequestedIdentity
    from kseg.recovery.repair.run import RecoverRun
    from kseg.segment.partition.targets import Target

EXAMPLES = (
    ("What would be repaired, and what either policy costs", "kseg recover /var/lib/kafka"),
    ("Repair one partition, keeping every valid batch", "kseg recover --apply /var/lib/kafka/orders-0"),
    ("Leave exactly what a broker's own recovery would leave", "kseg recover --policy kafka --apply /var/lib/kafka"),
    ("A repaired copy; the damaged directory stays as it is", "kseg recover --output /mnt/repaired /var/lib/kafka"),
    ("Rebuild all indexes and snapshots from the log", "kseg recover --rebuild --apply orders-0"),
    ("Let the broker start without recovery", "kseg recover --apply --mark-clean /var/lib/kafka"),
)  # fmt: skip

BROKER = "State of the log, as the broker would know it"

DEFAULT_POLICY = "salvage"


class IdentityOptions(NamedTuple):
    """What to write into a lost meta.properties."""

    node_id: Annotated[
        int | None,
        node_option(
            "Write a lost meta.properties with this node id. Default: that of the other data directories.",
            CHANGE,
        ),
    ] = None
    cluster_id: Annotated[
        str | None,
        Option(
            metavar="ID",
            help="Write a lost meta.properties with this cluster id. Default: that of the other data directories.",
            panel=CHANGE,
        ),
    ] = None
    directory_id: Annotated[
        str | None,
        Option(
            metavar="UUID",
            help="Write a lost meta.properties with this directory id; `none` omits it. Default: the id in the metadata log.",
            panel=CHANGE,
        ),
    ] = None

    def requested(self) -> "RequestedIdentity":
        """Raises UsageError for values that no broker accepts."""
        from kseg.recovery.repair.meta_properties_repair import RequestedIdentity

        asked = RequestedIdentity(*self)
        asked.check()
        return asked


class BrokerOptions(NamedTuple):
    """What the broker would know about a log before it loads it, and the settings of its load."""

    clean_shutdown: Annotated[
        bool | None,
        Option(
            "--clean-shutdown/--unclean-shutdown",
            help="Whether the broker was shut down cleanly. Default: whether the clean-shutdown marker exists.",
            panel=BROKER,
        ),
    ] = None
    recovery_point: Annotated[
        int | None,
        offset_option(
            "The recovery point: the log is known to be on disk up to this offset. Default: the data directory's checkpoint, else 0.",
            BROKER,
        ),
    ] = None
    log_start_offset: Annotated[
        int | None,
        offset_option("The log start offset. Default: the data directory's checkpoint, else 0.", BROKER),
    ] = None
    index_interval_bytes: Annotated[
        int | None,
        size_option("Kafka's index.interval.bytes. Default: the topic's configuration, else 4096.", BROKER),
    ] = None
    segment_index_bytes: Annotated[
        int | None,
        size_option("Kafka's segment.index.bytes. Default: the topic's configuration, else 10MiB.", BROKER),
    ] = None
    producer_id_expiration_ms: Annotated[
        int | None,
        duration_option(
            "Kafka's producer.id.expiration.ms. Default: the broker's configuration, else 86400000.", BROKER
        ),
    ] = None

    def settings(self) -> dict[str, int]:
        """The given settings of the load, by field of `LoadSettings`."""
        named = {
            "index_interval_bytes": self.index_interval_bytes,
            "segment_index_bytes": self.segment_index_bytes,
            "producer_id_expiration_ms": self.producer_id_expiration_ms,
        }
        return {name: value for name, value in named.items() if value is not None}


def command(
    *,
    paths: Paths,
    policy: Annotated[
        str,
        Option(
            choices=("salvage", "kafka"),
            help="salvage keeps every valid batch; kafka leaves what a broker's log loading leaves.",
        ),
    ] = DEFAULT_POLICY,
    in_place: InPlaceOptions,
    copy: CopyOptions,
    rebuild: Annotated[
        bool, Option(help="Rebuild all side files from the log, even valid ones.", panel=CHANGE)
    ] = False,
    repair_bits: Annotated[
        bool,
        Option(
            help="Restore a batch that is valid with one bit inverted, instead of removing it. Damage of more bits may look like that: "
            "6 in 100,000 for an uncompressed batch of 16 KiB.",
            panel=CHANGE,
        ),
    ] = False,
    mark_clean: Annotated[
        bool,
        Option(
            help="Write the clean-shutdown marker if every partition of the data directory is valid.",
            panel=CHANGE,
        ),
    ] = False,
    topic_id: Annotated[
        str | None,
        Option(
            metavar="UUID",
            help="Write a missing partition.metadata with this id. Default: the id in the metadata log, if that is certain.",
            panel=CHANGE,
        ),
    ] = None,
    metadata: MetadataPath = None,
    server_properties: ServerProperties = None,
    identity: IdentityOptions,
    broker: BrokerOptions,
    json: Json = False,
    common: CommonOptions,
    now: Now = None,
    verbose: Verbose = False,
    drop_cache: DropCache = False,
    on: OnCluster,
) -> int:
    """Repair logs offline: show the plan first, then --apply it in place, or write a repaired copy with --output.

    Policy salvage removes what is invalid, up to the next valid batch, and keeps everything else with its offsets.
    Policy kafka does what a broker does when it loads the log: it discards everything after the first damage.
    Removed bytes go to a quarantine, and `kseg undo` restores them. The exit status is 1 when a repair is due
    and was only planned.
    """
    refuse_read_only("recover", paths)
    if repair_bits and policy != DEFAULT_POLICY:
        raise UsageError(f"--repair-bits needs --policy {DEFAULT_POLICY}: a broker restores nothing")
    cluster = on.cluster()
    changes = options_of_change(in_place, cluster, copy)
    from kseg.cli.coordinator_loads import record_findings
    from kseg.cli.next_command import plan_options
    from kseg.cli.run import clock_ms, workers
    from kseg.cli.text.recover import recover_words
    from kseg.recovery.policy import LoadSettings, Policy
    from kseg.recovery.repair.options import RecoverOptions
    from kseg.recovery.repair.recover import recover_group
    from kseg.recovery.repair.run import RecoverRun

    plan = plan_options("recover", locals())
    settings = broker.settings()
    request = common.request(paths, cluster)
    options = RecoverOptions(
        settings=LoadSettings(now_ms=clock_ms(now)).with_values(settings),
        policy=Policy(policy),
        is_clean=broker.clean_shutdown,
        recovery_point=broker.recovery_point,
        log_start_offset=broker.log_start_offset,
        rebuild=rebuild,
        repair_bits=repair_bits,
        mark_clean=mark_clean,
        topic_id=topic_id,
        identity=identity.requested(),
        drop_cache=drop_cache,
        coordinator_findings=record_findings,
        **changes,
    )
    run = RecoverRun(options, workers(cluster, common.jobs), _registered)
    asked = Asked(
        metadata=metadata,
        server_properties=server_properties,
        options={name.replace("_", "."): value for name, value in settings.items()},
        assumes_defaults=True,
        is_of_load=True,
    )
    steps = _NextSteps(run, plan, request, is_copy=copy.output is not None)
    style = change_style(
        "recover",
        json=json,
        verbose=verbose,
        shown=common.shown(),
        words=recover_words,
        report=steps.report,
        remains=steps.remains,
        advice=steps.advice,
        after_failure=steps.after_failure,
    )
    look = partial(_look, run, asked)
    return change(recover_group, run, style, request, plan, jobs=common.jobs, look=look)


def _look(run: "RecoverRun", asked: Asked, targets: "Sequence[Target]") -> None:
    """Add to the run what the metadata log, server.properties and a remote log say about its targets."""
    from kseg.cli.remote_evidence import with_remote_epochs
    from kseg.segment.diagnosis import MissingReplica

    finder = finder_for(targets, asked.metadata, server_pairs(asked.server_properties))
    identities, findings = topic_identities(targets, asked.metadata, finder)
    found = replicas_missing(targets, finder)
    run.first_events = (*findings, *chain.from_iterable(found.values()))
    # without those about directories that cannot be listed
    run.missing = {
        log_dir: [each for each in of_log_dir if isinstance(each.diagnosis, MissingReplica)]
        for log_dir, of_log_dir in found.items()
    }
    known, _ = topic_settings(targets, asked, finder)  # its findings are reported already
    run.options = replace(
        run.options, identities=identities, topics=with_remote_epochs(targets, known, identities)
    )


class _NextSteps:
    """Which command follows a run, from the rows of its plan. plan: the given options that the plan depends on. is_copy: whether the run
    writes a copy."""

    def __init__(
        self, run: "RecoverRun", plan: Mapping[str, object], request: "Request", *, is_copy: bool
    ) -> None:
        from kseg.cli.text.recover import RecoverReport

        self.report = RecoverReport(self._to_apply)
        self._run = run
        self._plan = plan
        self._request = request
        self._is_copy = is_copy
        self._is_planned = self._is_unloadable = self._is_metadata_log_repaired = False

    def remains(self, values: Mapping[str, Any]) -> bool:
        """Whether a row of the plan leaves something to do."""
        from kseg.cli.text.recover import is_due, is_planned, repairs_metadata_log, stays_unloadable

        self._is_planned = self._is_planned or is_planned(values)
        self._is_unloadable = self._is_unloadable or stays_unloadable(values)
        self._is_metadata_log_repaired = self._is_metadata_log_repaired or repairs_metadata_log(values)
        return is_due(values)

    def advice(self, tally: "RunSummary") -> str | None:
        """The command to run; empty for none, None for the one that the findings suggest."""
        if tally.metadata_gaps and not (self._is_copy or self._is_metadata_log_repaired):
            return self._doctor()
        if tally.flipped_batches and self._keeps_more_with_bits() and not self.report.options_needed:
            from kseg.cli.next_command import command_line

            return command_line("recover", {**self._plan, "--repair-bits": True}, self._request)
        if self._is_planned and not self.report.options_needed:
            return self._to_apply(_acceptance(tally), None)
        if self._is_copy:
            return ""
        if self._is_unloadable or (self.report.is_start_doubtful and not self.report.options_needed):
            return self._doctor()
        return None if self.report.is_left_damaged else ""

    def _keeps_more_with_bits(self) -> bool:
        """Whether the plan removes batches that --repair-bits restores: its own command, copied as it is, would lose their records."""
        options = self._run.options
        is_plan = not options.apply and not self._is_copy
        return is_plan and options.policy == DEFAULT_POLICY and not options.repair_bits

    def after_failure(self) -> str:
        """After a load failure of policy kafka: the command with the other policy, which repairs it."""
        from kseg.cli.next_command import command_line

        if self._run.options.apply or self._run.options.policy == DEFAULT_POLICY:
            return ""
        other = {name: value for name, value in self._plan.items() if name != "--policy"}
        return command_line("recover", other, self._request)

    def _doctor(self) -> str:
        from kseg.cli.next_command import command_line

        return command_line("doctor", {}, self._request)

    def _to_apply(self, options: Mapping[str, object], paths: tuple[str, ...] | None) -> str:
        """The command that carries out the plan with further options, for all paths or only these."""
        wanted = self._request if paths is None else replace(self._request, paths=paths)
        return command_to_apply(self._run, "recover", {**self._plan, **options}, wanted)


def _registered(log_dirs: Sequence[str]) -> Mapping[int, tuple[str, ...]]:
    """The registered node and directory ids, read only if a meta.properties is lost."""
    from kseg.internal_topics.metadata.registered import registered_directories

    return registered_directories(log_dirs)


def _acceptance(tally: "RunSummary") -> dict[str, object]:
    """The option required by a plan that counts unreadable bytes as lost."""
    return {"--accept-unreadable": True} if tally.unreadable else {}
