"""Align the offset checkpoints of a data directory with its partitions after a repair.

Below, S is the log start and E the log end of a partition, and B the base offset of its first segment. An entry of 0 is equivalent to no
entry (a broker reads it that way) and is kept.

    recovery point     policy kafka: the result of the broker's load, which LogManager writes next.
                       policy salvage: never raised (what was not synced may not be on disk), at most
                       E, at least B (below B there is nothing). With `mark_clean`: E, everything is synced.
    log start          S if it is above B (LogManager writes no others). An entry at or below B is kept: a broker
                       with tiered storage needs it, others ignore it.
    high watermark     between S and E (UnifiedLog.updateHighWatermark)
    first dirty        S if it is outside S … E, as in the broker's cleaner (LogCleanerManager.cleanableOffsets)
    offset of cleaner

An unreadable file is rewritten from the partitions; none of its content is trusted. The same applies to one that is empty or missing after
a clean shutdown, which writes all of them: a broker assumes 0 everywhere. Log start offsets can be derived from traces in the partitions
(`segment.partition.log_start_trace`); recovery points were at the log ends, since everything was synced; high watermarks come from the
other replicas. With an unreadable file a broker (4.3.1) loads the logs with offset 0 for all partitions, but still takes the data
directory offline, and stops when it has no other. Entries of partitions without a directory are dropped when their file is written
anyway, as a broker writes only what it has loaded; they alone are no reason to write the file. Nor, under policy salvage, is an entry below
the log start: a broker then begins at the log start, and a broker that is killed after retention leaves such entries. The metadata log has
no entries.
"""

from collections.abc import Callable, Collection, Mapping, Sequence

from kseg.recovery.policy import Policy
from kseg.segment.errors import FormatError
from kseg.segment.partition.names import PartitionName, PartitionState, Role
from kseg.segment.sidecar.checkpoint import (
    CheckpointEntry,
    decode_offset_checkpoint,
    offsets_by_partition,
    with_offsets,
)
from kseg.segment.values import dataclass

