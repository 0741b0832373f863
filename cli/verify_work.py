"""`verify` with the checks that involve several packages: a partition of a coordinator's topic is also loaded as its coordinator loads it,
and directories are compared with the metadata log."""

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import chain
from typing import TYPE_CHECKING

from kseg.cli.coordinator_loads import coordinator_findings
from kseg.cli.placement_evidence import (
    behind_in_sync,
    identities_after_cut,
    led_by_no_other,
    registered_by_node,
    replicas_missing,
    topic_identities,
    voters_around,
    voters_present,
)
from kseg.cli.start_refusals import (
    Refusals,
    bootstrap_refusal,
    refusals_of,
    truncation_refusals,
    unregistered_brokers,
)
from kseg.cli.topic_evidence import finder_for, load_settings, log_dirs_of, server_pairs
from kseg.jobs.events import Event, Row
from kseg.recovery.broker_start.forecast import StartForecast
from kseg.recovery.broker_start.mounting import Registered
from kseg.recovery.broker_start.node_properties import NodeProperties
from kseg.recovery.broker_start.start_check import TargetStart, VerifyForStart
from kseg.segment.diagnosis import MissingReplica, ReplicaBehind
from kseg.segment.partition.directory import own_partition_name
from kseg.segment.partition.names import METADATA_DIRECTORY, PartitionState
from kseg.segment.partition.targets import LogDirTarget, PartitionTarget, Target

if TYPE_CHECKING:
    from kseg.internal_topics.metadata.metadata_finder import MetadataFinder
    from kseg.recovery.verify.options import VerifyOptions
    from kseg.segment.findings import Finding


class VerifyWithLoads(VerifyForStart):
    """The work of `verify`, with a finding for each record that a coordinator fails to load. `--quick` does not look for them."""

    def further(self, target: Target, options: "VerifyOptions") -> "Iterator[Finding]":
        if isinstance(target, PartitionTarget) and options.level != "quick":
            yield from coordinator_findings(target)


class Verification:
    """One run of `verify` over its targets: the metadata log is read before it, and the forecast of a broker's start follows it.

    metadata: the metadata log that the user named. server_properties: the node's file, server: its content; raises UsageError and
    UnreadableInput if it cannot be used. refusals: why the node of each log dir refuses to start, once the metadata log was read;
    registered: the directory ids of each node.
    """

    def __init__(self, metadata: str | None, server_properties: str | None = None) -> None:
        self._metadata = metadata
        self.server = server_pairs(server_properties)
        self.properties = None if self.server is None else NodeProperties.of(self.server)
        self._forecast = StartForecast(identities_after_cut, self.properties)
        self.refusals: Mapping[str, Refusals] = {}
        self.registered: Registered = {}
        self._finder: MetadataFinder | None = None
        self._log_dirs: list[str] = []
        self._targets: Sequence[Target] = ()
        self._greatest_ids: dict[str, int] = {}  # producer ids, by live partition

    def look(
        self, targets: Sequence[Target], options: "VerifyOptions", finder: "MetadataFinder | None" = None
    ) -> "tuple[VerifyOptions, tuple[Finding, ...]]":
        """The options with what the metadata log says about the targets, and the findings about that log. finder: of these targets, if
        there is one already."""
        finder = finder or self.finder(targets)
        identities, findings = topic_identities(targets, self._metadata, finder)
        missing = tuple(chain.from_iterable(replicas_missing(targets, finder).values()))
        behind = behind_in_sync(targets, finder, self.server)
        created = [finding.path for finding in (*missing, *behind) if _is_of_topic(finding)]
        self._forecast.add_metadata(identities, created)
        self.refusals = refusals_of(targets, finder)
        log_dirs = [target.path for target in targets if isinstance(target, LogDirTarget)]
        self.registered = registered_by_node(log_dirs, finder)
        self._forecast.registered = self.registered
        self._finder, self._log_dirs, self._targets = finder, log_dirs, targets
        for log_dir in log_dirs:
            directory = self._forecast.directory(log_dir)
            directory.voters = voters_around(log_dir, log_dirs, finder)
            present = voters_present(log_dir, log_dirs, finder)
            directory.is_voter_present = not present.isdisjoint(directory.voters)
            directory.uses_zookeeper = finder.uses_zookeeper(log_dir)
            directory.bootstrap_fault = bootstrap_refusal(log_dir)
            if log_dir in self.refusals:
                directory.refused = list(self.refusals[log_dir].thrown())
                directory.contradiction = self.refusals[log_dir].contradiction()
        for log_dir, partitions, registered in led_by_no_other(log_dirs, finder, self.server):
            directory = self._forecast.directory(log_dir)
            directory.led_by_no_other, directory.registered = partitions, registered
        for log_dir, thrown in truncation_refusals(log_dirs, finder).items():
            self._forecast.directory(log_dir).refused_truncation = thrown
        wrong = self._wrong_ids(log_dirs, finder)
        topics = load_settings(targets, self._metadata, finder, self.server)
        return replace(options, identities=identities, topics=topics), (*findings, *missing, *behind, *wrong)

    def _wrong_ids(self, log_dirs: Sequence[str], finder: "MetadataFinder") -> "Sequence[Finding]":
        in_kraft = [log_dir for log_dir in log_dirs if not finder.uses_zookeeper(log_dir)]
        if not in_kraft:
            return ()
        from kseg.internal_topics.metadata.wrong_identities import wrong_identities

        wrong = wrong_identities(in_kraft, finder)
        for log_dir, thrown, is_loaded in unregistered_brokers(wrong):
            self._forecast.directory(log_dir).unregistered = thrown, is_loaded
        return wrong.findings

    @property
    def leaderless(self) -> Sequence[str]:
        """The partitions that have no leader at first; known once all rows have passed."""
        return self._forecast.leaderless

    def finder(self, targets: Sequence[Target]) -> "MetadataFinder":
        if self.properties is None:
            return finder_for(targets, self._metadata)
        from kseg.internal_topics.metadata.metadata_finder import node_of

        own = self.properties.of_own_node(
            {log_dir: node_of(log_dir).node_id for log_dir in log_dirs_of(targets)}
        )
        return finder_for(targets, self._metadata, self.server, self.properties.leaves_out(own))

    def through(self, events: Iterator[Event]) -> Iterator[Event]:
        """The events of the work, followed by what only all partitions together show, and a `broker-start` row for each node."""
        return self._forecast.through(chain(self._noting(events), self._reissued(), self._gaps()))

    def _noting(self, events: Iterator[Event]) -> Iterator[Event]:
        for event in events:
            found = event.result if isinstance(event, Row) else None
            if isinstance(found, TargetStart) and found.greatest_producer_id >= 0:
                name = own_partition_name(found.path)
                if name is not None and name.state is PartitionState.LIVE:
                    self._greatest_ids[found.path] = found.greatest_producer_id
            yield event

    def _reissued(self) -> "Iterator[Finding]":
        if self._greatest_ids and self._finder is not None:
            from kseg.internal_topics.metadata.reissued_producer_ids import reissued_producer_ids

            yield from reissued_producer_ids(self._greatest_ids, self._log_dirs, self._finder)

    def _gaps(self) -> "Iterator[Finding]":
        if self._finder is not None:
            from kseg.cli.remote_losses import remote_findings

            yield from remote_findings(self._targets, self._finder)


def _is_of_topic(finding: "Finding") -> bool:
    """Whether a broker creates the replica if it is missing."""
    is_replica = isinstance(finding.diagnosis, MissingReplica | ReplicaBehind)
    return is_replica and os.path.basename(finding.path) != METADATA_DIRECTORY
