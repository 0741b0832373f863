"""Find ranges of zeros in a log: preallocated space, and holes, which need not be read."""

from kseg.segment.files import OpenFile
from kseg.segment.holes import without_large_holes
from kseg.segment.kernel.batch_walk import zero_run

CHUNK_BYTES = 64 * 1024
_ZEROS = bytes(CHUNK_BYTES)


class ZeroRanges:
    """The zeros of one file. view: all of it. file: the source of the bytes, None if they are not from a file."""

    def __init__(self, view: memoryview, file: OpenFile | None) -> None:
        self._view = view
        self._file = file
        self._extents: list[tuple[int, int]] | None = None
        self._tail = -1, -1  # an end, and the start of the zeros before it

    def reach(self, position: int, end: int) -> bool:
        """Whether everything from `position` to `end` is zero."""
        if self._tail[0] != end:
            self._tail = end, self._tail_start(end)
        return position >= self._tail[1]

    def fill(self, position: int, stop: int) -> bool:
        """As `reach`, for a range that ends inside the log."""
        return all(
            zero_run(self._view, first, until) == until - first
            for first, until in self.with_data(position, stop)
        )

    def with_data(self, position: int, stop: int) -> list[tuple[int, int]]:
        """(start, end) of the parts of a range that are not large holes."""
        if self._extents is None:
            size = len(self._view)
            self._extents = without_large_holes(
                [(0, size)] if self._file is None else self._file.extents(0, size)
            )
        found = [(max(start, position), min(end, stop)) for start, end in self._extents]
        return [(start, end) for start, end in found if start < end]

    def _tail_start(self, end: int) -> int:
        for first, start in reversed(self.with_data(0, end)):
            while start > first:
                chunk = bytes(self._view[max(first, start - CHUNK_BYTES) : start])
                # ten times as fast as stripping the zeros, of which a preallocated segment has many
                if chunk == _ZEROS:
                    start -= len(chunk)
                    continue
                left = len(chunk.rstrip(b"\0"))
                start -= len(chunk) - left
                if left:
                    return start
        return 0
