"""Anonymous memory: shared with forked processes, or private to one."""

import mmap
from contextlib import suppress


def shared_memory(size_bytes: int) -> memoryview:
    """Zeroed memory that this process shares with processes that it forks."""
    return memoryview(mmap.mmap(-1, size_bytes))


class PrivateMemory:
    """Zeroed memory of this process; pages that are never touched cost nothing.

    is_large: most of it will be touched in random order, so use large pages.
    """

    def __init__(self, size_bytes: int, *, is_large: bool = False) -> None:
        self._map = mmap.mmap(-1, size_bytes, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        if is_large and hasattr(mmap, "MADV_HUGEPAGE"):
            with suppress(OSError):
                self._map.madvise(mmap.MADV_HUGEPAGE)
        self.view = memoryview(self._map)

    def forget(self) -> None:
        """Set everything to zero again."""
        self._map.madvise(mmap.MADV_DONTNEED)

    def close(self) -> None:
        """Release the memory; views of it must have been released."""
        self.view.release()
        self._map.close()
