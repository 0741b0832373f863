"""What Kafka's dump tool complains of in index files, as findings (fact sheet §9.3).

The tool holds every entry against the rule of Kafka 4: an entry names the LAST offset of the batch at its
position; a time entry names the last offset of a batch and that batch's largest record timestamp. Indexes that
older brokers wrote name other offsets of the same batch or append and are sound (fact sheet §4.1), so an entry is
only an error here when no version can have written it; otherwise it is a note.
"""

import os
from collections.abc import Iterator

from kseg.segment import columns as C
from kseg.segment.columns import Columns
from kseg.segment.errors import UnreadableInput
from kseg.segment.files import MappedFile
from kseg.segment.findings import Finding
from kseg.segment.scanning.decode import Decoder
from kseg.segment.scanning.scan import Damage, Scanner
from kseg.segment.scanning.sound import sound_until
from kseg.segment.sidecar.index import OffsetIndex, TimeIndex, TimeIndexEntry

ROWS_AHEAD = 8


def check_offset_index(path: str, log_path: str, index: OffsetIndex) -> Iterator[Finding]:
    """Findings of the used entries of `index` against the log beside it."""
    try:
        log = MappedFile(log_path)
    except UnreadableInput as error:
        yield Finding("orphan-index", path, f"its log cannot be read: {error}")
        return
    with log:
        scanner = Scanner(log.view, index.base_offset, capacity=1)
        for slot, (offset, position) in enumerate(index):
            if not 0 <= position < log.size_bytes:
                yield _beyond(path, slot, offset, position, log.size_bytes)
                continue
            scanner.fill(position, log.size_bytes)
            table = scanner.table
            if not table.count or table.at(C.VALID, 0) != 1:
                yield _mismatch(path, slot, offset, position, None)
            elif offset != table.at(C.LAST_OFFSET, 0):
                first, last = table.at(C.BASE_OFFSET, 0), table.at(C.LAST_OFFSET, 0)
                yield (
                    _old_style(path, slot, offset, last)
                    if offset >= first
                    else _mismatch(path, slot, offset, position, last)
                )


def _beyond(path: str, slot: int, offset: int, position: int, log_bytes: int) -> Finding:
    return Finding(
        "index-entry-beyond-log",
        path,
        f"entry {slot} (offset {offset}) points at position {position} of a log of {log_bytes} bytes",
        position=slot * 8,
        length=8,
        first_offset=offset,
        last_offset=offset,
        numbers={"index_position": position, "log_bytes": log_bytes},
    )


def _mismatch(path: str, slot: int, offset: int, position: int, log_offset: int | None) -> Finding:
    found = (
        "no valid batch starts there"
        if log_offset is None
        else f"the batch there ends at offset {log_offset}"
    )
    return Finding(
        "index-entry-mismatch",
        path,
        f"entry {slot} says offset {offset} at position {position}, but {found}",
        position=slot * 8,
        length=8,
        first_offset=offset,
        last_offset=offset,
        numbers={"index_offset": offset, "log_offset": log_offset, "index_position": position},
    )


def _old_style(path: str, slot: int, offset: int, log_offset: int) -> Finding:
    return Finding(
        "index-entry-old-style",
        path,
        f"entry {slot} names offset {offset} where Kafka 4 would name {log_offset}",
        position=slot * 8,
        length=8,
        first_offset=offset,
        last_offset=offset,
        numbers={"index_offset": offset, "log_offset": log_offset},
    )


def check_time_index(path: str, log_path: str, index: TimeIndex) -> Iterator[Finding]:
    """Findings of the used entries of `index` against the log beside it."""
    if not os.path.exists(log_path):
        yield Finding("orphan-index", path, f"its log {log_path} is missing")
        return
    entries = list(index)
    with MappedFile(log_path) as log:
        batches = _batches_holding(log, index.base_offset, {entry.offset for entry in entries})
    previous_ms = -1
    for slot, entry in enumerate(entries):
        yield from _check_time_entry(path, slot, entry, previous_ms, batches.get(entry.offset))
        previous_ms = entry.timestamp_ms


def _check_time_entry(
    path: str, slot: int, entry: TimeIndexEntry, previous_ms: int, found: tuple[int, int] | None
) -> Iterator[Finding]:
    where = {"position": slot * 12, "length": 12, "first_offset": entry.offset, "last_offset": entry.offset}
    if found is None:
        yield Finding(
            "time-index-offset-not-found",
            path,
            f"entry {slot} names offset {entry.offset}, which no batch at or behind it holds",
            numbers={"index_offset": entry.offset, "log_offset": -1},
            **where,
        )
        return
    last_offset, largest_ms = found
    if last_offset != entry.offset:
        yield Finding(
            "index-entry-old-style",
            path,
            f"entry {slot} names offset {entry.offset} where Kafka 4 would name {last_offset}",
            numbers={"index_offset": entry.offset, "log_offset": last_offset},
            **where,
        )
    elif largest_ms != entry.timestamp_ms:
        yield Finding(
            "time-index-mismatch",
            path,
            f"entry {slot} says timestamp {entry.timestamp_ms}, the batch that ends at {entry.offset} has {largest_ms}",
            numbers={"index_timestamp": entry.timestamp_ms, "log_timestamp": largest_ms},
            **where,
        )
    if previous_ms >= entry.timestamp_ms:
        yield Finding(
            "time-index-out-of-order",
            path,
            f"entry {slot} has timestamp {entry.timestamp_ms}, the one before it {previous_ms}",
            numbers={"index_timestamp": entry.timestamp_ms, "previous_timestamp": previous_ms},
            **where,
        )


def _batches_holding(log: MappedFile, base_offset: int, offsets: set[int]) -> dict[int, tuple[int, int]]:
    """For each offset: last offset and largest record timestamp of the first valid batch that ends at or behind it."""
    wanted = sorted(offsets)
    found: dict[int, tuple[int, int]] = {}
    scanner, decoder = Scanner(log.view, base_offset), Decoder(log.view)
    for block in scanner.blocks():
        if not wanted:
            break
        if isinstance(block, Damage):
            continue
        last_offsets = block.column(C.LAST_OFFSET)
        sound_end = 0
        for row in range(block.count):
            if not wanted or last_offsets[row] < wanted[0]:
                continue
            if row >= sound_end:  # look a few rows ahead: in a small log the next entry is there
                sound_end = sound_until(log.view, block, row, min(block.count, row + ROWS_AHEAD))
            if row < sound_end:
                largest_ms = max(-1, block.at(C.MAX_TIMESTAMP, row))
            else:
                largest_ms = _largest_timestamp(decoder, block, row)
            while wanted and last_offsets[row] >= wanted[0]:
                found[wanted.pop(0)] = last_offsets[row], largest_ms
    return found


def _largest_timestamp(decoder: Decoder, table: Columns, row: int) -> int:
    largest_ms = -1
    for chunk in decoder.chunks(table, row, row + 1):
        largest_ms = max([largest_ms, *chunk.records.column(C.R_TIMESTAMP)])
    return largest_ms
