"""Distribute targets over tasks, and run a task's share.

    unit    one target, by its number in the output, or a piece of one
    share   the work of one task: consecutive units of the output

1. Weigh each unit: its bytes, plus a constant per unit. If the work is `Splittable` (`jobs.log_splitting`), large targets are
   cut into units of PIECE_BYTES at batch boundaries from the index. If it is `Prevalidatable`, other tasks validate parts of
   targets that would keep a single core busy for long.
2. A share is sized so that every core gets SHARES_PER_CORE of them: a core that finishes early finds another one. It never exceeds
   MAX_SHARE_BYTES, so that a lost executor costs little (unless there would be more than MAX_SHARES), and never two pieces if the
   output may be as large as the input.
3. A task returns an `Outcome` for each unit: its events, pickled and compressed, in chunks. Once its results exceed
   MAX_RESULT_BYTES it leaves the remaining units undone and says so: no task returns more than that, whatever the input.
"""

import gc
import os
import pickle
import socket
import sys
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from enum import Enum
from itertools import islice, pairwise
from typing import Any, Generic, TypeVar

from kseg.jobs.events import Advance, Event, Text, Work
from kseg.jobs.guarded import Named, bug, guarded
from kseg.jobs.log_splitting import CannotSplit, Prevalidatable, Splittable
from kseg.segment.errors import UnreadableInput
from kseg.segment.findings import Finding
from kseg.segment.storage import places
from kseg.segment.storage.attached import attach, detach_all
from kseg.segment.values import dataclass
from kseg.spark.visibility import FileSample, NotVisible, first_not_visible

UNIT_BYTES = 512 * 1024  # the fixed cost of a target, as the number of bytes that could be read in that time
SHARES_PER_CORE = 4
MAX_SHARE_BYTES = 256 * 1024 * 1024
MAX_SHARES = 200_000  # each costs the driver about a millisecond; beyond this number, shares grow instead
PIECE_BYTES = 8 * 1024 * 1024
MAX_RESULT_BYTES = 32 * 1024 * 1024
CHUNK_BYTES = 1024 * 1024
MANY_OBJECTS = 50_000
_ROW_BYTES = 512  # a guess at the pickled size of an event that is not text
_FAST = 1
_known_runs: set[str] = set()

T = TypeVar("T", bound=Named)
O = TypeVar("O")
Probe = Callable[[Sequence[str]], Sequence[int]]


@dataclass(frozen=True, slots=True)
class Unit(Generic[T]):
    """number: of the target in the output. weight_bytes: the cost of the work. start, stop: the byte range of a piece, both None for
    the whole target; stop is None for the rest of it. is_last: whether it is the last unit of the target. claims: the spans that other
    tasks have found valid."""

    number: int
    target: T
    weight_bytes: int
    start: int | None = None
    stop: int | None = None
    is_last: bool = True
    claims: tuple[Any, ...] = ()


class TaskState(Enum):
    """Done; not begun, because the task's results reached their limit; too large for one result; a piece that cannot be processed by
    itself."""

    DONE = "done"
    NO_ROOM = "no room"
    TOO_MUCH = "too much"
    CANNOT_SPLIT = "given up"


@dataclass(frozen=True, slots=True)
class Outcome:
    """The outcome of a unit. chunks: its events, packed, if it is done. done_bytes: its progress."""

    number: int
    state: TaskState
    chunks: tuple[bytes, ...] = ()
    done_bytes: int = 0

    @property
    def size_bytes(self) -> int:
        return sum(map(len, self.chunks))


@dataclass(frozen=True, slots=True)
class Share(Generic[T, O]):
    """The work of one task. run: the run that it belongs to."""

    run: "TaskRun[T, O]"
    units: tuple[Unit[T], ...]

    @property
    def weight_bytes(self) -> int:
        return sum(unit.weight_bytes for unit in self.units)


@dataclass(frozen=True, slots=True)
class TaskRun(Generic[T, O]):
    """The common parameters of all shares of a run. id: a unique one. directory: the working directory, to which paths are relative.
    attached: the object stores and archives among the targets. file_samples: the files that a node must see. room_bytes: the limit of one
    task's result. chunk_bytes: the size of a chunk of events before it is packed."""

    id: str
    work: Work[T, O]
    options: O
    directory: str
    attached: tuple[str, ...]
    file_samples: tuple[FileSample, ...]
    room_bytes: int
    chunk_bytes: int


