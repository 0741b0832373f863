"""The events that a command's work yields: a stream of plain, picklable values.

Every command is a function `(target, options) -> Iterator[Event]`. The local run, the worker processes of
`--jobs` and a cluster differ only in where they call it; the caller prints the events in order.
"""

from collections.abc import Iterator, Mapping
from dataclasses import field
from typing import Protocol, TypeVar

from kseg.segment.errors import KsegError, VanishedInput
from kseg.segment.findings import Finding
from kseg.segment.values import dataclass


@dataclass(frozen=True, slots=True)
class Text:
    """Bytes for stdout, unchanged (whole lines). If another process produced them (`log_parts`), they are a memoryview of the
    shared memory, which is released when the next event is requested."""

    data: bytes | memoryview


@dataclass(frozen=True, slots=True)
class Row:
    """One answer as named values; the JSON line of the command is exactly this mapping, including `type`.

    values: what is printed. result: the same as an object, for code that uses it; None if no code does.
    """

    values: Mapping[str, object]
    result: object = field(default=None, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Failure:
    """An input that could not be processed; `sentence` contains the path, `exit_status` is that of the contract.

    trace: the traceback, only for a bug; shown on request. paths: all inputs concerned, if there are others than `path`. is_vanished:
    something that was listed does not exist.
    """

    path: str
    sentence: str
    exit_status: int
    trace: str = ""
    paths: tuple[str, ...] = ()
    is_vanished: bool = False

    @classmethod
    def of(cls, path: str, error: KsegError) -> "Failure":
        """The failure that an exception means for the target `path`."""
        return cls(path, str(error), error.exit_status, is_vanished=isinstance(error, VanishedInput))


@dataclass(frozen=True, slots=True)
class Advance:
    """Progress: this many more bytes of `path` are done (for display only)."""

    path: str
    bytes_done: int


Event = Text | Row | Finding | Failure | Advance

T_contra = TypeVar("T_contra", contravariant=True)
O_contra = TypeVar("O_contra", contravariant=True)


class Work(Protocol[T_contra, O_contra]):
    """The signature of every command's work; must be importable by name so that it can be pickled."""

    def __call__(self, target: T_contra, options: O_contra, /) -> Iterator[Event]: ...
