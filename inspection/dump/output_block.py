"""The output buffer of a dump: kernels write lines into it, and a full block is emitted as `Text`."""

from collections.abc import Callable, Iterator

from kseg.jobs.events import Text

Buffer = bytearray | memoryview

BLOCK_BYTES = 256 * 1024  # small enough to stay in the CPU cache until it is written


class Block:
    """A buffer of whole lines; grows when a single line does not fit.

    expected_bytes: the approximate size of the output, if it is small.
    """

    def __init__(self, expected_bytes: int = BLOCK_BYTES) -> None:
        self._out: Buffer = bytearray(min(BLOCK_BYTES, expected_bytes))
        self._filled = 0
        self._room: Callable[[], memoryview] | None = None

    def write_into(self, room: Callable[[], memoryview]) -> None:
        """From now on, write each block into the memory that `room` returns, and emit views of it."""
        self._room = room

    def fill(self, put: Callable[[Buffer, int], int], is_finished: Callable[[], bool]) -> Iterator[Text]:
        """Call `put(buffer, start)`, which returns the new end, until it has written everything; yields full blocks."""
        self._find_room()
        while True:
            end = put(self._out, self._filled)
            is_stuck = end == self._filled
            self._filled = end
            if is_finished():
                return
            if is_stuck and not end:
                self._out = bytearray(2 * len(self._out))
            elif end:
                yield from self.flush()
                self._find_room()

    def append(self, line: bytes) -> Iterator[Text]:
        """Append a line (or, after `reopen_line`, the rest of one)."""
        if self._filled + len(line) > len(self._out):
            yield from self.flush()
        self._find_room()
        if len(line) > len(self._out):
            yield Text(line)
            return
        self._out[self._filled : self._filled + len(line)] = line
        self._filled += len(line)

    def reopen_line(self) -> None:
        """Remove the last newline, so that `append` continues that line."""
        self._filled -= 1

    def flush(self) -> Iterator[Text]:
        """Emit the content of the block, if any."""
        if self._filled:
            out = self._out
            yield Text(
                out[: self._filled] if isinstance(out, memoryview) else bytes(memoryview(out)[: self._filled])
            )
            self._filled = 0

    def _find_room(self) -> None:
        if self._room is not None and not self._filled:
            self._out = self._room()