def narrowed(run: "TaskRun[T, O]", units: Sequence[Unit[T]]) -> "TaskRun[T, O]":
    """The run with its options reduced to the targets of these units, since the options are sent with every task."""
    narrow = getattr(run.options, "narrowed_to", None)
    if narrow is None:
        return run
    named = [
        path
        for unit in units
        for target in getattr(unit.target, "targets", None) or (unit.target,)
        for path in (target.path, *getattr(target, "before", ()))  # `before`: what it is compared with
    ]
    return replace(run, options=narrow(named))


def plan(work: Work[T, O], units: Sequence[Unit[T]], options: O, cores: int) -> list[tuple[Unit[T], ...]]:
    """The units of a run in output order, grouped by task."""
    if isinstance(work, Splittable):
        units = [piece for unit in units for piece in _cut(work, unit, options)]
        return pack(units, cores, 2 * PIECE_BYTES)
    whole_bytes = sum(unit.weight_bytes for unit in units)
    return pack(units, cores, max(MAX_SHARE_BYTES, whole_bytes // MAX_SHARES))


def weigh(targets: Sequence[T], probe: Probe | None = None) -> list[Unit[T]]:
    """The targets as units. probe: `weights`, or a function that determines the weights of many paths faster."""
    found = (probe or weights)([target.path for target in targets])
    return [
        Unit(number, target, weight)
        for number, (target, weight) in enumerate(zip(targets, found, strict=True))
    ]


def weights(paths: Sequence[str]) -> list[int]:
    """The size of each path in bytes; for a directory, of the files directly in it; 0 if it is unknown."""
    return [_bytes_at(path) for path in paths]


def _cut(work: Splittable, unit: Unit[T], options: O) -> Iterator[Unit[T]]:
    size = unit.weight_bytes
    cuts = work.cuts(unit.target, options, PIECE_BYTES) if size >= 2 * PIECE_BYTES else [0]
    if len(cuts) < 2:
        yield unit
        return
    for start, stop in pairwise([*cuts, size]):
        yield Unit(unit.number, unit.target, stop - start, start, stop, stop == size)


def pack(units: Sequence[Unit[T]], cores: int, max_bytes: int) -> list[tuple[Unit[T], ...]]:
    """Consecutive units, in groups of about the same weight."""
    total = sum(unit.weight_bytes + UNIT_BYTES for unit in units)
    fill = min(max_bytes, max(1, total // (cores * SHARES_PER_CORE)))
    groups: list[list[Unit[T]]] = []
    filled = fill
    for unit in units:
        weight = unit.weight_bytes + UNIT_BYTES
        if filled + weight / 2 > fill:  # a new group, if that leaves this one closer to `fill`
            groups.append([])
            filled = 0
        groups[-1].append(unit)
        filled += weight
    return [tuple(group) for group in groups]


def run_share(shares: Iterable[Share[T, O]]) -> Iterator[Outcome | NotVisible]:
    """Run in a task: the outcome of each unit of its share, or the report that this node does not see the files."""
    for share in shares:
        not_visible = enter_run(share.run)
        if not_visible is not None:
            yield not_visible
            return
        room = share.run.room_bytes
        for unit in share.units:
            outcome = _outcome(share.run, unit, room)
            room -= outcome.size_bytes
            yield outcome


def stream_share(shares: Iterable[Share[T, O]]) -> Iterator[tuple[bytes, int]]:
    """Run in a task with one unit whose result may be of any size: its chunks, each with its progress."""
    for share in shares:
        enter_run(share.run)
        for unit in share.units:
            yield from chunks_of(share.run, unit)


def events_of(share: Share[T, O]) -> Iterator[tuple[Unit[T], Event]]:
    """Run in a task that returns its events unpacked. Raises UnreadableInput if the node does not see the files."""
    not_visible = enter_run(share.run)
    if not_visible is not None:
        raise UnreadableInput(not_visible.sentence)
    for unit in share.units:
        for event in _events(share.run, unit):
            yield unit, event


@dataclass(frozen=True, slots=True)
class ChunkRange:
    """A task that returns a range of the chunks on its executor."""

    start: int
    count: int

    def __call__(self, chunks: Iterable[tuple[bytes, int]]) -> Iterator[tuple[bytes, int]]:
        return islice(iter(chunks), self.start, self.start + self.count)


def unpack(chunk: bytes) -> Iterator[Event]:
    """The events of a chunk."""
    yield from pickle.loads(zlib.decompress(chunk))


def chunks_of(run: TaskRun[T, O], unit: Unit[T]) -> Iterator[tuple[bytes, int]]:
    """The events of a unit in chunks, each with its progress. Raises CannotSplit."""
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
        if unit.claims and isinstance(run.work, Prevalidatable):
            options = run.work.with_validated(options, unit.claims)
        yield from guarded(run.work, unit.target, options)
        return
    start, stop, cannot_split = unit.start, unit.stop, False

    def piece(target: T, options: O) -> Iterator[Event]:
        nonlocal cannot_split
        assert isinstance(run.work, Splittable)
        try:
            yield from run.work.piece(target, options, start, stop)
        except CannotSplit:
            cannot_split = True

    for event in guarded(piece, unit.target, run.options):
        if not _is_of_another_piece(event, start, stop):
            yield event
    if cannot_split:
        raise CannotSplit


def _is_of_another_piece(event: Event, start: int, stop: int | None) -> bool:
    """Whether an event is about bytes of another piece: a process reports all bad sectors of a file that it knows."""
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
    except CannotSplit:
        return Outcome(unit.number, TaskState.CANNOT_SPLIT)
    if unit.stop is not None and not done_bytes:
        done_bytes = unit.weight_bytes
    return Outcome(unit.number, TaskState.DONE, tuple(chunks), done_bytes)


def _packed(events: list[Event], path: str) -> bytes:
    try:
        body = pickle.dumps(events, pickle.HIGHEST_PROTOCOL)
    except Exception as error:  # noqa: BLE001  (an event that cannot be pickled is a bug of the work)
        body = pickle.dumps([bug(path, error)], pickle.HIGHEST_PROTOCOL)
    return zlib.compress(body, _FAST)


def enter_run(run: TaskRun[T, O]) -> NotVisible | None:
    """Change to the driver's working directory. If this process is new to the run, attach what the driver has attached, and check the
    file samples."""
    try:
        enter_directory(run.directory)
    except OSError:
        return NotVisible(socket.gethostname(), run.directory, "does not see")
    if run.id in _known_runs:
        return None
    not_visible = _attached(run.attached) or first_not_visible(run.file_samples)
    if not _known_runs:
        # objects created so far are permanent; the garbage collector need not traverse them in each task
        gc.freeze()
        gc.set_threshold(MANY_OBJECTS)
    if not_visible is None:
        _known_runs.clear()  # a process usually works for one run at a time
        _known_runs.add(run.id)
    return not_visible


def _attached(paths: Sequence[str]) -> NotVisible | None:
    detach_all()  # those of an earlier run may have been replaced, and relative paths lead elsewhere
    for path in paths:
        try:
            attach(path)
        except OSError:
            return NotVisible(socket.gethostname(), places.abspath(path), "does not see")
    return None


def enter_directory(directory: str) -> None:
    """Change to the directory that paths are relative to. Raises OSError."""
    try:
        here = os.getcwd()
    except FileNotFoundError:
        # Spark reuses its workers, and the directory of an earlier run may be gone; nothing is imported from there
        here = ""
    if here != directory:
        if here:
            _make_import_paths_absolute()
        os.chdir(directory)


def _make_import_paths_absolute() -> None:
    """Make relative import paths absolute before the directory changes: Spark puts shipped zips under `.`."""
    sys.path[:] = [places.abspath(place) for place in sys.path]
    for module in list(sys.modules.values()):
        inside = getattr(module, "__path__", None)
        if isinstance(inside, list):
            inside[:] = [places.abspath(place) for place in inside]


def _bytes_at(path: str) -> int:
    try:
        if not places.isdir(path):
            return places.stat(path).st_size
        with places.scandir(path) as entries:
            return sum(entry.stat().st_size for entry in entries if entry.is_file())
    except OSError:
        return 0  # the work on it reports why it cannot be read
