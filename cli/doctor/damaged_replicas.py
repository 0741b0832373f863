"""The steps for logs that are damaged inside, have bad sectors or have lost segments, where other replicas have what cannot be read: on
other nodes that are examined as well, or on the same node, between whose log dirs the replica is moved.

`recover` removes the damaged bytes, a broker everything behind them as well, and a longer log that is damaged must not be copied over a
shorter one that has these records. So before anything is copied or repaired:

1. If another replica is undamaged and covers the log, with the same or a later leader epoch at its end, it takes its place. Of two
   directories of a partition on one node the damaged one is then moved out of the way (`replica_steps.keep_one`).
2. Otherwise the log is put together from pieces (docs/usage.md, One log from several copies), if others have something of what is lost,
   with the same leader epoch there: after an unclean election they can have other records with the same offsets. What none of them has is
   taken from a repaired copy of one in which one inverted bit explains the damage (`--repair-bits`), or else left out.
3. A damaged log of a move (`-future`) is only moved out of the way of the one that it copies, which may be deleted for it otherwise; and
   only once nothing is taken from it any more.
"""

import os
from collections import defaultdict
from collections.abc import Collection, Iterator, Sequence
from contextlib import suppress
from dataclasses import field
from typing import TYPE_CHECKING

from kseg.cli.doctor.next_step import (
    NextStep,
    copy_command,
    dump_command,
    further_replicas,
    lack_of_room,
    lack_of_room_outside,
    move_command,
    offset_options,
    out_of_the_way,
    replicas_shown,
    rewritten_log,
)
from kseg.cli.doctor.replica_steps import one_to_move, stop_move
from kseg.cli.request import Request
from kseg.internal_topics.broker_directories import end_offset_of, progress_of
from kseg.internal_topics.metadata.replica_directories import has_segment, state_of, topic_id_of
from kseg.segment.counted import listed, offsets_words
from kseg.segment.diagnosis import InvalidBytes, UnreadableBytes
from kseg.segment.errors import KsegError
from kseg.segment.findings import ERROR, Finding
from kseg.segment.layout import LOG_SUFFIX
from kseg.segment.partition.derived_state import epochs_of_batches
from kseg.segment.partition.directory import partition_name
from kseg.segment.partition.log_dir_state import deleted_logs
from kseg.segment.partition.names import METADATA_DIRECTORY, PartitionState
from kseg.segment.partition.partition_epochs import last_epoch_below
from kseg.segment.partition.partition_log import PartitionLog
from kseg.segment.partition.targets import PartitionTarget
from kseg.segment.storage import places
from kseg.segment.terminal import shell_quoted, shown_path
from kseg.segment.values import dataclass

if TYPE_CHECKING:
    from kseg.recovery.verify.options import VerifyOptions

_LOST_SEGMENTS = ("segment-missing", "segment-gap", "log-start-gap")
_LISTED = 5  # ranges of offsets
_MOST_PIECES = 20  # of a command that can still be read
_NO_OFFSET = 2**63 - 1  # beyond those of any log


@dataclass(frozen=True, slots=True)
class _Piece:
    """A part of a log, from one replica: offsets from first up to, but not including, end; None for the end of that log. is_repaired: from
    a repaired copy of it."""

    path: str
    first: int
    end: int | None
    is_repaired: bool = False

    @property
    def command(self) -> str:
        bounds = f" --from-offset {self.first}" * (self.first > 0)
        bounds += "" if self.end is None else f" --to-offset {self.end}"
        source = _repaired_copy(self.path) if self.is_repaired else self.path
        return dump_command(source, bounds)


