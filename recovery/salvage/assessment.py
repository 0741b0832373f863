"""Determine what is in the directory and what is wrong with it: the pass of `verify`, after leftovers are resolved.

One pass over the mapped logs checks bytes, order, indexes, transaction indexes, snapshots and epochs; salvage adds only a consumer
(`valid_runs`) to it. So a directory that needs no repair costs as much as verifying it, and verify accepts what salvage leaves.
"""

import os
from bisect import bisect_right
from collections.abc import Iterator, Mapping
from dataclasses import field, replace

from kseg.change.plan.steps import FileIdentity
from kseg.jobs.events import Event
from kseg.recovery.policy import BrokerState, LoadSettings
from kseg.recovery.salvage.logs import FoundLog
from kseg.recovery.salvage.valid_runs import ValidRunCollector
from kseg.recovery.verify.header_plausibility import HeaderContext
from kseg.recovery.verify.options import VerifyOptions
from kseg.recovery.verify.partition_check import PartitionCheck
from kseg.recovery.verify.partition_files import KnownBatchEnd
from kseg.recovery.verify.segment_check import SegmentCheck, SegmentFacts
from kseg.recovery.verify.totals import Totals
from kseg.segment import layout as L
from kseg.segment.diagnosis import InvalidBytes
from kseg.segment.errors import UnreadableInput
from kseg.segment.files import DISK, Reader
from kseg.segment.findings import INFO, Finding
from kseg.segment.partition.directory import Entry, PartitionDirectory, SegmentFiles, partition_of
from kseg.segment.partition.log_dir_state import LogDirState, read_log_dir_state
from kseg.segment.partition.names import Role, parse_file_name
from kseg.segment.scanning.lost_offsets import UnreadBatch
from kseg.segment.scanning.preallocated_tail import PREALLOCATED
from kseg.segment.sidecar.leader_epochs import EpochHistory
from kseg.segment.state.producer import ProducerState
from kseg.segment.values import dataclass

# Findings about bytes that a broker truncates when it recovers the log.
_TRIMMED = ("index-preallocated", PREALLOCATED)
# A node recovers the metadata log at every start, whatever the marker says (Kafka: KafkaRaftLog.createLog), and 4.4.0 stops without
# trimming its indexes.
_TRIMMED_OF_METADATA_LOG = (PREALLOCATED,)
# Findings about bytes of a file that cannot be read.
UNREADABLE_BYTES = "unreadable"
# By finding id: position in the batch of the field that was altered.
_ALTERED = {"altered-base-offset": 0, "altered-leader-epoch": L.ENTRY_OVERHEAD}


@dataclass(slots=True)
class Assessment:
    """partition: the inventory. logs, collectors: of every `.log`, by base offset. facts: about the segments among them. epochs: the
    leader-epoch checkpoint, None if there is none or it is not trusted. producers: at the log end. unread: batches not returned in full.
    known_ends: where batches of the last segment end according to its side files.
    findings: to be shown, in order. finding_ids: by path."""

    partition: PartitionDirectory
    log_dir_state: LogDirState | None
    logs: list[FoundLog] = field(default_factory=list)
    collectors: list[ValidRunCollector] = field(default_factory=list)
    facts: list[SegmentFacts] = field(default_factory=list)
    producers: ProducerState = field(default_factory=ProducerState)
    epochs: EpochHistory | None = None
    unread: list[UnreadBatch] = field(default_factory=list)
    known_ends: tuple[KnownBatchEnd, ...] = ()
    findings: list[Finding] = field(default_factory=list)
    finding_ids: dict[str, set[str]] = field(default_factory=dict)

    @property
    def needs_no_repair(self) -> bool:
        """Whether nothing was found that salvage would change."""
        if self.has_unfiled_producers or self.has_unreadable_bytes or not self.facts:
            return False
        name = self.partition.name
        trimmed = _TRIMMED_OF_METADATA_LOG if name is not None and name.is_metadata_log else _TRIMMED
        return all(finding.severity == INFO and finding.id not in trimmed for finding in self.findings)

    @property
    def has_unfiled_producers(self) -> bool:
        """Whether the log has producers but no snapshot at all, so there was no clean shutdown. After a clean shutdown, a broker concludes
        from a missing snapshot that there are no producers, and returns records of open transactions (Kafka:
        UnifiedLog.rebuildProducerState)."""
        return not self.partition.snapshots and bool(self.producers.snapshot())

    @property
    def has_unreadable_bytes(self) -> bool:
        """Whether a log or an index has bytes that cannot be read."""
        return any(UNREADABLE_BYTES in ids for ids in self.finding_ids.values())

    def forget_leftovers(self) -> None:
        """Drop the findings about marked files: salvage reads these files and reports more."""
        self.findings = [finding for finding in self.findings if finding.id != "leftover-deleted"]

    def has_finding(self, path: str, *kinds: str) -> bool:
        return not self.finding_ids.get(path, set()).isdisjoint(kinds)


