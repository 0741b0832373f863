"""Taking marks back, as long as the files are there.

Retention takes from the front of a log. So what it marked lies before the first live segment:

1. A marked segment comes back when it begins below the first segment that is there by then, and ends at or before it.
   Others were marked by the cleaner (their records live on in another segment) or by a truncation: they stay.
2. The newest comes first, of each its side files before its log: a broker that starts in between finds a log that is
   whole. (It would also delete every mark that is left.)
3. The leader epochs of the batches that are back are put before those that the checkpoint has.
4. The log starts at the first segment that is back, unless the caller wants it to start later; the data directory's
   entry, which would hide it, goes.

What `kseg undo` of the journal restores is the same and more: the former checkpoints too.
"""

import os
from collections.abc import Iterator

from kseg.change.plan.content import Fresh, content_of
from kseg.change.plan.steps import Rename, Step, Write
from kseg.segment import layout as L
from kseg.segment.errors import FormatError
from kseg.segment.partition.deletion_marks import Mark, marks_in
from kseg.segment.partition.derived_state import epochs_of_batches, first_batch
from kseg.segment.partition.log_segment import LogSegment
from kseg.segment.partition.names import NAME_BY_ROLE, Role
from kseg.segment.partition.partition_log import PartitionLog
from kseg.segment.partition.targets import FileTarget
from kseg.segment.sidecar.checkpoint import decode_leader_epochs, encode_leader_epochs
from kseg.segment.sidecar.leader_epochs import EpochHistory
from kseg.segment.values import dataclass

_EPOCHS = NAME_BY_ROLE[Role.LEADER_EPOCHS]
_WHY = "its mark for deletion is taken back"


@dataclass(frozen=True, slots=True)
class MarkVerdict:
    """A marked file, whether it comes back, and why not."""

    mark: Mark
    comes_back: bool
    reason: str


@dataclass(frozen=True, slots=True)
class Return:
    """What comes back. bases: of the segments, ascending. bytes: of their logs."""

    judged: tuple[MarkVerdict, ...]
    bases: tuple[int, ...]
    bytes_back: int
    steps: tuple[Step, ...]


def take_back(directory: str, log: PartitionLog | None, names: frozenset[str], first: int | None) -> Return:
    """The plan above for one partition.

    log: None for a 0.7 partition, whose files join without a gap. names: of all files there. first: number of the
    first live segment, None when there is none. Raises UnreadableInput.
    """
    marks = marks_in(directory)
    role = Role.ANCIENT_LOG if log is None else Role.LOG
    logs = [mark for mark in marks if mark.name.role is role and mark.name.base_offset is not None]
    back: list[Mark] = []
    reasons: dict[int, str] = {}
    for mark in sorted(logs, key=lambda mark: -_base(mark)):
        reason = _objection(directory, mark, names, first, is_ancient=log is None)
        reasons[_base(mark)] = reason
        if not reason:
            back.append(mark)
            first = _base(mark)
    steps: list[Step] = []
    renamed: set[str] = set()
    for mark in back:
        for file in (*_beside(marks, mark, names), mark):
            steps.append(Rename(file.name.name, file.name.stem, _WHY))
            renamed.add(file.name.name)
    if log is not None and back:
        steps += _epochs(directory, log, sorted(back, key=_base))
    judged = tuple(
        MarkVerdict(mark, mark.name.name in renamed, reasons.get(_base(mark)) or _reason(mark, renamed))
        for mark in marks
    )
    return Return(judged, tuple(sorted(map(_base, back))), sum(m.size_bytes for m in back), tuple(steps))


def _base(mark: Mark) -> int:
    return -1 if mark.name.base_offset is None else mark.name.base_offset


def _reason(mark: Mark, renamed: set[str]) -> str:
    return (
        "it comes back"
        if mark.name.name in renamed
        else "its segment does not come back, or it has a successor"
    )


def _objection(
    directory: str, mark: Mark, names: frozenset[str], first: int | None, *, is_ancient: bool
) -> str:
    """Why a marked log stays marked; empty when it comes back."""
    if mark.name.stem in names:
        return f"there is a live {mark.name.stem}"
    if mark.name.stem + L.DELETED_SUFFIX != mark.name.name:
        return "it is marked more than once"
    if first is None:
        return ""
    if _base(mark) >= first:
        return f"the log begins at {first}, before it: not retention marked it"
    if is_ancient:
        end = _base(mark) + mark.size_bytes
        return "" if end == first else f"it ends at {end}, and the log begins at {first}"
    with PartitionLog(FileTarget(os.path.join(directory, mark.name.name))) as alone:
        end = alone.end_offset
    return "" if end <= first else f"it ends at {end}, and the log has offsets from {first} on"


def _beside(marks: tuple[Mark, ...], log: Mark, names: frozenset[str]) -> Iterator[Mark]:
    """The marked side files of a marked log whose names are free."""
    for mark in marks:
        is_beside = _base(mark) == _base(log) and mark.name.role is not log.name.role
        if is_beside and mark.name.stem not in names and mark.name.stem + L.DELETED_SUFFIX == mark.name.name:
            yield mark


def _epochs(directory: str, log: PartitionLog, back: list[Mark]) -> Iterator[Step]:
    data = log.read_side_file(Role.LEADER_EPOCHS)
    if data is None:
        return
    try:
        known = decode_leader_epochs(data)
    except FormatError:
        return
    segments = [_segment_of(directory, mark) for mark in back]
    following = first_batch(log.segments[0]) if log.segments else None
    history = epochs_of_batches(segments, following)
    before = EpochHistory(known).entries
    for entry in known:
        history.assign(*entry)
    if history.entries != before:
        content = content_of([Fresh(encode_leader_epochs(history.entries))])
        yield Write(_EPOCHS, content, "the log starts earlier again", _EPOCHS)


def _segment_of(directory: str, mark: Mark) -> LogSegment:
    return PartitionLog(FileTarget(os.path.join(directory, mark.name.name))).segments[0]
