"""What one task of the cluster does, and how targets are shared out among tasks.

    unit    one target, by its number in the output; or a piece of one
    share   units that stand together in the output: what one task works on

1. Weigh every unit: its bytes, and a little for being one at all. Work whose answer is that of pieces (`jobs.log_splitting`)
   has large targets cut into units of PIECE_BYTES, at batch boundaries that the index knows. Of work that goes through a
   target in order others look at parts beforehand, where that target alone would keep a core at work for long.
2. A share is filled up to a part of the whole that gives every core SHARES_PER_CORE of them, so that a core that is
   done early finds another; but never beyond MOST_SHARE_BYTES, so that what a lost executor costs stays small (unless there
   would be more than MOST_SHARES), and never beyond two pieces where the answer may be as large as what was read.
3. A task answers for each of its units with an `Outcome`: its events, pickled and compressed, in chunks. When all of
   its answers together pass MOST_RESULT_BYTES the rest is left undone, and said so: nothing that one task sends is larger
   than that, whatever the input.
"""

import gc
import os
import pickle
import socket
import sys
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from enum import Enum
from itertools import islice, pairwise
from typing import Any, Generic, TypeVar

from kseg.jobs.events import Advance, Event, Text, Work
from kseg.jobs.fanout import Named, bug, guarded
from kseg.jobs.log_splitting import Foreseen, GivenUp, InPieces, Part
from kseg.segment.errors import KsegError, UnreadableInput
from kseg.segment.findings import Finding
from kseg.segment.values import dataclass
from kseg.spark.visibility import Blind, Landmark, unseen

UNIT_BYTES = 512 * 1024  # what a target costs besides its bytes, in bytes read meanwhile
SHARES_PER_CORE = 4
MOST_SHARE_BYTES = 256 * 1024 * 1024
MOST_SHARES = 200_000  # each costs the driver about a millisecond: the larger the whole, the larger a share from here on
LEAST_FORESEEN_BYTES = 64 * 1024 * 1024
KNOWN_PART = 4  # what is left of a work when others have looked at the logs, as a part of it
PIECE_BYTES = 8 * 1024 * 1024
MOST_RESULT_BYTES = 32 * 1024 * 1024
CHUNK_BYTES = 1024 * 1024
MANY_OBJECTS = 50_000
_ROW_BYTES = 512  # a guess at the pickled size of an event that is no text
_FAST = 1
_known_runs: set[str] = set()

T = TypeVar("T", bound=Named)
O = TypeVar("O")
Look = Callable[[Sequence[str]], Sequence[int]]


@dataclass(frozen=True, slots=True)
class Unit(Generic[T]):
    """number: of the target in the output. weight_bytes: what working on it costs. start, stop: of a piece of the target,
    both None for all of it; stop is None for all that is left. is_last: nothing of the target comes behind it. claims: what
    other tasks have found of it."""

    number: int
    target: T
    weight_bytes: int
    start: int | None = None
    stop: int | None = None
    is_last: bool = True
    claims: tuple[Any, ...] = ()


class TaskState(Enum):
    """done; not begun, for there was no room left; too much for one answer; a piece that cannot be told by itself."""

    DONE = "done"
    NO_ROOM = "no room"
    TOO_MUCH = "too much"
    GIVEN_UP = "given up"


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of a unit. chunks: its events, packed, when they are all there. done_bytes: its progress."""

    number: int
    state: TaskState
    chunks: tuple[bytes, ...] = ()
    done_bytes: int = 0

    @property
    def size_bytes(self) -> int:
        return sum(map(len, self.chunks))


@dataclass(frozen=True, slots=True)
class Share(Generic[T, O]):
    """What one task works on. run: what it belongs to."""

    run: "TaskRun[T, O]"
    units: tuple[Unit[T], ...]

    @property
    def weight_bytes(self) -> int:
        return sum(unit.weight_bytes for unit in self.units)


@dataclass(frozen=True, slots=True)
class TaskRun(Generic[T, O]):
    """What all shares of a run have in common. id: tells runs apart. directory: the working directory, which paths are
    relative to. landmarks: what a node must see. room_bytes: for the answer of one task. chunk_bytes: of events before
    they are packed."""

    id: str
    work: Work[T, O]
    options: O
    directory: str
    landmarks: tuple[Landmark, ...]
    room_bytes: int
    chunk_bytes: int


def narrowed(run: "TaskRun[T, O]", units: Sequence[Unit[T]]) -> "TaskRun[T, O]":
    """The run with what its options know about these units' targets: tasks are many, and each is sent its options."""
    narrow = getattr(run.options, "narrowed_to", None)
    if narrow is None:
        return run
    named = [
        target.path for unit in units for target in getattr(unit.target, "targets", None) or (unit.target,)
    ]
    return replace(run, options=narrow(named))


