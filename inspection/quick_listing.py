"""Fast path of `list`: what the table shows of an ordinary partition, from one listing and a few reads; otherwise None.

A data directory has thousands of partitions, and nearly all are ordinary. `log_summary.estimated_summary` looks at the same places
through the objects that lookups and fetches need; here nothing is mapped and no object is made for a file:

1. One scandir. Live files with names that Kafka writes, beside them only what retention has marked and kseg's own directory.
2. The size of each log. None has the size of a preallocated segment.
3. The batches up to the first that has a timestamp: where the time range begins.
4. The batches behind the last entry of the newest offset index: the log end.
5. The last entry of the two newest time indexes: where the time range ends.

Every batch that the answer rests on has a valid checksum. Whatever is unusual, even if legal, gives None, and the
general way has to go; `tests/inspection/test_quick_listing.py` compares the two on damaged partitions.
"""

import os
import struct
from array import array
from collections.abc import Iterator
from functools import lru_cache
from typing import Any, NamedTuple

from kseg.inspection.log_summary import MAX_TIMELESS_BATCHES
from kseg.segment import header_tables as C
from kseg.segment import layout as L
from kseg.segment.crc import crc32c
from kseg.segment.errors import UnreadableInput
from kseg.segment.files import Probe
from kseg.segment.header_tables import Columns
from kseg.segment.kernel import bad_pages
from kseg.segment.kernel.batch_walk import walk
from kseg.segment.partition.directory import partition_name
from kseg.segment.partition.header_walk import is_plausible
from kseg.segment.partition.log_dir_state import read_log_dir_state
from kseg.segment.partition.log_shape import hides_first_time
from kseg.segment.partition.names import (
    KSEG_DIRECTORY,
    NAME_BY_ROLE,
    OFFSET_DIGITS,
    FileState,
    PartitionName,
    PartitionState,
    Role,
)
from kseg.segment.partition.targets import PartitionTarget
from kseg.segment.scanning.preallocated_tail import has_preallocated_size
from kseg.segment.storage import places
from kseg.segment.storage.attached import is_tiered

_MARKED = f".{FileState.DELETED}"
_METADATA, _EPOCHS = NAME_BY_ROLE[Role.PARTITION_METADATA], NAME_BY_ROLE[Role.LEADER_EPOCHS]
_LONGEST_READ_BYTES = 1 << 20
_PAGE_BYTES = 4096
_ROWS = 512  # batches between two index entries, or behind the last
_LARGEST_STEM = f"{L.INT64_MAX:0{OFFSET_DIGITS}d}"
_OFFSET_SLOT, _TIME_SLOT = struct.Struct(">ii"), struct.Struct(">qi")


class _Unusual(Exception):
    """Something is unusual: the general way has to go."""


class _Ends(NamedTuple):
    """Of a log. earliest_ms, latest_ms: None where no batch tells."""

    end_offset: int
    earliest_ms: int | None
    latest_ms: int | None


def quick_row(target: PartitionTarget) -> dict[str, Any] | None:
    """What the table shows, under the names of a `partition` row; None: ask in the general way."""
    try:
        return _row(target)
    except (_Unusual, OSError, UnreadableInput):
        return None


def _row(target: PartitionTarget) -> dict[str, Any]:
    name = partition_name(os.path.basename(target.path))
    if name is None or name.state is not PartitionState.LIVE or name.is_metadata_log:
        raise _Unusual
    stems, missing = _listed(target.path)
    prefix = target.path + os.sep
    log_bytes = [places.stat(f"{prefix}{stem}{L.LOG_SUFFIX}").st_size for stem in stems]
    _require(not any(map(has_preallocated_size, log_bytes)))
    ends = _ends(
        prefix, stems, [stem for stem, size_bytes in zip(stems, log_bytes, strict=True) if size_bytes]
    )
    start_offset = max(int(stems[0]), _checkpointed_start(target.log_dir, name))
    _require(not bad_pages.count())  # zeros may have been read; the general way tells where
    return {
        "type": "partition",
        "partition": name.text,
        "directory": target.path,
        "state": str(name.state),
        "topic_name": None,
        "segments": len(stems),
        "log_bytes": sum(log_bytes),
        "preallocated_bytes": 0,
        "missing": missing,
        "records": None,
        "records_estimated": max(0, ends.end_offset - start_offset),
        "log_start_offset": start_offset,
        "log_end_offset": ends.end_offset,
        "earliest_timestamp": ends.earliest_ms,
        "latest_timestamp": ends.latest_ms,
    }


