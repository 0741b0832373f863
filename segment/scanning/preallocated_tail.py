"""Decide whether the zeros at the end of a log were preallocated by a broker, or remain from an interrupted write.

With `preallocate=true` a broker makes the file of a new segment as long as segment.bytes, fills it from the front, and truncates it when
the segment is closed (Kafka: FileRecords.open and trim, LogSegment.onBecomeInactiveSegment). So zeros are preallocated if

- the file is the active segment: no log beside it has a higher base offset;
- the data directory was not shut down cleanly: a clean shutdown truncates the file, and with the marker a broker would read the zeros as
  a batch and fail (CorruptRecordException);
- the length of the file looks like a configured one: whole MiB, whole thousands of bytes, a power of two from 16 KiB on, or the largest
  that Kafka accepts. A batch ends at such a length by chance about once in a thousand times. A file that a crash has left with zeros is as
  long as its batches were, or ends at a page boundary; one in a hundred of the latter would pass, while a test for multiples of 16 KiB
  would accept one in four.

Settings are not used: segment.bytes may have changed since the segment was created, and dump, lookup and list know no settings, but
must agree with verify.
"""

import os

from kseg.segment import layout as L
from kseg.segment.storage import places

PREALLOCATED = "segment-preallocated"
_ROUND_BYTES = (1 << 20, 1000)
_LEAST_POWER = 1 << 14
_CLEAN_MARKER = ".kafka_cleanshutdown"
_NAME_DIGITS = 20


def is_preallocated(path: str, size_bytes: int) -> bool:
    """Whether zeros that extend to the end of the `.log` at `path` were preallocated. size_bytes: of the file."""
    base_offset = _base_offset(os.path.basename(path))
    if not has_preallocated_size(size_bytes) or base_offset is None:
        return False
    directory = os.path.dirname(places.abspath(path))
    if places.lexists(os.path.join(os.path.dirname(directory), _CLEAN_MARKER)):
        return False
    try:
        names = places.listdir(directory)
    except OSError:
        return False
    return all((_base_offset(name) or 0) <= base_offset for name in names)


def has_preallocated_size(size_bytes: int) -> bool:
    """Whether preallocation can explain a log of this size."""
    is_power = size_bytes >= _LEAST_POWER and not size_bytes & (size_bytes - 1)
    is_round = size_bytes > 0 and not all(size_bytes % unit for unit in _ROUND_BYTES)
    return is_power or is_round or size_bytes == L.INT32_MAX


def _base_offset(name: str) -> int | None:
    """The base offset of a live segment's log; None for any other file."""
    stem = name.removesuffix(L.LOG_SUFFIX)
    is_log = stem != name and stem.isascii() and stem.isdecimal()
    return int(stem) if is_log and len(stem) <= _NAME_DIGITS else None