@dataclass(frozen=True, slots=True)
class Foresight(Generic[T, O]):
    """What one task looks at beforehand: parts, each with the number of its target."""

    run: TaskRun[T, O]
    parts: tuple[tuple[int, Part], ...]


def foresights(run: TaskRun[T, O], units: Sequence[Unit[T]], cores: int) -> list[Foresight[T, O]]:
    """What is worth looking at beforehand: the logs of targets that alone would keep one core at work when the others
    have nothing left to do."""
    work = run.work
    if cores < 2 or not isinstance(work, Foreseen):
        return []
    fair_bytes = sum(unit.weight_bytes for unit in units) // (2 * cores)
    part_bytes = max(PIECE_BYTES, fair_bytes // SHARES_PER_CORE)
    parts = [
        (unit.number, part)
        for unit in units
        if unit.weight_bytes >= max(LEAST_FORESEEN_BYTES, fair_bytes)
        for part in _parts(work, run.options, unit.target, min(part_bytes, MOST_SHARE_BYTES))
    ]
    groups: list[list[tuple[int, Part]]] = []
    filled = part_bytes
    for number, part in parts:
        size_bytes = part.stop - part.start
        if filled + size_bytes / 2 > part_bytes:
            groups.append([])
            filled = 0
        groups[-1].append((number, part))
        filled += size_bytes
    return [Foresight(run, tuple(group)) for group in groups]


def _parts(work: Foreseen, options: object, target: object, part_bytes: int) -> list[Part]:
    try:
        return work.parts(target, options, part_bytes)
    except (OSError, KsegError):
        return []  # whoever works on it says what is wrong


def look_ahead(foresights: Iterable[Foresight[T, O]]) -> Iterator[tuple[int, Any] | Blind]:
    """A task's life: what is found in parts, each with the number of the target."""
    for foresight in foresights:
        blind = arrive(foresight.run)
        if blind is not None:
            yield blind
            return
        work = foresight.run.work
        assert isinstance(work, Foreseen)
        for number, part in foresight.parts:
            with suppress(OSError, KsegError):
                yield number, work.claim(part, foresight.run.options)


def knowing(units: Sequence[Unit[T]], claims: Iterable[tuple[int, Any]]) -> list[Unit[T]]:
    """The units with what was found of each; it takes the most of their weight."""
    found: dict[int, list[Any]] = {}
    for number, claim in claims:
        found.setdefault(number, []).append(claim)
    return [
        replace(unit, claims=tuple(found[unit.number]), weight_bytes=unit.weight_bytes // KNOWN_PART)
        if unit.number in found
        else unit
        for unit in units
    ]


def plan(work: Work[T, O], units: Sequence[Unit[T]], options: O, cores: int) -> list[tuple[Unit[T], ...]]:
    """The units of a run in the order of the output, in groups for one task each."""
    if isinstance(work, InPieces):
        units = [piece for unit in units for piece in _cut(work, unit, options)]
        return pack(units, cores, 2 * PIECE_BYTES)
    whole_bytes = sum(unit.weight_bytes for unit in units)
    return pack(units, cores, max(MOST_SHARE_BYTES, whole_bytes // MOST_SHARES))


def weigh(targets: Sequence[T], look: Look | None = None) -> list[Unit[T]]:
    """The targets as units. look: `weights`, or somebody who does the same faster for many paths."""
    found = (look or weights)([target.path for target in targets])
    return [
        Unit(number, target, weight)
        for number, (target, weight) in enumerate(zip(targets, found, strict=True))
    ]


def weights(paths: Sequence[str]) -> list[int]:
    """The bytes of each path; of a directory, of the files right in it; 0 where that cannot be said."""
    return [_bytes_at(path) for path in paths]


def _cut(work: InPieces, unit: Unit[T], options: O) -> Iterator[Unit[T]]:
    size = unit.weight_bytes
    cuts = work.cuts(unit.target, options, PIECE_BYTES) if size >= 2 * PIECE_BYTES else [0]
    if len(cuts) < 2:
        yield unit
        return
    for start, stop in pairwise([*cuts, size]):
        yield Unit(unit.number, unit.target, stop - start, start, stop, stop == size)


def pack(units: Sequence[Unit[T]], cores: int, most_bytes: int) -> list[tuple[Unit[T], ...]]:
    """Units that stand together, in groups of about the same weight."""
    total = sum(unit.weight_bytes + UNIT_BYTES for unit in units)
    fill = min(most_bytes, max(1, total // (cores * SHARES_PER_CORE)))
    groups: list[list[Unit[T]]] = []
    filled = fill
    for unit in units:
        weight = unit.weight_bytes + UNIT_BYTES
        if filled + weight / 2 > fill:  # whatever comes nearer to a fill
            groups.append([])
            filled = 0
        groups[-1].append(unit)
        filled += weight
    return [tuple(group) for group in groups]


def perform(shares: Iterable[Share[T, O]]) -> Iterator[Outcome | Blind]:
    """A task's life: the outcome of each unit of its share; or that this node does not see what it should work on."""
    for share in shares:
        blind = arrive(share.run)
        if blind is not None:
            yield blind
            return
        room = share.run.room_bytes
        for unit in share.units:
            outcome = _outcome(share.run, unit, room)
            room -= outcome.size_bytes
            yield outcome


def perform_at_length(shares: Iterable[Share[T, O]]) -> Iterator[tuple[bytes, int]]:
    """A task's life that has one unit, and answers however much there is: its chunks, each with its progress."""
    for share in shares:
        arrive(share.run)
        for unit in share.units:
            yield from chunks_of(share.run, unit)


def events_of(share: Share[T, O]) -> Iterator[tuple[Unit[T], Event]]:
    """A task's life that hands over events as they are. Raises UnreadableInput where the node does not see the files."""
    blind = arrive(share.run)
    if blind is not None:
        raise UnreadableInput(blind.sentence)
    for unit in share.units:
        for event in _events(share.run, unit):
            yield unit, event


@dataclass(frozen=True, slots=True)
class Excerpt:
    """A task that hands over so many of the chunks that lie on its executor."""

    start: int
    count: int

    def __call__(self, chunks: Iterable[tuple[bytes, int]]) -> Iterator[tuple[bytes, int]]:
        return islice(iter(chunks), self.start, self.start + self.count)


def unpack(chunk: bytes) -> Iterator[Event]:
    """The events of a chunk."""
    yield from pickle.loads(zlib.decompress(chunk))


def chunks_of(run: TaskRun[T, O], unit: Unit[T]) -> Iterator[tuple[bytes, int]]:
    """The events of a unit in chunks, each with the progress that was made. Raises GivenUp."""
    pending: list[Event] = []
    weight = done_bytes = 0
    for event in _events(run, unit):
        if isinstance(event, Advance):
            done_bytes += event.bytes_done
            continue
        pending.append(event)
        weight += len(event.data) if isinstance(event, Text) else _ROW_BYTES
        if weight >= run.chunk_bytes:
            yield _packed(pending, unit.target.path), done_bytes
            pending, weight, done_bytes = [], 0, 0
    yield _packed(pending, unit.target.path), done_bytes


def _events(run: TaskRun[T, O], unit: Unit[T]) -> Iterator[Event]:
    if unit.start is None:
        options = run.options
        if unit.claims and isinstance(run.work, Foreseen):
            options = run.work.believing(options, unit.claims)
        yield from guarded(run.work, unit.target, options)
        return
    start, stop, has_given_up = unit.start, unit.stop, False

    def piece(target: T, options: O) -> Iterator[Event]:
        nonlocal has_given_up
        assert isinstance(run.work, InPieces)
        try:
            yield from run.work.piece(target, options, start, stop)
        except GivenUp:
            has_given_up = True

    for event in guarded(piece, unit.target, run.options):
        if not _is_of_another_piece(event, start, stop):
            yield event
    if has_given_up:
        raise GivenUp


def _is_of_another_piece(event: Event, start: int, stop: int | None) -> bool:
    """What one process knows of a file's bad sectors is not all about the piece that it is at."""
    if not isinstance(event, Finding) or event.id != "unreadable":
        return False
    position = event.position or 0
    return position < start or (stop is not None and position >= stop)


def _outcome(run: TaskRun[T, O], unit: Unit[T], room: int) -> Outcome:
    chunks: list[bytes] = []
    done_bytes = 0
    if room <= 0:
        return Outcome(unit.number, TaskState.NO_ROOM)
    try:
        for chunk, progress_bytes in chunks_of(run, unit):
            chunks.append(chunk)
            done_bytes += progress_bytes
            if sum(map(len, chunks)) > room:
                return Outcome(
                    unit.number, TaskState.TOO_MUCH if room == run.room_bytes else TaskState.NO_ROOM
                )
    except GivenUp:
        return Outcome(unit.number, TaskState.GIVEN_UP)
    if unit.stop is not None and not done_bytes:
        done_bytes = unit.weight_bytes
    return Outcome(unit.number, TaskState.DONE, tuple(chunks), done_bytes)


def _packed(events: list[Event], path: str) -> bytes:
    try:
        body = pickle.dumps(events, pickle.HIGHEST_PROTOCOL)
    except Exception as error:  # noqa: BLE001  (an event that cannot travel is the bug of the work)
        body = pickle.dumps([bug(path, error)], pickle.HIGHEST_PROTOCOL)
    return zlib.compress(body, _FAST)


def arrive(run: TaskRun[T, O]) -> Blind | None:
    """Make this process stand where the driver stands, and look around when it is new to the run."""
    try:
        stand_in(run.directory)
    except OSError:
        return Blind(socket.gethostname(), run.directory, "does not see")
    if run.id in _known_runs:
        return None
    blind = unseen(run.landmarks)
    if not _known_runs:  # what is there by now stays; the collector need not go through it with each task
        gc.freeze()
        gc.set_threshold(MANY_OBJECTS)
    if blind is None:
        _known_runs.clear()  # a process works for one run at a time, mostly
        _known_runs.add(run.id)
    return blind


def stand_in(directory: str) -> None:
    """Make this process stand where paths are relative to. Raises OSError."""
    if os.getcwd() != directory:
        _hold_on_to_modules()
        os.chdir(directory)


def _hold_on_to_modules() -> None:
    """Have what is imported from relative places be found from elsewhere too: Spark puts shipped zips under `.`."""
    sys.path[:] = [os.path.abspath(place) for place in sys.path]
    for module in list(sys.modules.values()):
        inside = getattr(module, "__path__", None)
        if isinstance(inside, list):
            inside[:] = [os.path.abspath(place) for place in inside]


def _bytes_at(path: str) -> int:
    try:
        if not os.path.isdir(path):
            return os.stat(path).st_size
        with os.scandir(path) as entries:
            return sum(entry.stat().st_size for entry in entries if entry.is_file())
    except OSError:
        return 0  # whoever works on it says why it cannot be read
