"""The interfaces through which a cluster divides a large target among tasks.

    Splittable       the output of a target is the output of its pieces, concatenated     dump
    Prevalidatable   tasks validate parts in advance, and the work skips those parts      verify

A piece is between two batch boundaries, as far as the index is correct. So the task that works on a piece checks that the batches
from its start lead exactly to its end, and rejects the piece if they do not.
"""

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any, Protocol, runtime_checkable

from kseg.jobs.events import Event
from kseg.segment.errors import UnreadableInput
from kseg.segment.files import MappedFile
from kseg.segment.layout import LOG_SUFFIX, OFFSET_INDEX_SUFFIX
from kseg.segment.sidecar.index import OffsetIndex
from kseg.segment.storage import places
from kseg.segment.values import dataclass


class CannotSplit(Exception):
    """A piece cannot be processed on its own."""


@runtime_checkable
class Splittable(Protocol):
    """Work whose output for a target is that of its pieces, concatenated."""

    def cuts(self, target: Any, options: Any, piece_bytes: int) -> list[int]:
        """The start positions of pieces of about this size, the first 0; at most one if the target is not divided."""
        ...

    def piece(self, target: Any, options: Any, start: int, stop: int | None) -> Iterator[Event]:
        """The events of a piece, between two cuts; stop None means to the end. Raises CannotSplit if the rest can only be
        processed as a whole."""
        ...


@dataclass(frozen=True, slots=True)
class Part:
    """A range of one file that another process may validate in advance."""

    path: str
    start: int
    stop: int


@runtime_checkable
class Prevalidatable(Protocol):
    """Work that processes a target in order, most of which other tasks can do in advance in any order."""

    def parts(self, target: Any, options: Any, part_bytes: int) -> list[Part]:
        """The parts of a target that other tasks can validate, each of about this size."""
        ...

    def claim(self, part: Part, options: Any) -> Any:
        """The result of validating a part."""
        ...

    def with_validated(self, options: Any, claims: Sequence[Any]) -> Any:
        """The options with these results."""
        ...


def index_cuts(log_path: str, piece_bytes: int) -> list[int]:
    """Positions in a `.log` about `piece_bytes` apart at which a batch begins according to its `.index`, the first 0.

    Reads only the index, with some probes for each piece. No index, or a smaller log: [0].
    """
    cuts = [0]
    try:
        size_bytes = places.stat(log_path).st_size
        if size_bytes < 2 * piece_bytes or not log_path.endswith(LOG_SUFFIX):
            return cuts
        if places.is_elsewhere(log_path):
            return cuts  # every reader of a piece would fetch all of it
        with MappedFile(log_path.removesuffix(LOG_SUFFIX) + OFFSET_INDEX_SUFFIX) as file:
            index = OffsetIndex(file.view, 0)
            slot = 0
            for wanted in range(piece_bytes, size_bytes - piece_bytes // 2, piece_bytes):
                slot = index.slot_at(wanted, slot)
                position = index.entry(slot).position if slot < len(index) else size_bytes
                if cuts[-1] < position < size_bytes:
                    cuts.append(position)
    except (OSError, UnreadableInput):
        return cuts
    return cuts


def pieces_between(path: str, size_bytes: int, part_bytes: int) -> list[Part]:
    """A log of this size in parts, cut according to its index."""
    return [Part(path, start, stop) for start, stop in pairwise([*index_cuts(path, part_bytes), size_bytes])]
