"""Start a thread only if there is memory for it.

A thread that gets no memory before it begins ends without a word, and CPython's `Thread.start` waits for it for ever. Under a limit of
the address space (`ulimit -v`) the new thread itself uses up what is left: its stack, and a heap of its own in the C library.
"""

import resource
import threading

from kseg.segment.memory import PrivateMemory

_STACK_BYTES = 8 << 20  # if the limit of the stack is lower, or there is none
# glibc reserves twice the 64 MiB of a heap to align it; the rest is for what this and other threads allocate until it has begun
_HEAP_BYTES = (128 + 64) << 20


def start(thread: threading.Thread) -> None:
    """Raises RuntimeError, like `Thread.start`, if there can be no further thread."""
    stack_bytes, _ = resource.getrlimit(resource.RLIMIT_STACK)
    try:
        PrivateMemory(max(stack_bytes, _STACK_BYTES) + _HEAP_BYTES).close()
    except (OSError, OverflowError, MemoryError) as error:
        raise RuntimeError("not enough memory for a further thread") from error
    thread.start()