def _require(is_usual: bool) -> None:
    if not is_usual:
        raise _Unusual


def _listed(path: str) -> tuple[list[str], list[str]]:
    """The numbers in the names of the logs, in order, and the names of side files that are missing."""
    logs, offset_indexes, time_indexes, others = list[str](), list[str](), list[str](), list[str]()
    by_suffix = {
        L.LOG_SUFFIX: logs,
        L.OFFSET_INDEX_SUFFIX: offset_indexes,
        L.TIME_INDEX_SUFFIX: time_indexes,
        L.TXN_INDEX_SUFFIX: others,
        L.SNAPSHOT_SUFFIX: others,
    }
    missing = [_EPOCHS] if is_tiered(path) else [_METADATA, _EPOCHS]
    with places.scandir(path) as found:
        for entry in found:
            name = entry.name
            stems = by_suffix.get(name[OFFSET_DIGITS:])
            if not entry.is_file(follow_symlinks=False):
                _require(name == KSEG_DIRECTORY)
            elif stems is not None:
                stems.append(name[:OFFSET_DIGITS])
            elif name in missing:
                missing.remove(name)
            else:
                _require(name.endswith(_MARKED))
    digits = "".join((*logs, *offset_indexes, *time_indexes, *others))
    _require(bool(logs) and digits.isascii() and digits.isdecimal())
    logs.sort()
    _require(logs[-1] <= _LARGEST_STEM)
    for suffix, indexed in ((L.OFFSET_INDEX_SUFFIX, offset_indexes), (L.TIME_INDEX_SUFFIX, time_indexes)):
        absent = set(logs).difference(indexed)
        _require(absent.isdisjoint(logs[-2:]))
        missing += [f"{stem}{suffix}" for stem in absent]
    return logs, missing


def _checkpointed_start(log_dir: str | None, name: PartitionName) -> int:
    """What the data directory has for the log start, 0 where it has nothing."""
    if log_dir is None:
        return 0
    state = read_log_dir_state(log_dir)
    _require(Role.LOG_START_OFFSETS not in state.lost)
    return state.offset(Role.LOG_START_OFFSETS, name.topic, name.partition) or 0


# --- the ends of the log


def _ends(prefix: str, stems: list[str], holding: list[str]) -> _Ends:
    """holding: the logs that have any bytes."""
    times_ms = [_last_time_ms(prefix + stem + L.TIME_INDEX_SUFFIX) for stem in stems[-2:]]
    end_offset = int(stems[-1])
    if holding and holding[-1] == stems[-1]:
        with Probe(prefix + stems[-1] + L.LOG_SUFFIX, is_surely_regular=True) as log:
            _require(log.size_bytes > 0)
            table = _batches(log, _last_position(prefix + stems[-1] + L.OFFSET_INDEX_SUFFIX), None)
            end_offset = table.at(C.LAST_OFFSET, table.count - 1) + 1
            times_ms.append(table.at(C.MAX_TIMESTAMP, table.count - 1))
    earliest_ms = next((time for time in _first_times_ms(prefix, holding, times_ms) if time >= 0), None)
    latest_ms = max(times_ms)
    return _Ends(end_offset, earliest_ms, latest_ms if latest_ms >= 0 else None)


