"""Holes in sparse files: which ranges of a file hold data, and which were never written."""

import errno
import os
from collections.abc import Iterable, Iterator

LARGE_HOLE_BYTES = 1 << 20


def data_extents(descriptor: int, position: int, count: int) -> Iterator[tuple[int, int]]:
    """Where the bytes of a range of an open file lie (position, length), in order; between them are holes, which read
    as zeros. All of it where the file system does not tell."""
    end = position + count
    while position < end:
        try:
            start = os.lseek(descriptor, position, os.SEEK_DATA)
        except OSError as error:
            if error.errno == errno.ENXIO:  # a hole up to the end
                return
            start, stop = position, end
        else:
            if start >= end:
                return
            stop = min(end, os.lseek(descriptor, start, os.SEEK_HOLE))
        yield start, stop - start
        position = stop


def without_large_holes(extents: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    """(start, end) of what is between the holes of a file that are worth to be left out.

    extents: (position, length) of what is not a hole, in order.
    """
    found: list[tuple[int, int]] = []
    for start, length in extents:
        if found and start - found[-1][1] < LARGE_HOLE_BYTES:
            found[-1] = found[-1][0], start + length
        else:
            found.append((start, start + length))
    return found
