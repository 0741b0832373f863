"""A forked process that does one piece of work on the memory of this process, and returns one result."""

import pickle
import struct
from collections.abc import Callable
from typing import Generic, Self, TypeVar

from kseg.jobs.forked_worker import ForkedWorker
from kseg.jobs.pipes import read_exactly, write_all

A = TypeVar("A")

_LENGTH = struct.Struct("<q")


class NoAnswer(Exception):
    """The process could not be started, or ended without a result: its work raised an exception, or it was killed."""


class ForkedAnswer(Generic[A]):
    """A context manager that ends the process. work: runs in it; its result is pickled. Raises NoAnswer if the system allows no
    more processes or pipes."""

    def __init__(self, work: Callable[[], A]) -> None:
        def main(_reads: int, writes: int) -> None:
            answer = pickle.dumps(work(), pickle.HIGHEST_PROTOCOL)
            write_all(writes, _LENGTH.pack(len(answer)) + answer)

        try:
            self._worker = ForkedWorker(main)
        except OSError as error:
            raise NoAnswer from error

    def answer(self) -> A:
        """Wait for the result; call it once. Raises NoAnswer."""
        (length,) = _LENGTH.unpack(self._read(_LENGTH.size))
        found: A = pickle.loads(self._read(length))
        return found

    def _read(self, size_bytes: int) -> bytes:
        read = read_exactly(self._worker.reads, size_bytes)
        if read is None:
            raise NoAnswer
        return read

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._worker.kill()
