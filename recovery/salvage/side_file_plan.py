"""Decide which side files are rebuilt and which are removed.

    indexes, transaction index   rebuilt for a log that changed; if wrong, missing, partly unreadable, or preallocated as after a crash
                                 (a broker that starts after a clean shutdown would take the zeros for entries)
    snapshots                    rebuilt at the base offsets and the log end after a change, and if wrong. Removed beyond
                                 the log end, if unreadable, and after a change if no segment starts there
    leader epochs                rebuilt if wrong, missing, or in conflict with the kept logs; entries beyond the log end
                                 are removed
    side files of a missing log  removed

Everything else is kept. With the option `rebuild` all are written, as by a load that finds none.
"""

from collections.abc import Iterator, Mapping

from kseg.recovery.policy import BrokerState, LoadSettings
from kseg.recovery.salvage.assessment import UNREADABLE_BYTES, Assessment
from kseg.recovery.salvage.logs import Logs
from kseg.recovery.salvage.rebuilt_side_files import (
    MAX_CUT,
    Range,
    Rebuilt,
    Wanted,
    file_of,
    missing_aborted,
    rebuild,
)
from kseg.recovery.salvage.segment_layout import PlannedSegment
from kseg.recovery.salvage.working_image import WorkingImage
from kseg.segment.errors import FormatError, UnreadableInput
from kseg.segment.findings import Finding
from kseg.segment.partition.names import (
    INDEX_ROLES,
    NAME_BY_ROLE,
    FileName,
    Role,
    parse_file_name,
    segment_file_name,
)
from kseg.segment.sidecar.checkpoint import decode_leader_epochs, encode_leader_epochs
from kseg.segment.sidecar.leader_epochs import EpochHistory
from kseg.segment.sidecar.snapshot import decode_snapshot
from kseg.segment.sidecar.txn_index import TxnIndex, encode_txn_index
from kseg.segment.state.producer import OpenTransaction, ProducerState

_EPOCHS = NAME_BY_ROLE[Role.LEADER_EPOCHS]
_PREALLOCATED = "index-preallocated"
_OFFSET_INDEX_FLAWS = (
    "index-bad-size",
    "index-oversized",
    "index-zero-tail",
    "index-not-sorted",
    "index-entry-mismatch",
    "index-entry-beyond-log",
    "index-below-base",
    "unreadable-file",
    UNREADABLE_BYTES,
    _PREALLOCATED,
)
_FLAWS = {
    Role.OFFSET_INDEX: _OFFSET_INDEX_FLAWS,
    Role.TIME_INDEX: (
        *_OFFSET_INDEX_FLAWS,
        "time-index-mismatch",
        "time-index-out-of-order",
        "time-index-offset-not-found",
        "time-index-incomplete",
    ),
    Role.TXN_INDEX: (
        "txn-index-bad-size",
        "txn-index-bad-version",
        "txn-index-not-sorted",
        "txn-index-below-base",
        "txn-index-missing-entry",
        "txn-index-wrong-entry",
        "unreadable-file",
        UNREADABLE_BYTES,
    ),
}
_ABSENCES = {Role.OFFSET_INDEX: "index-missing", Role.TIME_INDEX: "time-index-missing"}
_BAD_EPOCHS = (
    "leader-epoch-file-corrupt",
    "leader-epoch-file-mismatch",
    "leader-epoch-file-empty",
    "remote-epochs-lost",
    "unreadable-file",
)
_BAD_SNAPSHOT = ("snapshot-corrupt", "snapshot-mismatch", "unreadable-file")