@dataclass(slots=True)
class DamagedReplicas:
    """partitions: the directories of all that are examined. options: of their verification. lost: by directory, the offsets that are
    missing or cannot be read, also beyond the log end. flipped: the places that a repair can restore, since one bit is inverted. unknown:
    directories with further damage. strays: directories that brokers will not serve. sources: those from which the steps take something.
    restored: those of which a step makes a repaired copy. are_mended: whether there are steps. They are due even if nothing is worse than
    a warning, as for lost first segments: the node could lead without them, and the others delete theirs then (observed with 4.3.1)."""

    request: Request
    partitions: Sequence[str] = ()
    options: "VerifyOptions | None" = None
    lost: dict[str, list[range]] = field(default_factory=dict)
    flipped: dict[str, list[range]] = field(default_factory=lambda: defaultdict(list))
    unknown: set[str] = field(default_factory=set)
    strays: set[str] = field(default_factory=set)
    sources: set[str] = field(default_factory=set)
    restored: set[str] = field(default_factory=set)
    are_mended: bool = False

    def note(self, finding: Finding) -> None:
        if finding.id == "becomes-stray":
            self.strays.add(finding.path)
            return
        about, directory = finding.diagnosis, os.path.dirname(finding.path)
        first, last = finding.first_offset, finding.last_offset
        is_segment = finding.id in _LOST_SEGMENTS
        if not is_segment and (finding.severity != ERROR or not finding.path.endswith(LOG_SUFFIX)):
            return
        if isinstance(about, UnreadableBytes):
            return  # the batches there have findings of their own
        if last is None and isinstance(about, InvalidBytes) and about.resumed_offset is None:
            last = _NO_OFFSET - 1  # nothing tells how many are lost
        if isinstance(about, InvalidBytes) and about.flipped and first is not None and last is not None:
            self.flipped[directory].append(range(first, last + 1))
        is_known = is_segment or isinstance(about, InvalidBytes)
        if is_known and first is not None and last is not None and first <= last:
            self.lost.setdefault(directory, []).append(range(first, last + 1))
        else:
            self.unknown.add(directory)

    @property
    def damaged(self) -> set[str]:
        return {*self.lost} | self.unknown

    def _marked_for_deletion(self) -> dict[str, list[str]]:
        """The logs that are marked for deletion, by partition: a verification of the data directories leaves them out."""
        found: dict[str, list[str]] = {}
        for log_dir in sorted({os.path.dirname(each) for each in self.partitions}):
            with suppress(KsegError):  # what cannot be read has nothing to offer
                for name, paths in deleted_logs(log_dir).items():
                    found.setdefault(name, []).extend(paths)
        return found

    def _verified(self, directories: Sequence[str]) -> Iterator[str]:
        """Verify logs that the run left out, and return those that have something to offer."""
        from kseg.recovery.verify.verify import verify

        for path in directories:
            if self.options is None or not has_segment(path):
                continue
            with suppress(KsegError):
                for event in verify(PartitionTarget(path), self.options):
                    if isinstance(event, Finding):
                        self.note(event)
                yield path

    def steps(self, replaced: Collection[str], twice: Sequence[tuple[str, str]] = ()) -> Iterator[NextStep]:
        """replaced: replicas that other steps replace. twice: pairs of directories of which one is moved out of the way."""
        damaged = self.damaged
        goes = {one_to_move(*pair, damaged).gone for pair in twice if not damaged.isdisjoint(pair)}
        served = damaged - self.strays - {*replaced} - goes
        found = [*self._found({path for path in served if self._is_mended(path)}, goes)]
        self.are_mended = bool(found)
        shown = replicas_shown(len(found), self.request)
        for steps in found[:shown]:
            yield from steps
        yield from further_replicas(len(found) - shown, "damaged replica", self.request)

    def _is_mended(self, path: str) -> bool:
        """Whether there may be something to do about a damaged log: a broker serves it, or continues to move it."""
        state = state_of(path)
        return state is PartitionState.FUTURE or (state is PartitionState.LIVE and path not in self.unknown)

    def completed(self, former: str, path: str) -> list[NextStep]:
        """The steps that put a log together which is longer than the one at `path` but damaged where that one is not, and put it in its
        place; none if the longer one lacks nothing that the other has. former: the longer one."""
        if former not in self.partitions:  # it is marked for deletion
            list(self._verified([former]))
        if former in self.unknown or former not in self.lost:
            return []
        pieces, lost = self._pieces(former, [path])
        return self._assembled(former, pieces, path, lost) if pieces else []

    def _found(self, directories: Collection[str], goes: Collection[str]) -> Iterator[list[NextStep]]:
        """goes: directories that are moved out of the data directory afterwards."""
        by_name: dict[str, list[str]] = {}
        for path in self.partitions:
            by_name.setdefault(_partition_of(path), []).append(path)
        deleted = self._marked_for_deletion() if directories else {}
        for path in sorted(directories):
            name = _partition_of(path)
            by_name.setdefault(name, []).extend(self._verified(deleted.pop(name, ())))
            others = [
                other
                for other in by_name[name]
                if other != path
                and other not in self.unknown
                and topic_id_of(other).topic_id == topic_id_of(path).topic_id
            ]
            if (
                not others
                or name == METADATA_DIRECTORY
                or not (path in self.unknown or self._gaps(path, others))
            ):
                continue
            whole = self._whole(path, [other for other in others if other not in goes])
            if state_of(path) is PartitionState.FUTURE:
                if whole is not None and state_of(whole) is PartitionState.LIVE:
                    yield [stop_move(path, f"{shown_path(path)} is damaged, and {shown_path(whole)} is not.")]
                continue
            pieces, lost = self._pieces(path, others) if whole is None else ([], [])
            self.sources.update(piece.path for piece in pieces)
            if whole is not None:
                yield [_copied(path, whole)]
            elif pieces:
                yield self._assembled(path, pieces, path, lost)

    def _gaps(self, path: str, others: Sequence[str]) -> list[range]:
        """What a log lacks below its end, in order. Bytes that are no complete batch do not count as part of it; if they follow its end, it
        lacks what others have after that as well."""
        end = end_offset_of(PartitionTarget(path))
        gaps = [range(each.start, min(each.stop, end)) for each in self.lost.get(path, ())]
        if self._is_cut(path, end):
            gaps.append(range(end, max(end_offset_of(PartitionTarget(other)) for other in others)))
        return sorted(filter(len, gaps), key=lambda each: each.start)

    def _is_cut(self, path: str, end: int) -> bool:
        """Whether bytes after the end of a log are no batch."""
        return any(each.stop > end for each in self.lost.get(path, ()))

    def _whole(self, path: str, others: Sequence[str]) -> str | None:
        """An undamaged replica that has everything."""
        own = progress_of(PartitionTarget(path))
        start = min((_start_of(path), *(gap.start for gap in self._gaps(path, others))))
        sound = {
            other: progress_of(PartitionTarget(other))
            for other in others
            if other not in self.lost and _start_of(other) <= start
        }
        enough = [
            other
            for other, each in sound.items()
            if each.leader_epoch >= own.leader_epoch and each.end_offset >= own.end_offset
        ]
        return max(enough, key=lambda other: sound[other], default=None)

    def _pieces(self, path: str, others: Sequence[str]) -> tuple[list[_Piece], list[range]]:
        """The pieces of the log with what others have of that which it lacks, and the offsets that none has; no pieces if that is
        impossible."""
        pieces: list[_Piece] = []
        lost: list[range] = []
        position = 0
        gaps, end = self._gaps(path, others), end_offset_of(PartitionTarget(path))
        for gap in gaps if len(gaps) <= _MOST_PIECES else ():
            if gap.start < position:
                return [], []
            pieces += [_Piece(path, position, gap.start)] * (position < gap.start)
            position = gap.start
            while position < gap.stop:
                piece, stop = self._next_piece(path, others, range(position, gap.stop))
                if position < piece.first:
                    lost.append(range(position, piece.first))
                pieces += [piece] * (piece.first < stop)
                position = stop
        if all(piece.path == path for piece in pieces):
            return [], []
        if position < end:
            pieces.append(_Piece(path, position, end if self._is_cut(path, end) else None))
        # the dumps also name what is cut off at the end of a log
        sources = dict.fromkeys(piece.path for piece in pieces if not piece.is_repaired)
        found = (each for name in sources for each in self.lost.get(name, ()) if each.stop < _NO_OFFSET)
        cut = dict.fromkeys(range(max(each.start, position, end), each.stop) for each in found)
        lost += filter(len, cut)
        return pieces, lost

    def _assembled(
        self, base: str, pieces: Sequence[_Piece], path: str, lost: Sequence[range]
    ) -> list[NextStep]:
        """See `_put_together`. A repaired copy is made for the first log that needs it."""
        sources = dict.fromkeys(piece.path for piece in pieces if piece.is_repaired)
        steps = [_restored(source) for source in sources if source not in self.restored]
        self.restored.update(sources)
        return [*steps, *_put_together(base, pieces, path, lost)]

    def _next_piece(self, path: str, others: Sequence[str], gap: range) -> tuple[_Piece, int]:
        """The next piece of a gap that another replica has or a repair restores, and its end; an empty one at the end of the gap if there
        is none. Of two that begin at the same offset, one that needs no repair."""
        found = [(part, other, False) for other in others for part in self._parts(other, gap, path)]
        for name in (path, *others):
            for flipped in self.flipped[name]:
                part = range(max(gap.start, flipped.start), min(gap.stop, flipped.stop))
                if part and self._are_alike(name, path, part):
                    found.append((part, name, True))
        nothing = range(gap.stop, gap.stop), path, False
        part, source, is_repaired = min(
            found, key=lambda each: (each[0].start, each[2], -each[0].stop), default=nothing
        )
        return _Piece(source, part.start, part.stop, is_repaired), part.stop

    @staticmethod
    def _are_alike(one: str, other: str, part: range) -> bool:
        """Whether the records of this part have the same leader epoch in two replicas."""
        return _epoch_below(one, part.stop) == _epoch_below(other, part.stop)

    def _parts(self, other: str, gap: range, path: str) -> Iterator[range]:
        """The parts of a gap whose records another replica has."""
        position = max(gap.start, _start_of(other))
        stop = min(gap.stop, end_offset_of(PartitionTarget(other)))
        for each in (*sorted(self.lost.get(other, ()), key=lambda lost: lost.start), range(stop, stop)):
            part = range(position, min(each.start, stop))
            if part and self._are_alike(other, path, part):
                yield part
            position = max(position, each.stop)


