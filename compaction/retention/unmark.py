"""Restore segments that are marked for deletion, while their files still exist.

Retention deletes from the start of a log, so what it marked precedes the first live segment:

1. A marked segment is restored if it starts below the log's first segment at that point, and ends at or before its base
   offset. Others were marked by the cleaner (their records are in another segment) or by a truncation: they stay marked.
2. The newest is restored first, its side files before its log: a broker that starts in between finds a complete
   log. (It would also delete all files that are still marked.)
3. The leader epochs of the restored batches are put before those in the checkpoint.
4. The log starts at the first restored segment, unless the caller wants it to start later; the entry in the log dir's
   checkpoint, which would hide it, is removed.

`kseg undo` of the journal restores more: the former checkpoints too.
"""

import os
from collections.abc import Iterator

from kseg.change.plan.content import Fresh, content_of
from kseg.change.plan.steps import Rename, Step, Write
from kseg.compaction.retention.retention_evidence import open_log
from kseg.jobs.events import Event, Row
from kseg.segment import layout as L
from kseg.segment.errors import FormatError, KsegError
from kseg.segment.partition.deletion_marks import DeletionMark, marks_in
from kseg.segment.partition.derived_state import epochs_of_batches, first_batch
from kseg.segment.partition.log_segment import LogSegment
from kseg.segment.partition.names import NAME_BY_ROLE, Role
from kseg.segment.partition.partition_log import PartitionLog
from kseg.segment.partition.targets import FileTarget, PartitionTarget
from kseg.segment.sidecar.checkpoint import decode_leader_epochs, encode_leader_epochs
from kseg.segment.sidecar.leader_epochs import EpochHistory
from kseg.segment.storage import places
from kseg.segment.values import dataclass

_EPOCHS = NAME_BY_ROLE[Role.LEADER_EPOCHS]
_WHY = "its deletion mark is removed"


@dataclass(frozen=True, slots=True)
class MarkVerdict:
    """A marked file, whether it is restored, and why not."""

    mark: DeletionMark
    is_restored: bool
    reason: str


@dataclass(frozen=True, slots=True)
class UnmarkableSegments:
    """What can be restored in a partition. size_bytes: of the logs."""

    directory: str
    segments: int
    size_bytes: int


@dataclass(frozen=True, slots=True)
class Unmarking:
    """The plan to restore files. bases: of the segments, ascending. bytes_restored: of their logs."""

    outcomes: tuple[MarkVerdict, ...]
    bases: tuple[int, ...]
    bytes_restored: int
    steps: tuple[Step, ...]


def plan_unmark(
    directory: str, log: PartitionLog | None, names: frozenset[str], first: int | None
) -> Unmarking:
    """The plan above for one partition.

    log: None for a 0.7 partition, whose files join without a gap. names: of all its files. first: base offset of the first live
    segment, None when there is none. Raises UnreadableInput.
    """
    marks = marks_in(directory)
    role = Role.KAFKA07_LOG if log is None else Role.LOG
    logs = [mark for mark in marks if mark.name.role is role and mark.name.base_offset is not None]
    restored: list[DeletionMark] = []
    reasons: dict[int, str] = {}
    for mark in sorted(logs, key=lambda mark: -_base(mark)):
        reason = _reason_to_keep(directory, mark, names, first, is_kafka07=log is None)
        reasons[_base(mark)] = reason
        if not reason:
            restored.append(mark)
            first = _base(mark)
    steps: list[Step] = []
    renamed: set[str] = set()
    for mark in restored:
        for file in (*_beside(marks, mark, names), mark):
            steps.append(Rename(file.name.name, file.name.stem, _WHY))
            renamed.add(file.name.name)
    if log is not None and restored:
        steps += _epochs(directory, log, sorted(restored, key=_base))
    outcomes = tuple(
        MarkVerdict(mark, mark.name.name in renamed, reasons.get(_base(mark)) or _reason(mark, renamed))
        for mark in marks
    )
    return Unmarking(
        outcomes, tuple(sorted(map(_base, restored))), sum(m.size_bytes for m in restored), tuple(steps)
    )


def unmarkable_segments(target: PartitionTarget, _: None) -> Iterator[Event]:
    """One row, without values, whose result is a `UnmarkableSegments`; none if nothing can be restored, or if that cannot be determined."""
    try:
        names = frozenset(places.listdir(target.path))
        log, _dir_state = open_log(target)
        with log:
            unmarking = plan_unmark(target.path, log, names, base_of(log))
    except (KsegError, OSError):
        return  # `verify` reports what is wrong with it
    if unmarking.bases:
        yield Row({}, UnmarkableSegments(target.path, len(unmarking.bases), unmarking.bytes_restored))


def base_of(log: PartitionLog) -> int | None:
    """Base offset of the first live segment; None if there is none."""
    return log.segments[0].base_offset if log.segments else None


def _base(mark: DeletionMark) -> int:
    return -1 if mark.name.base_offset is None else mark.name.base_offset


def _reason(mark: DeletionMark, renamed: set[str]) -> str:
    return (
        "it is restored"
        if mark.name.name in renamed
        else "its segment is not restored, or a newer file replaces it"
    )


def _reason_to_keep(
    directory: str, mark: DeletionMark, names: frozenset[str], first: int | None, *, is_kafka07: bool
) -> str:
    """Why a marked log stays marked; empty when it is restored."""
    if mark.name.stem in names:
        return f"there is a live {mark.name.stem}"
    if mark.name.stem + L.DELETED_SUFFIX != mark.name.name:
        return "it is marked more than once"
    if first is None:
        return ""
    if _base(mark) >= first:
        return f"the log starts at {first}, before this segment, so retention did not mark it"
    if is_kafka07:
        end = _base(mark) + mark.size_bytes
        return "" if end == first else f"it ends at {end}, but the log starts at {first}"
    with PartitionLog(FileTarget(os.path.join(directory, mark.name.name))) as single:
        end = single.end_offset
    return "" if end <= first else f"it ends at {end}, but the log already has offsets from {first}"


def _beside(
    marks: tuple[DeletionMark, ...], log: DeletionMark, names: frozenset[str]
) -> Iterator[DeletionMark]:
    """The marked side files of a marked log whose names are free."""
    for mark in marks:
        is_beside = _base(mark) == _base(log) and mark.name.role is not log.name.role
        if is_beside and mark.name.stem not in names and mark.name.stem + L.DELETED_SUFFIX == mark.name.name:
            yield mark


def _epochs(directory: str, log: PartitionLog, restored: list[DeletionMark]) -> Iterator[Step]:
    data = log.read_side_file(Role.LEADER_EPOCHS)
    if data is None:
        return
    try:
        known = decode_leader_epochs(data)
    except FormatError:
        return
    segments = [_segment_of(directory, mark) for mark in restored]
    following = first_batch(log.segments[0]) if log.segments else None
    history = epochs_of_batches(segments, following)
    before = EpochHistory(known).entries
    for entry in known:
        history.assign(*entry)
    if history.entries != before:
        content = content_of([Fresh(encode_leader_epochs(history.entries))])
        yield Write(_EPOCHS, content, "the log starts earlier again", _EPOCHS)


def _segment_of(directory: str, mark: DeletionMark) -> LogSegment:
    return PartitionLog(FileTarget(os.path.join(directory, mark.name.name))).segments[0]
