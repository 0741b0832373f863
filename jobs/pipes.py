"""Whole messages through the pipes between processes, which a single read or write may carry only in part."""

import os

_PIECE_BYTES = 1 << 20


def read_exactly(descriptor: int, size_bytes: int) -> bytes | None:
    """The next `size_bytes` of a pipe; None if it ends before."""
    pieces = []
    while size_bytes:
        piece = os.read(descriptor, min(size_bytes, _PIECE_BYTES))
        if not piece:
            return None
        pieces.append(piece)
        size_bytes -= len(piece)
    return b"".join(pieces)


def write_all(descriptor: int, data: bytes) -> None:
    """Write all bytes. Raises BrokenPipeError if nobody reads from the pipe any longer."""
    rest = memoryview(data)
    while rest:
        rest = rest[os.write(descriptor, rest) :]
