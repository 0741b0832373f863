"""What is there and what is wrong with it: the pass of `verify` over the directory as it is after leftovers are settled.

One pass over the mapped logs judges bytes, order, indexes, transaction indexes, snapshots and epochs; salvage only
looks on (`watch`). So a directory that needs nothing costs what verifying it costs, and what salvage leaves is what
verify finds sound.
"""

import os
from collections.abc import Iterator, Mapping
from dataclasses import field, replace

from kseg.change.plan.steps import FileIdentity
from kseg.jobs.events import Event
from kseg.recovery.policy import Circumstances, LoadSettings
from kseg.recovery.salvage.logs import FoundLog
from kseg.recovery.salvage.valid_runs import Watch
from kseg.recovery.verify.header_plausibility import HeaderPlace
from kseg.recovery.verify.options import VerifyOptions
from kseg.recovery.verify.partition_check import PartitionCheck
from kseg.recovery.verify.segment_check import SegmentCheck, SegmentFacts
from kseg.recovery.verify.totals import Ledger
from kseg.segment import layout as L
from kseg.segment.errors import UnreadableInput
from kseg.segment.files import DISK, Reader
from kseg.segment.findings import INFO, Finding
from kseg.segment.partition.directory import Entry, PartitionDirectory, SegmentFiles, partition_of
from kseg.segment.partition.log_dir_state import Surroundings, surroundings
from kseg.segment.partition.names import Role, parse_file_name
from kseg.segment.sidecar.leader_epochs import EpochHistory
from kseg.segment.state.producer import ProducerState
from kseg.segment.values import dataclass

# Where in a batch the field lies that such a finding is about.
_ALTERED = {"altered-base-offset": 0, "altered-leader-epoch": L.ENTRY_OVERHEAD}


@dataclass(slots=True)
class Assessment:
    """partition: the inventory. logs, watches: of every `.log`, by base offset. facts: of the segments among them.
    epochs: the leader-epoch checkpoint, None when there is none to trust. producers: at the log end. findings: those to be shown, in the order met. blamed: ids of all findings by path."""

    partition: PartitionDirectory
    around: Surroundings | None
    logs: list[FoundLog] = field(default_factory=list)
    watches: list[Watch] = field(default_factory=list)
    facts: list[SegmentFacts] = field(default_factory=list)
    producers: ProducerState = field(default_factory=ProducerState)
    epochs: EpochHistory | None = None
    findings: list[Finding] = field(default_factory=list)
    blamed: dict[str, set[str]] = field(default_factory=dict)

    @property
    def is_at_peace(self) -> bool:
        """Whether nothing was found that salvage would change."""
        if self.has_unfiled_producers or not self.facts:
            return False
        return all(
            finding.severity == INFO and finding.id != "index-preallocated" for finding in self.findings
        )

    @property
    def has_unfiled_producers(self) -> bool:
        """Whether there are producers and no snapshot at all, so that no stop was clean. A broker that finds a clean stop takes
        that for there being no producers, and hands out open transactions (Kafka: UnifiedLog.rebuildProducerState)."""
        return not self.partition.snapshots and bool(self.producers.snapshot())

    def forget_leftovers(self) -> None:
        """Whoever has looked into the marked files tells more of them."""
        self.findings = [finding for finding in self.findings if finding.id != "leftover-deleted"]

    def is_blamed(self, path: str, *kinds: str) -> bool:
        return not self.blamed.get(path, set()).isdisjoint(kinds)


def judge(
    directory: str,
    files: Mapping[str, FileIdentity],
    circumstances: Circumstances,
    settings: LoadSettings,
    reader: Reader = DISK,
) -> Assessment:
    """files: as found, by the names that they would have. reader: opens them. Raises UnreadableInput when a log cannot
    be read."""
    partition = partition_of(directory, _entries(directory, files))
    judgement = Assessment(partition, _around(partition, circumstances))
    logs = [segment.log for segment in partition.segments]
    logs += [entry for entry in partition.orphans if entry.name.role is Role.LOG]
    bases = sorted({_base(entry) for entry in logs})
    for entry in sorted(logs, key=_base):
        name = os.path.basename(entry.path)
        log = FoundLog(name, entry.name.name, entry.path, _base(entry), entry.size_bytes)
        next_base = next((base for base in bases if base > log.base_offset), None)
        judgement.watches.append(Watch(len(judgement.logs), log, next_base))
        judgement.logs.append(log)
    _look(judgement, settings, reader)
    return judgement