Key = tuple[str, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionOutcome:
    """The result of `recover` for one partition; it can be pickled.

    first_base_offset: the base offset of the first segment. recovery_point: as determined by the policy (`Repair`). changed:
    whether any of its files was or would be changed. loses_bytes: whether bytes are removed from its logs. doubt: why the
    partition is not sound, empty when it is. is_misplaced: the partition is sound, but a broker does not serve it from this
    directory. is_left_damaged: the doubt is about damage that a broker does not read during a load, and that policy kafka leaves
    in place. is_known: False when the recovery failed, so that its offsets mean nothing.
    """

    name: PartitionName
    first_base_offset: int
    log_start_offset: int
    log_end_offset: int
    recovery_point: int
    changed: bool = False
    loses_bytes: bool = False
    doubt: str = ""
    is_misplaced: bool = False
    is_left_damaged: bool = False
    is_known: bool = True

    @property
    def is_as_loaded(self) -> bool:
        """Whether the partition is in the state that a broker's load and a clean shutdown leave, even if it has other findings."""
        return not self.doubt or self.is_misplaced or self.is_left_damaged

    @property
    def is_left_as_found(self) -> bool:
        """Whether the partition is not sound, and no byte of it is changed."""
        return self.is_known and not (self.changed or self.is_as_loaded)

    @property
    def key(self) -> Key:
        return self.name.topic, self.name.partition

    @property
    def has_checkpoints(self) -> bool:
        """Whether a broker writes checkpoint entries for this partition and its offsets are known: current and future logs, not the
        metadata log."""
        is_loaded = self.name.state in (PartitionState.LIVE, PartitionState.FUTURE)
        return self.is_known and is_loaded and not self.name.is_metadata_log


@dataclass(frozen=True, slots=True)
class CheckpointChange:
    """One entry that had to change. old, new: None = no entry. is_due: whether the file has to be written for it."""

    partition: str
    old: int | None
    new: int | None
    is_due: bool = True

    @property
    def words(self) -> str:
        was = "no entry" if self.old is None else str(self.old)
        return f"{self.partition} {was} → {'no entry' if self.new is None else self.new}"


@dataclass(frozen=True, slots=True)
class AlignedCheckpoint:
    """entries: of the new file. changes: what differs for partitions of this run, in file order. dropped: entries of
    partitions without a directory. problem: why the old file is not trusted, empty when it is. is_readable: whether it could
    be read."""

    entries: tuple[CheckpointEntry, ...]
    changes: tuple[CheckpointChange, ...] = ()
    dropped: tuple[CheckpointEntry, ...] = ()
    problem: str = ""
    is_readable: bool = True

    @property
    def is_due(self) -> bool:
        """Whether the file has to be written."""
        return bool(self.problem) or any(change.is_due for change in self.changes)


def align(
    role: Role,
    data: bytes | None,
    outcomes: Sequence[PartitionOutcome],
    present: Collection[Key],
    policy: Policy,
    *,
    mark_clean: bool = False,
    problem: str = "",
    traces: Mapping[Key, int] | None = None,
) -> AlignedCheckpoint:
    """Compute the content that the checkpoint `role` must have.

    data: the original file, None when it is missing. outcomes: the partitions of this run; entries of others are kept. present:
    (topic, partition) of every log in the data directory. problem: why a broker cannot have left the file in this state, although
    it can be parsed. traces: entries that a lost file must have had.
    """
    found, unreadable = _decoded(data)
    problem = unreadable or problem
    if problem and traces:
        found = tuple(CheckpointEntry(*key, offset) for key, offset in sorted(traces.items()))
    known = offsets_by_partition(found)
    wanted: dict[Key, int | None] = {}
    rule = _rule(role, policy, mark_clean)
    is_raised_for_tidiness = policy is Policy.SALVAGE and not (mark_clean and role is Role.RECOVERY_POINTS)
    changes = []
    for outcome in outcomes:
        if not outcome.has_checkpoints:
            continue
        old = wanted.get(outcome.key, known.get(outcome.key))
        new = rule(old, outcome)
        if new != old:
            is_below = old is not None and new is not None and old < new <= outcome.log_start_offset
            is_due = not (is_below and is_raised_for_tidiness)
            changes.append(CheckpointChange(outcome.name.text, old, new, is_due))
            wanted[outcome.key] = new
    dropped = tuple(entry for entry in found if (entry.topic, entry.partition) not in present)
    for entry in dropped:
        wanted[entry.topic, entry.partition] = None
    entries = with_offsets(found, wanted)
    return AlignedCheckpoint(entries, tuple(changes), dropped, problem, is_readable=not unreadable)


def _decoded(data: bytes | None) -> tuple[tuple[CheckpointEntry, ...], str]:
    if data is None:
        return (), ""
    try:
        return decode_offset_checkpoint(data), ""
    except FormatError as error:
        return (), str(error)


# --- the rules (module plan)

_RuleOf = Callable[[int | None, PartitionOutcome], int | None]


def _rule(role: Role, policy: Policy, mark_clean: bool) -> _RuleOf:
    if role is Role.RECOVERY_POINTS:
        if mark_clean:
            return lambda old, outcome: _same_or(old, outcome.log_end_offset)
        return _loaded_recovery_point if policy is Policy.KAFKA else _salvaged_recovery_point
    return {
        Role.LOG_START_OFFSETS: _log_start,
        Role.HIGH_WATERMARKS: _high_watermark,
        Role.CLEANER_OFFSETS: _first_dirty,
    }[role]


def _same_or(old: int | None, new: int) -> int | None:
    """`new`, unless both are 0 or missing."""
    return new if new or old else old


def _loaded_recovery_point(old: int | None, outcome: PartitionOutcome) -> int | None:
    return _same_or(old, outcome.recovery_point)


def _salvaged_recovery_point(old: int | None, outcome: PartitionOutcome) -> int | None:
    if not old:
        return old
    return max(min(old, outcome.recovery_point, outcome.log_end_offset), outcome.first_base_offset)


def _log_start(old: int | None, outcome: PartitionOutcome) -> int | None:
    if outcome.log_start_offset > outcome.first_base_offset:
        return outcome.log_start_offset
    return old if old is not None and old <= outcome.first_base_offset else None


def _high_watermark(old: int | None, outcome: PartitionOutcome) -> int | None:
    if not old:
        return old
    return min(max(old, outcome.log_start_offset), outcome.log_end_offset)


def _first_dirty(old: int | None, outcome: PartitionOutcome) -> int | None:
    if not old or outcome.log_start_offset <= old <= outcome.log_end_offset:
        return old
    return outcome.log_start_offset
