"""A forked process that does one piece of work on the memory of this process, and returns one result."""

import os
import pickle
import struct
from collections.abc import Callable
from typing import Generic, Self, TypeVar

from kseg.jobs.forked_worker import ForkedWorker

A = TypeVar("A")

_LENGTH = struct.Struct("<q")
_PIECE_BYTES = 1 << 20


class NoAnswer(Exception):
    """The process could not be started, or ended without a result: its work raised an exception, or it was killed."""


class ForkedAnswer(Generic[A]):
    """A context manager that ends the process. work: runs in it; its result is pickled. Raises NoAnswer if the system allows no
    more processes or pipes."""

    def __init__(self, work: Callable[[], A]) -> None:
        def main(_reads: int, writes: int) -> None:
            answer = pickle.dumps(work(), pickle.HIGHEST_PROTOCOL)
            rest = memoryview(_LENGTH.pack(len(answer)) + answer)
            while rest:
                rest = rest[os.write(writes, rest) :]

        try:
            self._worker = ForkedWorker(main)
        except OSError as error:
            raise NoAnswer from error

    def answer(self) -> A:
        """Wait for the result; call it once. Raises NoAnswer."""
        (length,) = _LENGTH.unpack(self._read(_LENGTH.size))
        found: A = pickle.loads(self._read(length))
        return found

    def _read(self, count: int) -> bytes:
        pieces = []
        while count:
            piece = os.read(self._worker.reads, min(count, _PIECE_BYTES))
            if not piece:
                raise NoAnswer
            pieces.append(piece)
            count -= len(piece)
        return b"".join(pieces)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._worker.kill()