def _look(judgement: Assessment, settings: LoadSettings, reader: Reader) -> None:
    watch_of = {watch.log.path: watch for watch in judgement.watches}
    options = VerifyOptions(level="default", now_ms=settings.now_ms)
    ledger = Ledger()

    def watch(segment: SegmentFiles) -> Watch:
        return watch_of[segment.log.path]

    check = PartitionCheck(judgement.partition, judgement.around, options, ledger, watch, reader)
    shown: list[Finding] = []
    for event in _everything(judgement, check, options, ledger, watch_of, reader):
        if not isinstance(event, Finding):
            continue
        watched = watch_of.get(event.path)
        if watched is not None:
            if event.id == "unreadable-file":
                raise UnreadableInput(event.message)
            watched.note(event)
        judgement.blamed.setdefault(event.path, set()).add(event.id)
        if ledger.admit(event):
            shown.append(event)
    judgement.facts, judgement.producers, judgement.epochs = check.facts, check.replay.state, check.epochs
    judgement.findings = [*shown, *ledger.overflow()]


def _everything(
    judgement: Assessment,
    check: PartitionCheck,
    options: VerifyOptions,
    ledger: Ledger,
    watch_of: Mapping[str, Watch],
    reader: Reader,
) -> Iterator[Event]:
    yield from check.events()
    for entry in judgement.partition.orphans:
        if entry.name.role is Role.LOG:  # a second spelling of a number, or none at all
            with reader.open(entry.path) as file:
                place = HeaderPlace(entry.path, _base(entry), is_last=False)
                yield from SegmentCheck(file, place, options, ledger, [watch_of[entry.path]]).events()


def weighed_findings(judgement: Assessment) -> Iterator[Finding]:
    """The findings of the judgement with what salvage makes of them; to be asked when the fixes are final."""
    watch_of = {watch.log.path: watch for watch in judgement.watches}
    for finding in (*judgement.findings, *(each for watch in judgement.watches for each in watch.altered)):
        yield _weighed(finding, watch_of)


def _weighed(finding: Finding, watch_of: Mapping[str, Watch]) -> Finding:
    """Damage says how sure it is that a batch follows; what is altered, that it is set right."""
    watch = watch_of.get(finding.path)
    if watch is None or finding.position is None:
        return finding
    if finding.id in _ALTERED:
        position = finding.position - _ALTERED[finding.id]
        return replace(finding, numbers={**finding.numbers, "repaired": position in watch.log.fixes})
    resumption = watch.resumptions.get(finding.position)
    if resumption is None:
        return finding
    evidence = " ".join(resumption.evidence)
    message = f"{finding.message} ({resumption.confidence} confidence)"
    numbers = {**finding.numbers, "confidence": resumption.confidence, "evidence": evidence}
    return replace(finding, message=message, numbers=numbers)


def _entries(directory: str, files: Mapping[str, FileIdentity]) -> Iterator[Entry]:
    for name, found in files.items():
        path = os.path.join(directory, found.name)
        yield Entry(path, found.size_bytes, found.mtime_ns // 1_000_000, parse_file_name(name))


def _base(entry: Entry) -> int:
    return entry.name.base_offset or 0


def _around(partition: PartitionDirectory, circumstances: Circumstances) -> Surroundings | None:
    """What the data directory says, as far as the user did not say otherwise."""
    log_dir = circumstances.log_dir
    around = (
        Surroundings(os.path.dirname(partition.path), False, None)
        if log_dir is None
        else surroundings(log_dir)
    )
    name = partition.name
    if name is None:
        return replace(around, is_clean=circumstances.is_clean)
    said = {
        Role.RECOVERY_POINTS: circumstances.recovery_point or None,
        Role.LOG_START_OFFSETS: circumstances.log_start_offset or None,
        Role.HIGH_WATERMARKS: circumstances.high_watermark,
    }
    key = name.topic, name.partition
    checkpoints = {**around.checkpoints}
    for role, offset in said.items():
        if offset is not None:
            checkpoints[role] = {key: offset}
    return replace(around, is_clean=circumstances.is_clean, checkpoints=checkpoints)
