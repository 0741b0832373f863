"""Holes in sparse files: which ranges of a file hold data, and which were never written."""

import errno
import os
from collections.abc import Iterable, Iterator

LARGE_HOLE_BYTES = 1 << 20


def data_extents(descriptor: int, position: int, count: int) -> Iterator[tuple[int, int]]:
    """(position, length) of the data in a range of an open file, in order; between them are holes, which read
    as zeros. The whole range if the file system does not report holes."""
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
    """(start, end) of the data between those holes of a file that are large enough to skip.

    extents: (position, length) of the data, in order.
    """
    found: list[tuple[int, int]] = []
    for start, length in extents:
        if found and start - found[-1][1] < LARGE_HOLE_BYTES:
            found[-1] = found[-1][0], start + length
        else:
            found.append((start, start + length))
    return found