def assess(
    directory: str,
    files: Mapping[str, FileIdentity],
    broker_state: BrokerState,
    settings: LoadSettings,
    reader: Reader = DISK,
) -> Assessment:
    """Assess a partition directory. files: as found, under their names once leftovers are resolved. reader: opens them. Raises
    UnreadableInput when a log cannot be read."""
    partition = partition_of(directory, _entries(directory, files))
    assessment = Assessment(partition, _log_dir_state(partition, broker_state))
    logs = [segment.log for segment in partition.segments]
    logs += [entry for entry in partition.orphans if entry.name.role is Role.LOG]
    bases = sorted({_base(entry) for entry in logs})
    for entry in sorted(logs, key=_base):
        name = os.path.basename(entry.path)
        log = FoundLog(name, entry.name.name, entry.path, _base(entry), entry.size_bytes)
        at = bisect_right(bases, log.base_offset)
        next_base = bases[at] if at < len(bases) else None
        assessment.collectors.append(ValidRunCollector(len(assessment.logs), log, next_base))
        assessment.logs.append(log)
    _run_checks(assessment, settings, reader)
    return assessment


def _run_checks(assessment: Assessment, settings: LoadSettings, reader: Reader) -> None:
    collector_of = {collector.log.path: collector for collector in assessment.collectors}
    topics = {assessment.partition.path: settings.topic}
    options = VerifyOptions(level="default", now_ms=settings.now_ms, topics=topics)
    totals = Totals()

    def collector(segment: SegmentFiles) -> ValidRunCollector:
        return collector_of[segment.log.path]

    check = PartitionCheck(assessment.partition, assessment.log_dir_state, options, totals, collector, reader)
    shown: list[Finding] = []
    for event in _check_events(assessment, check, options, totals, collector_of, reader):
        if not isinstance(event, Finding):
            continue
        log_collector = collector_of.get(event.path)
        if log_collector is not None:
            if event.id == "unreadable-file":
                raise UnreadableInput(event.message)
            log_collector.note(event)
        assessment.finding_ids.setdefault(event.path, set()).add(event.id)
        if totals.admit(event):
            shown.append(event)
    assessment.facts, assessment.producers, assessment.epochs = check.facts, check.replay.state, check.epochs
    assessment.unread, assessment.known_ends = check.unread, check.known_ends
    for path in check.unreadable_paths:  # reported once the target is done, with all others of it
        assessment.finding_ids.setdefault(path, set()).add(UNREADABLE_BYTES)
    assessment.findings = [*shown, *totals.overflow()]


def _check_events(
    assessment: Assessment,
    check: PartitionCheck,
    options: VerifyOptions,
    totals: Totals,
    collector_of: Mapping[str, ValidRunCollector],
    reader: Reader,
) -> Iterator[Event]:
    yield from check.events()
    for entry in assessment.partition.orphans:
        if entry.name.role is Role.LOG:  # named with extra leading zeros, or without a number
            with reader.open(entry.path) as file:
                context = HeaderContext(entry.path, _base(entry), is_last=False)
                yield from SegmentCheck(file, context, options, totals, [collector_of[entry.path]]).events()


def rated_findings(assessment: Assessment) -> Iterator[Finding]:
    """The findings of the assessment, with the outcome that salvage decided; call it once the fixes are final."""
    collector_of = {collector.log.path: collector for collector in assessment.collectors}
    for finding in (
        *assessment.findings,
        *(each for collector in assessment.collectors for each in collector.altered),
    ):
        yield _rated(finding, collector_of)


def _rated(finding: Finding, collector_of: Mapping[str, ValidRunCollector]) -> Finding:
    """A finding about damage with the confidence in the batch after it, or about an altered header with its correction."""
    collector = collector_of.get(finding.path)
    if collector is None or finding.position is None:
        return finding
    if finding.id in _ALTERED:
        position = finding.position - _ALTERED[finding.id]
        return finding.with_numbers(repaired=position in collector.log.fixes)
    resumption = collector.resumptions.get(finding.position)
    if isinstance(finding.diagnosis, InvalidBytes) and finding.diagnosis.flipped:
        them = "it" if len(finding.diagnosis.flipped) == 1 else "them"
        finding = replace(finding, message=f"{finding.message}; --repair-bits restores {them}")
    if resumption is None:
        return finding
    evidence = " ".join(resumption.evidence)
    message = f"{finding.message} ({resumption.confidence} confidence)"
    rated = finding.with_numbers(confidence=resumption.confidence, evidence=evidence)
    return replace(rated, message=message)


def _entries(directory: str, files: Mapping[str, FileIdentity]) -> Iterator[Entry]:
    for name, found in files.items():
        path = os.path.join(directory, found.name)
        yield Entry(path, found.size_bytes, found.mtime_ns // 1_000_000, parse_file_name(name))


def _base(entry: Entry) -> int:
    return entry.name.base_offset or 0


def _log_dir_state(partition: PartitionDirectory, broker_state: BrokerState) -> LogDirState | None:
    """The data directory's own state, overridden by what the user gave."""
    log_dir = broker_state.log_dir
    log_dir_state = (
        LogDirState(os.path.dirname(partition.path), False, None)
        if log_dir is None
        else read_log_dir_state(log_dir)
    )
    name = partition.name
    if name is None:
        return replace(log_dir_state, is_clean=broker_state.is_clean)
    overrides = {
        Role.RECOVERY_POINTS: broker_state.recovery_point or None,
        Role.LOG_START_OFFSETS: broker_state.log_start_offset or None,
        Role.HIGH_WATERMARKS: broker_state.high_watermark,
    }
    key = name.topic, name.partition
    checkpoints = {**log_dir_state.checkpoints}
    for role, offset in overrides.items():
        if offset is not None:
            checkpoints[role] = {key: offset}
    return replace(log_dir_state, is_clean=broker_state.is_clean, checkpoints=checkpoints)
