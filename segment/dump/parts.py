"""One large log, dumped by several processes: parts of it, cut between batches.

Sending text from process to process costs half as much as making it from plain batches, so that those are shared out
only where a line costs more; decompression always pays.

1. Follow the length fields from header to header. Where they do not lead to the very end of the file, it stays whole.
2. Cut it at batches about PART_BYTES apart and fork a helper for each process more than this one. Part i belongs to
   process i mod jobs; this process is number 0 and also takes what the helpers send, so that the output has its order.
3. A part is finished before it is given out. A finding in it means that lines may depend on what came before, and
   text beyond MOST_TEXT_BYTES that memory is at stake: then the helpers are dismissed and this process alone goes on
   from where that part begins, as if there had been no parts.
4. A helper that is not read blocks in its pipe. One that dies counts as one that met a finding.
"""

import os
import signal
import struct
import sys
from array import array
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from typing import NoReturn

from kseg.segment import columns as C
from kseg.segment import layout as L
from kseg.segment.columns import Columns
from kseg.segment.events import Event, Text
from kseg.segment.kernel.walk import FULL, walk

PART_BYTES = 1024 * 1024
LEAST_PARTS = 16  # a smaller file is done before a helper has started
MOST_TEXT_BYTES = 64 * 1024 * 1024
_PIPE_BYTES = 1024 * 1024
_HEADERS_PER_WALK = 1024

_GIVEN_UP = -1
_NUMBER = struct.Struct("<q")

# the events of the bytes from a position up to another, None = to the end of the file
Dump = Callable[[int, int | None], Iterator[Event]]


def in_parts(view: memoryview, dump: Dump, jobs: int, *, plain_too: bool) -> Iterator[Event]:
    """The events of `dump(0, None)`, by `jobs` processes when that can be done and pays.

    plain_too: whether it pays for batches that need no decompression.
    """
    pays = plain_too or _starts_compressed(view)
    cuts = (
        boundaries(view)
        if pays and jobs > 1 and len(view) >= LEAST_PARTS * PART_BYTES and _may_fork()
        else []
    )
    if len(cuts) < LEAST_PARTS:
        yield from dump(0, None)
        return
    helpers: list[_Helper] = []
    done = 0
    try:
        for number in range(1, jobs):
            helpers.append(_Helper(dump, cuts, number, jobs, helpers))
        for part in range(len(cuts)):
            owner = part % jobs
            blocks = helpers[owner - 1].receive() if owner else _blocks(dump, cuts, part)
            if blocks is None:
                break
            yield from map(Text, blocks)
            done = part + 1
    finally:
        for helper in helpers:
            helper.dismiss()
    if done < len(cuts):
        yield from dump(cuts[done], None)


def _starts_compressed(view: memoryview) -> bool:
    low_byte = L.ATTRIBUTES_POSITION + 1
    return (
        len(view) > low_byte and view[L.MAGIC_POSITION] == L.MAGIC_V2 and bool(view[low_byte] & L.CODEC_MASK)
    )


def boundaries(view: memoryview) -> list[int]:
    """Positions of batches, about PART_BYTES apart, the first 0; none when the lengths do not lead to the end."""
    end = len(view)
    table = Columns(C.BATCH_WIDTH, _HEADERS_PER_WALK)
    state = memoryview(array("q", [0, 0]))
    cuts = [0]
    while state[0] < end:
        reason = walk(view, end, table.cells, table.capacity, state)
        if reason != FULL and state[0] != end:
            return []
        table.count = state[1]
        for position in table.column(C.POSITION):
            if position - cuts[-1] >= PART_BYTES:
                cuts.append(position)
    return cuts


def _blocks(dump: Dump, cuts: Sequence[int], part: int) -> list[bytes] | None:
    """The text of a part; None when it is not all text, or too much."""
    blocks: list[bytes] = []
    size_bytes = 0
    for event in dump(cuts[part], cuts[part + 1] if part + 1 < len(cuts) else None):
        if not isinstance(event, Text) or size_bytes > MOST_TEXT_BYTES:
            return None
        blocks.append(event.data)
        size_bytes += len(event.data)
    return blocks


def _may_fork() -> bool:
    # a fork copies only the thread that calls it
    threading = sys.modules.get("threading")
    return hasattr(os, "fork") and (threading is None or threading.active_count() == 1)


class _Helper:
    """A forked process that makes every `jobs`-th part from `number` on, seen from this side."""

    def __init__(
        self, dump: Dump, cuts: Sequence[int], number: int, jobs: int, others: "Sequence[_Helper]"
    ) -> None:
        ours, theirs = os.pipe()
        _widen(theirs)
        masked = signal.pthread_sigmask(
            signal.SIG_BLOCK, {signal.SIGINT}
        )  # Ctrl-C is this process's to handle
        try:
            self._pid = os.fork()
            if not self._pid:
                os.close(ours)
                for other in others:  # left open here they would hide that this process has gone
                    os.close(other.pipe)
                _help(theirs, dump, cuts, range(number, len(cuts), jobs))
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, masked)
        os.close(theirs)
        self.pipe: int = ours

    def receive(self) -> list[bytes] | None:
        """The next part; None when the helper gave it up or is gone."""
        count = self._number()
        blocks = []
        for _ in range(max(0, count)):
            size_bytes = self._number()
            block = _receive(self.pipe, max(0, size_bytes))
            if len(block) != size_bytes:
                return None
            blocks.append(block)
        return None if count == _GIVEN_UP else blocks

    def dismiss(self) -> None:
        os.close(self.pipe)
        with suppress(ProcessLookupError):
            os.kill(self._pid, signal.SIGKILL)  # it holds nothing that would have to be tidied up
        with suppress(ChildProcessError):
            os.waitpid(self._pid, 0)

    def _number(self) -> int:
        raw = _receive(self.pipe, _NUMBER.size)
        return _NUMBER.unpack(raw)[0] if len(raw) == _NUMBER.size else _GIVEN_UP


def _widen(pipe: int) -> None:
    import fcntl

    with suppress(AttributeError, OSError):  # another system, or the user's share of pipe memory is used up
        fcntl.fcntl(pipe, fcntl.F_SETPIPE_SZ, _PIPE_BYTES)


def _help(pipe: int, dump: Dump, cuts: Sequence[int], parts: Sequence[int]) -> NoReturn:
    """A helper's life. It ends without a word, whatever happens: the other side notices, and repeats what failed."""
    status = 1
    try:
        for part in parts:
            blocks = _blocks(dump, cuts, part)
            _send(pipe, _NUMBER.pack(_GIVEN_UP if blocks is None else len(blocks)))
            if blocks is None:
                break
            for block in blocks:
                _send(pipe, _NUMBER.pack(len(block)))
                _send(pipe, block)
        status = 0
    finally:
        os._exit(status)


def _receive(pipe: int, count: int) -> bytes:
    """`count` bytes, fewer when the other side has gone; mostly one read and no copy."""
    data = os.read(pipe, count)
    while 0 < len(data) < count:
        more = os.read(pipe, count - len(data))
        if not more:
            break
        data += more
    return data


def _send(pipe: int, data: bytes) -> None:
    rest = memoryview(data)
    while rest:
        rest = rest[os.write(pipe, rest) :]
