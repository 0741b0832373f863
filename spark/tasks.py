"""What one task of the cluster does, and how targets are shared out among tasks.

    unit    one target, by its number in the output
    share   units that stand together in the output: what one task works on

1. Weigh every unit: its bytes, and a little for being one at all.
2. A share is filled up to a part of the whole that gives every core SHARES_PER_CORE of them, so that a core that is
   done early finds another; but never beyond MOST_SHARE_BYTES, so that what a lost executor costs stays small.
3. A task answers for each of its units with an `Outcome`: its events, pickled and compressed, in chunks. When all of
   its answers together pass MOST_RESULT_BYTES the rest is left undone, and said so: nothing that one task sends is larger
   than that, whatever the input.
"""

import os
import pickle
import socket
import sys
import zlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Generic, TypeVar

from kseg.segment.events import Advance, Event, Text, Work
from kseg.segment.fanout import Named, bug, guarded
from kseg.spark.sight import Blind, Landmark, unseen

UNIT_BYTES = 512 * 1024  # what a target costs besides its bytes, in bytes read meanwhile
SHARES_PER_CORE = 4
MOST_SHARE_BYTES = 256 * 1024 * 1024
MOST_RESULT_BYTES = 32 * 1024 * 1024
CHUNK_BYTES = 1024 * 1024
_ROW_BYTES = 512  # a guess at the pickled size of an event that is no text
_FAST = 1
_known_runs: set[str] = set()

T = TypeVar("T", bound=Named)
O = TypeVar("O")


@dataclass(frozen=True, slots=True)
class Unit(Generic[T]):
    """number: of the target in the output. weight_bytes: what working on it costs."""

    number: int
    target: T
    weight_bytes: int


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of a unit. chunks: its events, packed; None when it was left undone because there was too much.
    done_bytes: its progress."""

    number: int
    chunks: tuple[bytes, ...] | None
    done_bytes: int = 0

    @property
    def size_bytes(self) -> int:
        return sum(map(len, self.chunks or ()))


@dataclass(frozen=True, slots=True)
class Share(Generic[T, O]):
    """What one task works on. run: what it belongs to."""

    run: "Run[T, O]"
    units: tuple[Unit[T], ...]


@dataclass(frozen=True, slots=True)
class Run(Generic[T, O]):
    """What all shares of a run have in common. id: tells runs apart. directory: the working directory, which paths are
    relative to. landmarks: what a node must see."""

    id: str
    work: Work[T, O]
    options: O
    directory: str
    landmarks: tuple[Landmark, ...]


def weigh(targets: Sequence[T]) -> list[Unit[T]]:
    """The targets as units. A directory weighs as much as the files right in it."""
    return [Unit(number, target, _bytes_at(target.path)) for number, target in enumerate(targets)]


def pack(units: Sequence[Unit[T]], cores: int) -> list[tuple[Unit[T], ...]]:
    """Units that stand together, in groups for one task each."""
    total = sum(unit.weight_bytes + UNIT_BYTES for unit in units)
    fill = min(MOST_SHARE_BYTES, max(1, total // (cores * SHARES_PER_CORE)))
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
        blind = _arrive(share.run)
        if blind is not None:
            yield blind
            return
        room = MOST_RESULT_BYTES
        for unit in share.units:
            outcome = _outcome(share, unit, room)
            room -= outcome.size_bytes
            yield outcome


def perform_at_length(shares: Iterable[Share[T, O]]) -> Iterator[tuple[bytes, int]]:
    """A task's life that has one unit, and answers however much there is: its chunks, each with its progress."""
    for share in shares:
        _arrive(share.run)
        for unit in share.units:
            yield from chunks_of(share, unit)


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


def chunks_of(share: Share[T, O], unit: Unit[T]) -> Iterator[tuple[bytes, int]]:
    """The events of a unit in chunks, each with the progress that was made."""
    pending: list[Event] = []
    weight = done_bytes = 0
    for event in guarded(share.run.work, unit.target, share.run.options):
        if isinstance(event, Advance):
            done_bytes += event.bytes_done
            continue
        pending.append(event)
        weight += len(event.data) if isinstance(event, Text) else _ROW_BYTES
        if weight >= CHUNK_BYTES:
            yield _packed(pending, unit.target.path), done_bytes
            pending, weight, done_bytes = [], 0, 0
    yield _packed(pending, unit.target.path), done_bytes


def _outcome(share: Share[T, O], unit: Unit[T], room: int) -> Outcome:
    chunks: list[bytes] = []
    done_bytes = 0
    if room <= 0:
        return Outcome(unit.number, None)
    for chunk, progress_bytes in chunks_of(share, unit):
        chunks.append(chunk)
        done_bytes += progress_bytes
        room -= len(chunk)
        if room < 0:
            return Outcome(unit.number, None)
    return Outcome(unit.number, tuple(chunks), done_bytes)


def _packed(events: list[Event], path: str) -> bytes:
    try:
        body = pickle.dumps(events, pickle.HIGHEST_PROTOCOL)
    except Exception as error:  # noqa: BLE001  (an event that cannot travel is the bug of the work)
        body = pickle.dumps([bug(path, error)], pickle.HIGHEST_PROTOCOL)
    return zlib.compress(body, _FAST)


def _arrive(run: Run[T, O]) -> Blind | None:
    """Make this process stand where the driver stands, and look around when it is new to the run."""
    if os.getcwd() != run.directory:
        # what is imported from relative places is found from there too
        sys.path[:] = [os.path.abspath(place) for place in sys.path]
        try:
            os.chdir(run.directory)
        except OSError:
            return Blind(socket.gethostname(), run.directory, "does not see")
    if run.id in _known_runs:
        return None
    blind = unseen(run.landmarks)
    if blind is None:
        _known_runs.clear()  # a process works for one run at a time, mostly
        _known_runs.add(run.id)
    return blind


def _bytes_at(path: str) -> int:
    try:
        if not os.path.isdir(path):
            return os.stat(path).st_size
        with os.scandir(path) as entries:
            return sum(entry.stat().st_size for entry in entries if entry.is_file())
    except OSError:
        return 0  # whoever works on it says why it cannot be read