def _first_times_ms(prefix: str, holding: list[str], times_ms: list[int]) -> Iterator[int]:
    """The first timestamp of each batch from the log's beginning on; their greatest are added to times_ms."""
    left = MAX_TIMELESS_BATCHES
    for stem in holding:
        with Probe(prefix + stem + L.LOG_SUFFIX, is_surely_regular=True) as log:
            position = 0
            while position < log.size_bytes and left:
                table = _batches(log, position, 1)
                times_ms.append(table.at(C.MAX_TIMESTAMP, 0))
                hides_first = hides_first_time(table.at(C.MAGIC, 0), table.at(C.ATTRIBUTES, 0))
                yield table.at(C.MAX_TIMESTAMP if hides_first else C.BASE_TIMESTAMP, 0)
                position += table.at(C.SIZE, 0)
                left -= 1


def _batches(log: Probe, position: int, number: int | None) -> Columns:
    """The batches from `position` on: so many, or all; the first and the last have valid checksums."""
    left = log.size_bytes - position
    _require(left > 0)
    data = log.read(position, min(left, _PAGE_BYTES))
    wanted = left
    if number == 1:
        _require(len(data) >= L.BATCH_HEADER)
        wanted = L.ENTRY_OVERHEAD + int.from_bytes(data[8:12], "big", signed=True)
    _require(L.BATCH_HEADER <= wanted <= min(left, _LONGEST_READ_BYTES))
    if len(data) < wanted:
        data += log.read(position + len(data), wanted - len(data))
    table, state = _room()
    state[0] = 0
    walk(data, min(wanted, len(data)), table.cells, table.capacity, state)
    table.count = state[1]
    _require(state[0] == wanted and is_plausible(table, -1))
    for row in {0, table.count - 1}:
        start = table.at(C.POSITION, row)
        end = start + table.at(C.SIZE, row)
        _require(table.at(C.MAGIC, row) == L.MAGIC_V2 and end - start >= L.BATCH_HEADER)
        body = memoryview(data)[start + L.ATTRIBUTES_POSITION : end]
        _require(crc32c(body) == table.at(C.CRC, row))
    return table


@lru_cache(maxsize=1)
def _room() -> tuple[Columns, memoryview]:
    """A table and the state of a walk, filled again for each log."""
    return Columns(C.BATCH_WIDTH, _ROWS), memoryview(array("q", (0, 0)))


# --- indexes


def _last_position(path: str) -> int:
    """Where the last entry of an offset index leads to; 0 when it has none."""
    slot = _last_slot(path, _OFFSET_SLOT.size)
    if slot is None:
        return 0
    position: int = _OFFSET_SLOT.unpack(slot)[1]
    _require(position >= 0)
    return position


def _last_time_ms(path: str) -> int:
    slot = _last_slot(path, _TIME_SLOT.size)
    return L.NO_TIMESTAMP if slot is None else int(_TIME_SLOT.unpack(slot)[0])


def _last_slot(path: str, width: int) -> bytes | None:
    """The last used slot of an index, None when there is none: zeros behind it are preallocated."""
    with Probe(path, is_surely_regular=True) as index:
        slots = index.size_bytes // width
        if not slots:
            return None
        if index.size_bytes > _PAGE_BYTES:
            last = index.read((slots - 1) * width, width)
            if any(last):
                return last
            if not index.is_hole_from(_PAGE_BYTES):
                return _last_before_zeros(index, slots - 1, width)
        head = index.read(0, min(_PAGE_BYTES, slots * width))
    used = -(-len(head.rstrip(b"\0")) // width) if slots > 1 else 1
    _require(used * width <= len(head))
    return head[(used - 1) * width : used * width] if used else None


def _last_before_zeros(index: Probe, slots: int, width: int) -> bytes | None:
    """By bisection, as `sidecar.index` finds it: a copy of a sparse file may have no holes."""
    low, high, last = 0, slots, None
    while low < high:
        middle = (low + high) // 2
        slot = index.read(middle * width, width)
        if any(slot):
            low, last = middle + 1, slot
        else:
            high = middle
    return last