def _repaired_copy(path: str) -> str:
    log_dir, name = os.path.split(os.path.normpath(path))
    return os.path.join(f"{places.abspath(log_dir)}-repaired", name)


def _partition_of(path: str) -> str:
    """Its name without the suffix of a move."""
    entry = os.path.basename(path)
    name = partition_name(entry)
    return entry if name is None else name.text


def _start_of(path: str) -> int:
    """A log that cannot be read starts nowhere."""
    try:
        with PartitionLog(PartitionTarget(path)) as log:
            return log.start_offset
    except KsegError:
        return 2**63


def _epoch_below(path: str, offset: int) -> int | None:
    """The last leader epoch that begins below an offset; None if it is unknown. A broker that loads a log that is marked for deletion
    removes all entries from its checkpoint (observed with 4.3.1), but the batches have the epochs as well."""
    epoch = last_epoch_below(path, offset)
    if epoch is not None:
        return epoch
    try:
        with PartitionLog(PartitionTarget(path)) as log:
            entries = epochs_of_batches(log.segments, log.last_batch).entries
    except KsegError:
        return None
    return max((entry.epoch for entry in entries if entry.start_offset < offset), default=None)


def _copied(path: str, whole: str) -> NextStep:
    return NextStep(
        f"{shown_path(path)} is damaged, and {shown_path(whole)} has every record of it. Before any of the nodes starts, move the damaged one out of "
        f"the data directory, and copy the other one: its files are valid here too."
        f"{lack_of_room(whole, path)}{lack_of_room_outside(path)}",
        copy_command(whole, path, first=move_command(path)),
    )