class SideFilePlan:
    """Plans the side files in a draft. producers: at the log end; findings: those of the replay; cut: transactions
    that were open at offsets that are lost, with these offsets."""

    def __init__(
        self,
        working_image: WorkingImage,
        assessment: Assessment,
        logs: Logs,
        segments: tuple[PlannedSegment, ...],
        changed: frozenset[int],
        broker_state: BrokerState,
        settings: LoadSettings,
        *,
        rebuild: bool,
    ) -> None:
        self.producers = assessment.producers
        self.findings: list[Finding] = []
        self.cut: list[tuple[OpenTransaction, Range]] = []
        self._working_image = working_image
        self._assessment = assessment
        self._logs = logs
        self._segments = segments
        self._changed = changed
        self._broker_state = broker_state
        self._settings = settings
        self._rebuild = rebuild

    def apply(self, log_start_offset: int, end_offset: int, lost: list[Range]) -> None:
        """lost: ranges of offsets that are lost, in order."""
        self._remove_orphans()
        flawed = self._with_all_time_indexes(dict(self._flawed()))
        wanted = self._wanted(flawed, end_offset)
        if wanted == Wanted() and not self._is_reordered():
            self._remove_snapshots(wanted, Rebuilt(), end_offset)
            opened = self.producers.open_transactions[:MAX_CUT] if lost else ()
            self.cut = [(one, last) for one in opened for last in lost[-1:] if last[0] > one.first_offset]
            return
        start = ProducerState(self._segments[0].base_offset) if self._segments else ProducerState()
        if not self._rebuild:
            start = self._start()
        made = rebuild(self._logs, self._segments, start, wanted, self._settings, log_start_offset, lost)
        self.producers, self.findings, self.cut = made.producers, made.findings, made.cut
        self._put_indexes(flawed, made)
        self._remove_snapshots(wanted, made, end_offset)
        self._put_snapshots(made)
        self._put_epochs(wanted, made, end_offset)

    def _is_reordered(self) -> bool:
        """Whether whole logs are removed, so that the assessment replayed more than is kept."""
        return len(self._segments) != len(self._assessment.logs)

    # --- what is wanted

    def _wanted(self, flawed: dict[int, frozenset[Role]], end_offset: int) -> Wanted:
        above = None
        if self._rebuild:
            above = -1
        elif self._changed:
            above = min(self._segments[number].base_offset for number in self._changed)
        snapshots = {offset for offset in self._bad_snapshots() if self._has_place(offset, end_offset)}
        known = {segment.base_offset for segment in self._assessment.partition.segments}
        # a snapshot at an offset where no segment began has not been checked yet
        snapshots |= {segment.base_offset for segment in self._segments[1:]} - known
        if self._segments and self._is_left_by_a_crash():
            snapshots.add(end_offset)
        return Wanted(
            frozenset(flawed),
            above,
            frozenset(snapshots),
            bool(self._changed) or self._are_epochs_flawed() or self._rebuild,
        )

    def _flawed(self) -> Iterator[tuple[int, frozenset[Role]]]:
        """The indexes to rebuild, by number of the segment."""
        for number, segment in enumerate(self._segments):
            if number in self._changed or self._rebuild:
                yield number, frozenset(INDEX_ROLES)
                continue
            log_path = self._working_image.path(file_of(segment, Role.LOG))
            roles = {
                role
                for role, flaws in _FLAWS.items()
                if self._assessment.has_finding(self._working_image.path(file_of(segment, role)), *flaws)
            }
            roles |= {
                role for role, kind in _ABSENCES.items() if self._assessment.has_finding(log_path, kind)
            }
            # an empty active segment needs no indexes, but a clean shutdown creates them
            is_cut_short = number == len(self._segments) - 1 and self._is_left_by_a_crash()
            there = self._working_image.image
            if (roles or is_cut_short) and file_of(segment, Role.OFFSET_INDEX) not in there:
                roles.add(Role.OFFSET_INDEX)
            if is_cut_short and file_of(segment, Role.TIME_INDEX) not in there and self._has_time_indexes():
                roles.add(Role.TIME_INDEX)
            if roles:
                yield number, frozenset(roles)

    def _has_time_indexes(self) -> bool:
        return any(file_of(each, Role.TIME_INDEX) in self._working_image.image for each in self._segments)

    def _with_all_time_indexes(self, flawed: dict[int, frozenset[Role]]) -> dict[int, frozenset[Role]]:
        """A log of magic 0 needs no time indexes, but if one segment gets or has one, all segments need one."""
        lacking = {
            number
            for number, segment in enumerate(self._segments)
            if file_of(segment, Role.TIME_INDEX) not in self._working_image.image
        }
        if not any(Role.TIME_INDEX in roles for roles in flawed.values()):
            return flawed
        more = {number: flawed.get(number, frozenset()) | {Role.TIME_INDEX} for number in lacking}
        return dict(sorted({**flawed, **more}.items()))

    def _is_left_by_a_crash(self) -> bool:
        """Whether the snapshot at the log end comes from a crash and not from a clean shutdown: the index of the active segment has room
        for more entries, or may have if it is unreadable, or there is no index."""
        path = self._working_image.path(file_of(self._segments[-1], Role.OFFSET_INDEX))
        kinds = (_PREALLOCATED,) if self._broker_state.is_clean else (_PREALLOCATED, UNREADABLE_BYTES)
        return self._assessment.has_finding(path, *kinds) or self._assessment.has_unfiled_producers

    def _has_place(self, offset: int, end_offset: int) -> bool:
        return offset == end_offset or any(segment.base_offset == offset for segment in self._segments[1:])

    def _snapshots(self) -> Iterator[FileName]:
        for name in self._working_image.image:
            parsed = parse_file_name(name)
            if parsed.role is Role.PRODUCER_SNAPSHOT and parsed.is_live and parsed.base_offset is not None:
                yield parsed

    def _bad_snapshots(self) -> set[int]:
        return {
            name.base_offset
            for name in self._snapshots()
            if name.base_offset is not None
            and self._assessment.has_finding(self._working_image.path(name.name), *_BAD_SNAPSHOT)
        }

    def _are_epochs_flawed(self) -> bool:
        if self._assessment.has_finding(self._working_image.path(_EPOCHS), *_BAD_EPOCHS):
            return True
        missing = "leader-epoch-file-missing", "remote-epochs-lost"
        return self._assessment.has_finding(self._working_image.directory, *missing)

    def _start(self) -> ProducerState:
        """The producers with which a load begins: those of the newest readable snapshot at or below the first segment."""
        if not self._segments:
            return ProducerState()
        first = self._segments[0].base_offset
        usable = {
            name.base_offset: name.name
            for name in self._snapshots()
            if name.base_offset is not None
            and self._broker_state.log_start_offset < name.base_offset <= first
        }
        for offset in sorted(usable, reverse=True):
            try:
                entries = decode_snapshot(self._working_image.read(usable[offset]))
            except (FormatError, UnreadableInput):
                continue
            if any(entry.last_offset >= offset for entry in entries):
                continue  # this snapshot belongs to another log
            now_ms, expiration_ms = self._settings.now_ms, self._settings.producer_id_expiration_ms
            return ProducerState.load(entries, first, now_ms, expiration_ms)
        return ProducerState(first)

    # --- what is written, what goes

    def _remove_orphans(self) -> None:
        """Indexes whose log does not exist, or whose name does not match that of the log."""
        bases = {segment.base_offset for segment in self._segments}
        for name in list(self._working_image.image):
            parsed = parse_file_name(name)
            if parsed.role not in INDEX_ROLES or not parsed.is_live or parsed.remote_segment_id:
                continue
            if parsed.base_offset is None:
                continue
            if parsed.base_offset not in bases:
                self._working_image.remove(name, "there is no log with this base offset")
            elif not parsed.is_well_formed:
                self._working_image.remove(name, "no broker reads an index with this name")

    def _put_indexes(self, flawed: dict[int, frozenset[Role]], made: Rebuilt) -> None:
        for number, segment in enumerate(self._segments):
            roles = flawed.get(number, frozenset())
            why = "rebuilt: its log changed" if number in self._changed else "rebuilt from the log"
            for role in (Role.OFFSET_INDEX, Role.TIME_INDEX):
                if role in roles:
                    self._working_image.put(file_of(segment, role), made.files[file_of(segment, role)], why)
            if Role.TXN_INDEX in roles:
                self._put_txn_index(file_of(segment, Role.TXN_INDEX), made.files, why)
            elif self._lacks_aborted(number, segment, made):
                self._add_aborted(segment, number, made)

    def _put_txn_index(self, name: str, files: dict[str, bytes], why: str) -> None:
        data = files[name]
        if data or (name in self._working_image.image and not self._rebuild):
            self._working_image.put(name, data, why)  # a broker empties an existing one
        elif name in self._working_image.image:
            self._working_image.remove(name, "its log has no aborted transaction")

    def _lacks_aborted(self, number: int, segment: PlannedSegment, made: Rebuilt) -> bool:
        """Whether an unchanged log holds an ABORT marker that only now ends a transaction."""
        if not made.aborted[number]:
            return False
        name = file_of(segment, Role.TXN_INDEX)
        data = self._working_image.read(name) if name in self._working_image.image else b""
        return missing_aborted(made.aborted[number], TxnIndex(data, segment.base_offset))

    def _add_aborted(self, segment: PlannedSegment, number: int, made: Rebuilt) -> None:
        name = file_of(segment, Role.TXN_INDEX)
        self._working_image.put(
            name, encode_txn_index(made.aborted[number]), "it lacks an aborted transaction"
        )

    def _remove_snapshots(self, wanted: Wanted, made: Rebuilt, end_offset: int) -> None:
        if not self._segments:
            return
        bad, first = self._bad_snapshots(), self._segments[0].base_offset
        for name in list(self._snapshots()):
            offset = name.base_offset
            assert offset is not None
            if segment_file_name(offset, ".snapshot") in made.files and name.is_well_formed:
                continue
            if offset > end_offset:
                self._working_image.remove(name.name, f"the log ends at offset {end_offset}")
            elif offset in bad:
                where = "the log begins there" if offset == first else "no segment starts there"
                self._working_image.remove(name.name, f"it cannot be read or is wrong, and {where}")
            elif wanted.snapshots_above is not None and offset > wanted.snapshots_above:
                self._working_image.remove(
                    name.name, "no segment starts there, and the log changed before it"
                )

    def _put_snapshots(self, made: Rebuilt) -> None:
        for name, data in made.files.items():
            if name.endswith(".snapshot"):
                self._working_image.put(name, data, "rebuilt by a replay of the log")

    def _put_epochs(self, wanted: Wanted, made: Rebuilt, end_offset: int) -> None:
        if not wanted.epochs:
            return
        history = made.epochs
        history.truncate_from_end(end_offset)
        history.truncate_from_start(min(self._broker_state.log_start_offset, end_offset))
        filed = None if self._rebuild else self._filed_epochs()
        if filed is not None and _agrees(filed, history, made.epoch_ends):
            is_within = not any(entry.start_offset > end_offset for entry in filed.entries)
            if is_within and not self._lacks_remote_epochs(filed):
                return
            history = filed
            history.truncate_from_end(end_offset)
        if (
            filed is None
            and _EPOCHS not in self._working_image.image
            and not (self._rebuild or history.entries or self._lacks_remote_epochs(history))
        ):
            return
        why = "rebuilt from the batches" if history is made.epochs else "cut to the log"
        if self._lacks_remote_epochs(history):
            history = self._with_remote_epochs(history)
            if self._lacks_remote_epochs(history):
                return  # given a checkpoint with only the local epochs, a broker would delete remote segments
            why = f"{why}, and from the epochs of the segments in remote storage"
        entries = history.entries
        # the file exists from the start and stays empty until there is an epoch
        data = encode_leader_epochs(entries) if entries or not self._rebuild else b""
        self._working_image.put(_EPOCHS, data, why)

    def _lacks_remote_epochs(self, history: EpochHistory) -> bool:
        if not self._settings.topic.is_tiered or not self._segments:
            return False
        first = self._segments[0].base_offset
        return self._broker_state.log_start_offset < first and not history.begins_below(first)

    def _with_remote_epochs(self, history: EpochHistory) -> EpochHistory:
        """The history behind the epochs that begin below the first segment: those of the file as found, else those of the remote
        segments."""
        first, filed = self._segments[0].base_offset, self._filed_epochs()
        is_filed = filed is not None and filed.begins_below(first)
        known = filed.entries if filed is not None and is_filed else self._settings.topic.remote_epochs
        joined = EpochHistory([*(each for each in known if each[1] < first), *history.entries])
        joined.truncate_from_start(self._broker_state.log_start_offset)
        return joined

    def _filed_epochs(self) -> EpochHistory | None:
        """The leader-epoch checkpoint as found; None where it is missing or corrupt. Raises UnreadableInput when it can no longer be
        read."""
        path = self._working_image.path(_EPOCHS)
        if _EPOCHS not in self._working_image.image or self._assessment.has_finding(path, "unreadable-file"):
            return None
        try:
            return EpochHistory(decode_leader_epochs(self._working_image.read(_EPOCHS)))
        except FormatError:
            return None


def _agrees(filed: EpochHistory, found: EpochHistory, ends: Mapping[int, int]) -> bool:
    """Whether a checkpoint agrees with the batches on every leader epoch; it may begin later than they do. The findings about it
    do not answer that: they compare it with the log as found.

    ends: the base offset of the last batch of each epoch.
    """
    if found.entries and not filed.entries:
        return False
    known = [*found.entries, *ends.items()]
    return all(filed.epoch_for_offset(offset) in (None, epoch) for epoch, offset in known)
