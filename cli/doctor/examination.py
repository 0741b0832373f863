"""The events of `kseg doctor`: run several commands on the same data directories, once each, and derive the next steps.

1. The machine: is a broker running, was the last shutdown clean, how much space is free (`inspection.log_dir_host`).
2. The node and its metadata version (the metadata log).
3. `verify`, with its forecast of a broker's start.
4. For each partition with an error, the cost of its repair under either policy (the plan of `recover`).
5. Hanging transactions (`transactions`), committed offsets outside their logs, and those that expire soon after a start (`groups`).
6. What retention deletes as soon as a broker has started (`due_retention`), and what no cleaner cleans (`uncleaned_steps`).
7. Files that are no longer needed, and what is kept for `undo` (`inspection.disk_leftovers`, `undo --list`).
8. The steps to take (`next_steps`).

Rows of the other commands are passed on unchanged. Findings of 4 and 5 about files are dropped because 3 has reported them.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from kseg.cli.doctor.client_events import group_events, transaction_events
from kseg.cli.doctor.damaged_partitions import DamagedPartitions, Over
from kseg.cli.doctor.doctor_rows import bootstrap_server, host_row, leftovers_row, node_row, step_row
from kseg.cli.doctor.metadata_log_steps import lacks_metadata_log, renamed_metadata_log
from kseg.cli.doctor.new_metadata_log_steps import topics_in
from kseg.cli.doctor.next_step import ANY_SERVER
from kseg.cli.doctor.next_steps import next_steps
from kseg.cli.doctor.several_nodes_steps import OtherNode, node_words
from kseg.cli.doctor.situation import Situation
from kseg.cli.remote_evidence import remote_ranges, with_remote_epochs
from kseg.cli.request import Request
from kseg.cli.topic_evidence import Asked, topic_settings
from kseg.cli.verify_work import Verification
from kseg.inspection.disk_leftovers import Leftover, LeftoverKind, leftovers
from kseg.inspection.log_dir_host import log_dir_host
from kseg.jobs.events import Event, Failure, Row
from kseg.recovery.broker_start.log_dir_start import is_empty_directory
from kseg.recovery.broker_start.mounting import Mounted
from kseg.segment.diagnosis import UnusableGroups
from kseg.segment.errors import KsegError
from kseg.segment.findings import Finding
from kseg.segment.partition.log_dir_state import has_metadata_log
from kseg.segment.partition.targets import FileTarget, LogDirTarget, PartitionTarget, Target, log_dir_of

if TYPE_CHECKING:
    from kseg.internal_topics.groups.group_results import OffsetOfGroup
    from kseg.internal_topics.groups.offset_expiry import ExpiryCheck
    from kseg.internal_topics.metadata.metadata_finder import MetadataFinder
    from kseg.internal_topics.metadata.metadata_image import MetadataImage, Node
    from kseg.recovery.repair.options import RecoverOptions
    from kseg.recovery.verify.options import VerifyOptions


class Examination:
    """One run of `doctor`. metadata: the metadata log that the user named. verification: the run of `verify` that is part of it.
    now_ms: the time of the run."""

    def __init__(
        self, request: Request, metadata: str | None, verification: Verification, over: Over, now_ms: int
    ) -> None:
        self._request = request
        self._metadata = metadata
        self._over = over
        self._now_ms = now_ms
        self._verification = verification
        self._targets: Sequence[Target] = ()
        self._finder: MetadataFinder | None = None
        self._options: VerifyOptions | None = None
        self._situation = Situation(request)
        self._situation.clients.now_ms = now_ms
        self._damaged = DamagedPartitions(self._situation)

    def look(
        self, targets: Sequence[Target], options: "VerifyOptions"
    ) -> "tuple[VerifyOptions, Sequence[Event]]":
        """Examine the machine and the nodes before the verification; returns its options, and the rows found."""
        self._targets = targets
        self._situation.topics = topics_in(targets)
        self._finder = self._verification.finder(targets)
        self._options, findings = self._verification.look(targets, options, self._finder)
        return self._options, [*self._hosts(), *findings]

    def through(self, events: Iterator[Event]) -> Iterator[Event]:
        """Pass on the events of the verification, then yield everything that depends on its findings."""
        partitions = {target.path: target for target in self._targets if isinstance(target, PartitionTarget)}
        examined = {target.path for target in self._targets if not isinstance(target, FileTarget)}
        self._situation.damaged_replicas.partitions = [*partitions]
        self._situation.damaged_replicas.options = self._options
        for event in self._verification.through(events):
            if isinstance(event, Finding):
                self._situation.note(event)
                self._damaged.note(event, partitions)
            elif isinstance(event, Failure) and event.path not in examined:
                obstacles = self._situation.obstacles
                is_empty = is_empty_directory(event.path)
                (obstacles.given_empty if is_empty else obstacles.unread).append(event.path)
            yield event
        self._situation.leaderless += self._verification.leaderless
        yield from self._costs()
        self._note_lost_identities()
        yield from transaction_events(
            self._request.paths, partitions.values(), self._settled, self._situation.clients, self._over
        )
        yield from self._groups()
        yield from self._due_deletions(partitions)
        yield from self._uncleaned(partitions)
        yield from self._left_over()
        self._note_deleted_topics()
        self._note_deleted_early(partitions)
        self._situation.replicas.remote = remote_ranges(self._targets, self._situation.replicas.tiered)
        for number, step in enumerate(next_steps(self._situation), 1):
            yield Row(step_row(number, step))

    @property
    def _settled(self) -> "MetadataFinder | None":
        """The metadata logs as the verification has read them; None beside a running broker, which has written more since then."""
        return None if self._situation.disks.is_broker_running else self._finder

    # --- before the verification

    def _note_properties(self) -> None:
        file, properties = self._request.also.get("--server-properties"), self._verification.properties
        if file is None or properties is None or self._finder is None:
            return
        from kseg.cli.doctor.properties_steps import PropertiesOfNode, unformatted_log_dirs

        nodes = {host.path: self._finder.node_of(host.path) for host in self._situation.disks.hosts}
        log_dirs = properties.of_own_node({path: node.node_id for path, node in nodes.items()})
        if len(log_dirs) < len(nodes):
            own = nodes[log_dirs[0]]
            self._situation.identities.configured = node_words(own.node_id, own.cluster_id)
        with_log = [path for path in log_dirs if has_metadata_log(path)]
        ids = {nodes[path].node_id for path in log_dirs} - {None}
        image = self._finder.image_for(log_dirs[0]) if log_dirs else None
        self._situation.properties = PropertiesOfNode(
            str(file),
            properties,
            next(iter(ids)) if len(ids) == 1 else None,
            with_log[0] if len(with_log) == 1 else None,
            tuple(log_dirs),
            self._verification.server or {},
            () if image is None else image.voters,
        )
        self._situation.obstacles.unformatted = unformatted_log_dirs(properties, log_dirs)

    def _hosts(self) -> Iterator[Row]:
        nodes: dict[str, Row] = {}
        for log_dir in dict.fromkeys(map(_log_dir, self._targets)):
            if log_dir is None:
                continue
            host = log_dir_host(log_dir)
            self._situation.disks.hosts.append(host)
            assert self._finder is not None
            own = self._finder.node_of(log_dir)
            identities = self._situation.identities
            identities.nodes.setdefault(node_words(own.node_id, own.cluster_id), []).append(log_dir)
            identities.mounted.append(_mounted(log_dir, own))
            if own.node_id is not None and not host.is_running:
                self._situation.replicas.stopped_nodes.add(own.node_id)
            yield Row(host_row(host, own))
            self._situation.cluster_id = self._situation.cluster_id or own.cluster_id
            image = self._finder.image_for(log_dir)
            if image is not None:
                node_id = own.node_id
                self._note_node(image, node_id)
                refused = self._verification.refusals[log_dir]
                self._situation.metadata.refused_features |= {each.name: each for each in refused.features}
                self._situation.metadata.refused_configs |= {
                    (each.topic, each.name): each for each in refused.configs
                }
                by_metadata = self._finder.node_told_by_metadata(log_dir)
                if node_id is not None and by_metadata is not None and node_id != by_metadata:
                    self._situation.identities.of_other_nodes.append(OtherNode(log_dir, node_id, by_metadata))
                nodes.setdefault(image.path, Row(node_row(image, node_id)))
        log_dirs = [host.path for host in self._situation.disks.hosts]
        self._situation.identities.registered = self._verification.registered
        self._situation.metadata.is_read = bool(nodes)
        self._situation.metadata.is_lacking = not nodes and lacks_metadata_log(log_dirs)
        self._situation.metadata.renamed = renamed_metadata_log(log_dirs)
        self._note_properties()
        yield from nodes.values()

    def _note_node(self, image: "MetadataImage", node_id: int | None) -> None:
        self._situation.node_id = node_id
        metadata = self._situation.metadata
        metadata.has_dynamic_quorum |= any(voter.directory_id is not None for voter in image.voters)
        metadata.latest_ms = max(metadata.latest_ms, image.timestamp_ms)
        self._situation.server = bootstrap_server(image, node_id) or ANY_SERVER

    # --- the cost of repairs

    def _costs(self) -> Iterator[Row]:
        damaged = self._damaged.targets
        if damaged:
            yield from self._damaged.costs(self._over, self._recover_options(damaged))

    def _recover_options(self, damaged: Sequence[Target]) -> "RecoverOptions":
        from kseg.recovery.policy import LoadSettings
        from kseg.recovery.repair.options import RecoverOptions

        asked = Asked(
            metadata=self._metadata, server=self._verification.server, assumes_defaults=True, is_of_load=True
        )
        topics, _ = topic_settings(damaged, asked, self._finder)
        identities = None if self._options is None else self._options.identities
        return RecoverOptions(
            repair_bits=self._situation.repairs.flipped_batches > 0,
            settings=LoadSettings(now_ms=self._now_ms),
            identities=identities,
            topics=with_remote_epochs(damaged, topics, identities),
        )

    def _note_lost_identities(self) -> None:
        """Note which values of a lost meta.properties have to come from the user, since `recover` cannot write the file without them."""
        if not self._situation.identities.lost:
            return
        from kseg.internal_topics.metadata.registered import registered_directories
        from kseg.internal_topics.metadata.wrong_identities import cluster_id_of
        from kseg.recovery.repair.log_dir import identity_in_run
        from kseg.recovery.repair.meta_properties_repair import RequestedIdentity

        log_dirs = [target.path for target in self._targets if isinstance(target, LogDirTarget)]
        for log_dir in log_dirs:
            if log_dir not in self._situation.identities.lost:
                continue
            repair = identity_in_run(
                log_dir, log_dirs, RequestedIdentity(), self._now_ms, registered_directories
            )
            if repair is not None and repair.needed:
                self._situation.identities.values_needed[log_dir] = repair
                known = None
                if repair.needed == ("--cluster-id",) and self._finder is not None:
                    known = cluster_id_of(log_dir, log_dirs, self._finder)
                if known is not None:
                    self._situation.identities.cluster_ids[log_dir] = known

    # --- groups

    def _groups(self) -> Iterator[Event]:
        from kseg.internal_topics.groups.group_results import (
            CoordinatorsOffsets,
            ForgottenState,
            OffsetOfGroup,
            PendingOffset,
            ShareStateOfGroup,
            StatelessPartition,
        )
        from kseg.internal_topics.groups.offset_expiry import ExpiringOffsets

        situation, offsets = self._situation, CoordinatorsOffsets[Row | None]()
        server = self._verification.server
        for event in group_events(
            self._request, self._metadata, self._settled, server, self._expiry_check, self._over
        ):
            if isinstance(event, Finding):
                # `verify` reports the others
                if isinstance(event.diagnosis, UnusableGroups):
                    situation.clients.unusable_groups.append(event.diagnosis)
                    yield event
                continue
            row, found = event, event.result
            if isinstance(found, OffsetOfGroup):
                # most rows are not needed
                offsets.add(found, row if self._is_unusable(found) else None)
            elif isinstance(found, PendingOffset):
                situation.clients.pending.append(found)
            elif isinstance(found, StatelessPartition):
                situation.clients.stateless.append(found)
                yield row
            elif isinstance(found, ForgottenState):
                situation.clients.forgotten.append(found)
                yield row
            elif isinstance(found, ShareStateOfGroup) and self._damaged.leaves_ahead(found):
                situation.clients.ahead.append(found)
                yield row
            elif isinstance(found, ExpiringOffsets):
                situation.expiring.append(found)
                yield row
        for unusable in offsets.by_key.values():
            if unusable is not None and isinstance(unusable.result, OffsetOfGroup):
                self._note_unusable(unusable.result)
                yield unusable

    def _is_unusable(self, offset: "OffsetOfGroup") -> bool:
        """Whether consumers of the group do not continue where it has stopped, after the repairs."""
        is_lost = not offset.is_reachable or offset.is_of_former_topic or offset.is_of_deleted_topic
        return is_lost or (offset.is_outside_log and not self._damaged.will_contain(offset))

    def _note_unusable(self, offset: "OffsetOfGroup") -> None:
        clients = self._situation.clients
        if not offset.is_reachable:
            clients.unreachable.append(offset)
        elif offset.is_of_former_topic:
            clients.of_former_topics.append(offset)
        elif offset.is_of_deleted_topic:
            clients.of_deleted_topics.append(offset)
        else:
            clients.stranded.append(self._damaged.with_repaired_end(offset))

    def _expiry_check(self, targets: Iterable[Target]) -> "ExpiryCheck | None":
        """Of the partitions of groups, which --topic does not narrow."""
        from kseg.cli.doctor.expiring_steps import expiry_check

        wanted = self._loaded_as_they_are(targets)
        if wanted and self._finder is not None:
            self._situation.expiry = expiry_check(
                wanted, self._verification.server, self._finder, self._now_ms
            )
        return self._situation.expiry

    # --- retention and leftovers

    def _loaded_as_they_are(self, targets: Iterable[Target]) -> list[PartitionTarget]:
        """The partitions that a broker loads unchanged; none if a broker is running, since it has already done what it does after a
        start."""
        return [] if self._situation.disks.is_broker_running else self._undamaged(targets)

    def _undamaged(self, targets: Iterable[Target]) -> list[PartitionTarget]:
        """The partitions that a broker serves as they are."""
        situation = self._situation
        others = {
            *(target.path for target in self._damaged.targets),
            *situation.unserved.of_unknown_topics,
            *situation.unserved.of_other_topics,
            *situation.unserved.wrong_ids,
        }
        partitions = [target for target in targets if isinstance(target, PartitionTarget)]
        return [target for target in partitions if target.log_dir and target.path not in others]

    def _due_deletions(self, partitions: Mapping[str, PartitionTarget]) -> Iterator[Row]:
        situation, wanted = self._situation, self._loaded_as_they_are(partitions.values())
        if not wanted:
            return
        from kseg.cli.doctor.due_retention import due_deletions, retention_rows

        server = self._verification.server
        asked = Asked(metadata=self._metadata, server=server)
        situation.due_deletions += due_deletions(wanted, asked, self._finder, self._over, self._now_ms)
        yield from map(Row, retention_rows(situation.due_deletions, is_default_known=server is not None))

    def _uncleaned(self, partitions: Mapping[str, PartitionTarget]) -> Iterator[Row]:
        situation, wanted = self._situation, self._undamaged(partitions.values())
        if not wanted:
            return
        from kseg.cli.doctor.uncleaned_steps import uncleaned_logs, uncleaned_row

        asked = Asked(metadata=self._metadata, server=self._verification.server)
        situation.uncleaned += uncleaned_logs(wanted, asked, self._finder, self._over, self._now_ms)
        yield from (Row(uncleaned_row(each), each) for each in situation.uncleaned)

    def _note_deleted_topics(self) -> None:
        if self._finder is None or self._situation.disks.is_broker_running:
            return
        from kseg.cli.doctor.deleted_topic_steps import of_deleted_topics

        self._situation.deleted += of_deleted_topics(self._situation.disks.leftovers, self._finder)

    def _note_deleted_early(self, partitions: Mapping[str, PartitionTarget]) -> None:
        disks = self._situation.disks
        if self._situation.metadata.latest_ms > self._now_ms and not disks.is_broker_running:
            from kseg.cli.doctor.clock_steps import deleted_early

            self._situation.deleted_early += deleted_early(
                disks.leftovers,
                [*partitions.values()],
                self._situation.metadata.latest_ms - self._now_ms,
                self._over,
            )

    def _left_over(self) -> Iterator[Row]:
        from kseg.change.run.undo_runs import runs_below

        for target in self._targets:
            if not isinstance(target, LogDirTarget):
                continue
            by_kind: dict[LeftoverKind, list[Leftover]] = {}
            for each in leftovers(target):
                by_kind.setdefault(each.kind, []).append(each)
            for kind, found in by_kind.items():
                self._situation.disks.leftovers += found
                held_bytes = sum(each.size_bytes for each in found)
                yield Row(leftovers_row(target.path, kind.value, [each.path for each in found], held_bytes))
            try:
                runs = runs_below(target.path)
            except KsegError:  # verify reports what is wrong with a journal
                continue
            if runs:
                kept_bytes = sum(run.held_bytes() for run in runs)
                self._situation.disks.undo_bytes += kept_bytes
                kept = [journal.location.directory for run in runs for journal in run.journals]
                yield Row(leftovers_row(target.path, "kept for undo", kept, kept_bytes))


def _log_dir(target: Target) -> str | None:
    if isinstance(target, LogDirTarget):
        return target.path
    return log_dir_of(target) if isinstance(target, PartitionTarget) else None


def _mounted(log_dir: str, node: "Node") -> Mounted:
    own = None if (node.cluster_id, node.node_id) == (None, None) else (node.cluster_id, node.node_id)
    return Mounted(log_dir, own, node.directory_id, has_metadata_log(log_dir))