def _restored(source: str) -> NextStep:
    copy = _repaired_copy(source)
    anew, moved = out_of_the_way(copy)
    return NextStep(
        f"What one inverted bit has damaged in {shown_path(source)} is in no other replica. Make a copy in which it is restored."
        f"{moved}{lack_of_room(source, copy)}",
        f"{anew}mkdir -p {shell_quoted(os.path.dirname(copy))} && kseg recover --repair-bits --output {shell_quoted(copy)} {shell_quoted(source)}",
    )


def _put_together(
    base: str, pieces: Sequence[_Piece], path: str, lost: Sequence[range]
) -> Iterator[NextStep]:
    """base: the damaged log to which most pieces belong. path: where the result is put. lost: offsets that no replica has."""
    first = next(piece for piece in pieces if piece.path != base)
    left_out = ""
    if lost:
        words = listed([offsets_words(each.start, each.stop - 1) for each in lost], _LISTED)
        left_out = (
            f" What is at {words} is in none of the logs here; look for another copy first, or it stays lost."
        )
    why = (
        f"{shown_path(base)} is damaged at offset {first.first}, and {shown_path(first.path)} has what cannot be read there. Before either is repaired or "
        f"copied, put the log together.{left_out}"
    )
    replaced = "the damaged one" if path == base else shown_path(path)
    dumps = [piece.command for piece in pieces]
    yield from rewritten_log(why, path, dumps, offset_options("--lost", lost), replaced, like=base)
