"""Argument types of the kernels, for type checkers: anything that contains bytes or 64-bit numbers and is indexed by position.

Compiled kernels take buffers with the C types of their `.pxd`. No module imports this one at run time.
"""

from typing import Protocol


class Readable(Protocol):
    """bytes, bytearray, mmap, array, memoryview."""

    def __len__(self) -> int: ...
    def __getitem__(self, index: int, /) -> int: ...


class Writable(Readable, Protocol):
    """A `Readable` that is not read-only."""

    def __setitem__(self, index: int, value: int, /) -> None: ...


class ReadableBuffer(Readable, Protocol):
    """A `Readable` that C libraries accept as well."""

    def __buffer__(self, flags: int, /) -> memoryview: ...
