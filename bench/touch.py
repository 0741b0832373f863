"""The throughput of the page cache: map a file and touch it, timed within a separate process.

    python -m bench.touch page|every FILE

`page` reads one byte of each page, `every` all bytes (copied through a buffer that stays in the processor's cache). Both map, touch and
unmap. Prints one JSON line: {"seconds": …}.
"""

import json
import mmap
import sys
import time
from pathlib import Path

PIECE_BYTES = 256 * 1024


def touch_pages(view: memoryview) -> None:
    """One byte of each page."""
    bytes(view[:: mmap.PAGESIZE])


def touch_every_byte(view: memoryview) -> None:
    """All bytes, at the speed of memcpy."""
    buffer = bytearray(PIECE_BYTES)
    for position in range(0, len(view) - PIECE_BYTES + 1, PIECE_BYTES):
        buffer[:] = view[position : position + PIECE_BYTES]
    rest = len(view) % PIECE_BYTES
    if rest:
        bytes(view[-rest:])


def seconds_for(way: str, path: str) -> float:
    """Seconds to map `path`, touch it in this way, and unmap it."""
    touch = {"page": touch_pages, "every": touch_every_byte}[way]
    with Path(path).open("rb") as stream:
        start = time.perf_counter()
        area = mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ)
        with memoryview(area) as view:
            touch(view)
        area.close()
        return time.perf_counter() - start


if __name__ == "__main__":
    print(json.dumps({"seconds": seconds_for(sys.argv[1], sys.argv[2])}))
