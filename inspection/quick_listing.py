"""Fast path of `list`: what the table shows of an ordinary partition, from one listing and a few reads; otherwise None.

A data directory has thousands of partitions, and nearly all are ordinary. `log_summary.estimated_summary` reads the same places
through the objects that lookups and fetches need; here nothing is mapped and no object is created per file:

1. One scandir. Only live files with names that Kafka writes, files that retention has marked, and kseg's own directory are accepted.
2. The size of each log. None has the size of a preallocated segment.
3. The batches up to the first that has a timestamp: the start of the time range.
4. The batches after the last entry of the newest offset index: the log end.
5. The last entry of the two newest time indexes: the end of the time range.

Every batch that the answer depends on has a valid checksum. Anything unusual, even if legal, gives None, and the general path is
used; `tests/inspection/test_quick_listing.py` compares the two on damaged partitions.
"""

import os
from collections.abc import Iterator
from typing import Any, NamedTuple

from kseg.inspection.log_summary import MAX_TIMELESS_BATCHES
from kseg.segment import header_tables as C
from kseg.segment import layout as L
from kseg.segment.errors import UnreadableInput
from kseg.segment.kernel import bad_pages
from kseg.segment.partition.directory import partition_name
from kseg.segment.partition.log_dir_state import read_log_dir_state
from kseg.segment.partition.log_ends import Unusual, batches, batches_to_the_end, last_time_ms, require
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
from kseg.segment.probe import Probe
from kseg.segment.scanning.preallocated_tail import has_preallocated_size
from kseg.segment.storage import places
from kseg.segment.storage.attached import is_tiered

_MARKED = f".{FileState.DELETED}"
_METADATA, _EPOCHS = NAME_BY_ROLE[Role.PARTITION_METADATA], NAME_BY_ROLE[Role.LEADER_EPOCHS]
_LARGEST_STEM = f"{L.INT64_MAX:0{OFFSET_DIGITS}d}"


class _Ends(NamedTuple):
    """Of a log. earliest_ms, latest_ms: None if no batch has one."""

    end_offset: int
    earliest_ms: int | None
    latest_ms: int | None


def quick_row(target: PartitionTarget) -> dict[str, Any] | None:
    """The columns of the table, under the names of a `partition` row; None: use the general path."""
    try:
        return _row(target)
    except (Unusual, OSError, UnreadableInput):
        return None


def _row(target: PartitionTarget) -> dict[str, Any]:
    name = partition_name(os.path.basename(target.path))
    if name is None or name.state is not PartitionState.LIVE or name.is_metadata_log:
        raise Unusual
    stems, missing = _listed(target.path)
    prefix = target.path + os.sep
    log_bytes = [places.stat(f"{prefix}{stem}{L.LOG_SUFFIX}").st_size for stem in stems]
    require(not any(map(has_preallocated_size, log_bytes)))
    holding = [stem for stem, size_bytes in zip(stems, log_bytes, strict=True) if size_bytes]
    ends = _ends(prefix, stems, holding)
    start_offset = max(int(stems[0]), _checkpointed_start(target.log_dir, name))
    require(start_offset <= ends.end_offset)
    require(not bad_pages.count())  # bad pages read as zeros; the general path reports where
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
                require(name == KSEG_DIRECTORY)
            elif stems is not None:
                stems.append(name[:OFFSET_DIGITS])
            elif name in missing:
                missing.remove(name)
            else:
                require(name.endswith(_MARKED))
    digits = "".join((*logs, *offset_indexes, *time_indexes, *others))
    require(bool(logs) and digits.isascii() and digits.isdecimal())
    logs.sort()
    require(logs[-1] <= _LARGEST_STEM)
    for suffix, indexed in ((L.OFFSET_INDEX_SUFFIX, offset_indexes), (L.TIME_INDEX_SUFFIX, time_indexes)):
        absent = set(logs).difference(indexed)
        require(absent.isdisjoint(logs[-2:]))
        missing += [f"{stem}{suffix}" for stem in absent]
    return logs, missing


def _checkpointed_start(log_dir: str | None, name: PartitionName) -> int:
    """The log start in the data directory's checkpoint, 0 without an entry."""
    if log_dir is None:
        return 0
    state = read_log_dir_state(log_dir)
    require(Role.LOG_START_OFFSETS not in state.lost)
    return state.offset(Role.LOG_START_OFFSETS, name.topic, name.partition) or 0


# --- the ends of the log


def _ends(prefix: str, stems: list[str], holding: list[str]) -> _Ends:
    """holding: the logs that are not empty."""
    times_ms = [last_time_ms(prefix + stem + L.TIME_INDEX_SUFFIX) for stem in stems[-2:]]
    end_offset = int(stems[-1])
    if holding and holding[-1] == stems[-1]:
        with Probe(prefix + stems[-1] + L.LOG_SUFFIX, is_surely_regular=True) as log:
            table = batches_to_the_end(log, prefix + stems[-1] + L.OFFSET_INDEX_SUFFIX, end_offset)
            end_offset = table.at(C.LAST_OFFSET, table.count - 1) + 1
            times_ms.append(table.at(C.MAX_TIMESTAMP, table.count - 1))
    earliest_ms = next((time for time in _first_times_ms(prefix, holding, times_ms) if time >= 0), None)
    latest_ms = max(times_ms)
    return _Ends(end_offset, earliest_ms, latest_ms if latest_ms >= 0 else None)


def _first_times_ms(prefix: str, holding: list[str], times_ms: list[int]) -> Iterator[int]:
    """The first timestamp of each batch from the beginning of the log on; their maximum is added to times_ms."""
    left = MAX_TIMELESS_BATCHES
    for stem in holding:
        with Probe(prefix + stem + L.LOG_SUFFIX, is_surely_regular=True) as log:
            position = 0
            while position < log.size_bytes and left:
                table = batches(log, position, 1)
                times_ms.append(table.at(C.MAX_TIMESTAMP, 0))
                hides_first = hides_first_time(table.at(C.MAGIC, 0), table.at(C.ATTRIBUTES, 0))
                yield table.at(C.MAX_TIMESTAMP if hides_first else C.BASE_TIMESTAMP, 0)
                position += table.at(C.SIZE, 0)
                left -= 1
