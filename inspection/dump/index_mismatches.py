"""Report index entries that Kafka's dump tool reports as mismatches, as findings (fact sheet §9.3).

The tool compares every entry with the rule of Kafka 4: an entry names the LAST offset of the batch at its position; a time entry names the
last offset of a batch and that batch's largest record timestamp. Indexes written by older brokers name other offsets of the same batch or
append and are valid (fact sheet §4.1), so an entry is only an error here if no version can have written it; otherwise it is a note.
"""

from array import array
from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence

from kseg.inspection.dump.open_log import OpenLog
from kseg.segment import header_tables as C
from kseg.segment.counted import counted
from kseg.segment.findings import Finding
from kseg.segment.header_tables import Columns
from kseg.segment.kernel import state_fields as S
from kseg.segment.kernel import verify_records as K
from kseg.segment.kernel.batch_walk import first_invalid
from kseg.segment.moments import moment
from kseg.segment.scanning.damage import Damage
from kseg.segment.scanning.record_validation import invalid_rows
from kseg.segment.scanning.scan import Scanner
from kseg.segment.sidecar.index import OffsetIndex, TimeIndex


def check_offset_index(path: str, log: OpenLog, index: OffsetIndex) -> Iterator[Finding]:
    """Findings about the used entries of `index`, compared with the log beside it."""
    if _all_exact(K.next_offset_entry, log.scanner, index):
        return
    log_bytes = log.file.size_bytes
    for slot, (offset, position) in enumerate(index):
        if not 0 <= position < log_bytes:
            yield Finding(
                "index-entry-beyond-log",
                path,
                f"entry {slot} (offset {offset}) points at position {position} of a log of {counted(log_bytes, 'byte')}",
                *_place(slot, 8, offset),
                numbers={"index_position": position, "log_bytes": log_bytes},
            )
            continue
        found = log.scanner.find(position, log_bytes)
        if found is None:
            yield _mismatch(path, slot, offset, position, None)
            continue
        table, row = found
        last = table.at(C.LAST_OFFSET, row)
        if offset != last:
            is_older = offset >= table.at(C.BASE_OFFSET, row)
            yield (
                _old_style(path, slot, 8, offset, last)
                if is_older
                else _mismatch(path, slot, offset, position, last)
            )


def _all_exact(
    compare: Callable[..., int],
    scanner: Scanner,
    index: OffsetIndex | TimeIndex,
    agrees: Callable[[Columns, int, int], bool] = lambda table, first, stop: True,
) -> bool:
    """Fast path: whether every entry is exactly what Kafka 4 writes for a valid batch of a log whose offsets rise.

    compare: `next_offset_entry` or `next_time_entry` of the kernel, which compare with the headers of batches. agrees: called for
    each table, with the entries (from, to) that name batches in it.
    """
    state, seen = (memoryview(array("q", bytes(8 * width))) for width in (S.ENTRY_WIDTH, S.SEEN_WIDTH))
    state[S.ENTRY_FORMER_SLOT] = seen[S.SEEN_LAST] = seen[S.SEEN_EPOCH] = -1
    slots = index.entries
    for block in _tables(scanner):
        if isinstance(block, Damage) or not _rises(block, seen):
            return False
        first, state[S.ENTRY_ROW] = state[S.ENTRY_SLOT], 0
        outcome = compare(
            index.content, slots, index.base_offset, block.cells, block.capacity, block.count, state
        )
        if outcome not in (K.IN_ORDER, K.MORE) or not agrees(block, first, state[S.ENTRY_SLOT]):
            return False
        if outcome == K.IN_ORDER:
            return state[S.ENTRY_EXACT] == slots
    return not slots


def _tables(scanner: Scanner) -> Iterator[Columns | Damage]:
    """The cached table if it covers the whole log, else tables from another walk of the log."""
    table = scanner.table
    if not table.count or first_invalid(table.cells, table.capacity, table.count) < table.count:
        return scanner.blocks()
    start, last = table.at(C.POSITION, 0), table.count - 1
    end = table.at(C.POSITION, last) + table.at(C.SIZE, last)
    return iter((table,)) if (start, end) == (0, len(scanner.view)) else scanner.blocks()


def _rises(table: Columns, seen: memoryview) -> bool:
    """Whether each batch begins above the last offset of the previous one."""
    row = 0
    while row < table.count:
        row = K.next_suspect(table.cells, table.capacity, row, table.count, seen)
        if row < table.count and seen[S.SEEN_REASONS] != K.EPOCH:
            return False
        row += 1
    return True


def _mismatch(path: str, slot: int, offset: int, position: int, log_offset: int | None) -> Finding:
    found = (
        "no valid batch starts there"
        if log_offset is None
        else f"the batch there ends at offset {log_offset}"
    )
    return Finding(
        "index-entry-mismatch",
        path,
        f"entry {slot} maps offset {offset} to position {position}, but {found}",
        *_place(slot, 8, offset),
        numbers={"index_offset": offset, "log_offset": log_offset, "index_position": position},
    )


def _old_style(path: str, slot: int, entry_bytes: int, offset: int, log_offset: int) -> Finding:
    return Finding(
        "index-entry-old-style",
        path,
        f"entry {slot} names offset {offset} where Kafka 4 would name {log_offset}",
        *_place(slot, entry_bytes, offset),
        numbers={"index_offset": offset, "log_offset": log_offset},
    )


def _place(slot: int, entry_bytes: int, offset: int) -> tuple[int, int, int, int]:
    """Position, length, first and last offset of a finding about an entry."""
    return slot * entry_bytes, entry_bytes, offset, offset


def check_time_index(path: str, log: OpenLog, index: TimeIndex) -> Iterator[Finding]:
    """Findings about the used entries of `index`, compared with the log beside it."""
    if _all_exact_times(log.scanner, index):
        return
    entries = list(index)
    batches = _batches_holding(log.scanner, sorted({offset for _, offset in entries}))
    previous_ms = -1
    for slot, (timestamp_ms, offset) in enumerate(entries):
        found = batches.get(offset)
        if found != (offset, timestamp_ms) or previous_ms >= timestamp_ms:
            yield from _time_entry(path, slot, timestamp_ms, offset, previous_ms, found)
        previous_ms = timestamp_ms


def _all_exact_times(scanner: Scanner, index: TimeIndex) -> bool:
    """Fast path: whether every entry is the last offset and the largest record timestamp of a valid batch."""
    base, entries = index.base_offset, list(index.stored())
    if entries and entries[0][0] < 0:
        return False

    def agrees(table: Columns, first: int, stop: int) -> bool:
        last_offsets = table.column(C.LAST_OFFSET)
        rows = [bisect_left(last_offsets, base + relative) for _, relative in entries[first:stop]]
        look_closely = invalid_rows(scanner.view, table, rows)
        largest = _largest_timestamps(scanner.view, table, look_closely)
        return all(largest_ms == table.at(C.MAX_TIMESTAMP, row) for row, largest_ms in largest)

    return _all_exact(K.next_time_entry, scanner, index, agrees)


def _time_entry(
    path: str, slot: int, timestamp_ms: int, offset: int, previous_ms: int, found: tuple[int, int] | None
) -> Iterator[Finding]:
    where = _place(slot, 12, offset)
    if found is None:
        yield Finding(
            "time-index-offset-not-found",
            path,
            f"entry {slot} names offset {offset}, which no batch at or after that offset contains",
            *where,
            numbers={"index_offset": offset, "log_offset": -1},
        )
        return
    last_offset, largest_ms = found
    if last_offset != offset:
        yield _old_style(path, slot, 12, offset, last_offset)
    elif largest_ms != timestamp_ms:
        yield Finding(
            "time-index-mismatch",
            path,
            f"entry {slot} has timestamp {moment(timestamp_ms)}, but the batch that ends at offset {offset} has {moment(largest_ms)}",
            *where,
            numbers={"index_timestamp": timestamp_ms, "log_timestamp": largest_ms},
        )
    if previous_ms >= timestamp_ms:
        yield Finding(
            "time-index-out-of-order",
            path,
            f"entry {slot} has timestamp {moment(timestamp_ms)}, below {moment(previous_ms)} in the entry before it",
            *where,
            numbers={"index_timestamp": timestamp_ms, "previous_timestamp": previous_ms},
        )


def _batches_holding(scanner: Scanner, wanted: Sequence[int]) -> dict[int, tuple[int, int]]:
    """For each offset: last offset and largest record timestamp of the first valid batch that ends at or after it.

    wanted: sorted.
    """
    found: dict[int, tuple[int, int]] = {}
    at = 0
    for block in scanner.blocks():
        if at == len(wanted):
            break
        if isinstance(block, Damage):
            continue
        rows: list[int] = []
        first = at
        for row, last_offset in enumerate(block.column(C.LAST_OFFSET).tolist()):
            while at < len(wanted) and wanted[at] <= last_offset:
                rows.append(row)
                at += 1
        found.update(zip(wanted[first:at], _ends_of(scanner.view, block, rows), strict=True))
    return found


def _ends_of(view: memoryview, table: Columns, rows: Sequence[int]) -> Iterator[tuple[int, int]]:
    """Last offset and largest record timestamp of each row; the header's timestamp if the records agree with it."""
    last_offsets, timestamps = table.column(C.LAST_OFFSET), table.column(C.MAX_TIMESTAMP)
    looked_at = dict.fromkeys(rows)
    ends = {row: (last_offsets[row], max(-1, timestamps[row])) for row in looked_at}
    for row, largest_ms in _largest_timestamps(view, table, invalid_rows(view, table, looked_at)):
        ends[row] = last_offsets[row], largest_ms
    return map(ends.__getitem__, rows)


def _largest_timestamps(view: memoryview, table: Columns, rows: Sequence[int]) -> Iterator[tuple[int, int]]:
    """Each row with the largest timestamp of its records, decoded: for control batches and batches that disagree with their header. For an
    empty batch it is the timestamp in its header, which a cleaner keeps and indexes; Kafka's tool reports such an entry as wrong."""
    empty = [row for row in rows if table.at(C.COUNT, row) == 0]
    yield from ((row, table.at(C.MAX_TIMESTAMP, row)) for row in empty)
    if len(empty) == len(rows):
        return
    from kseg.segment.scanning.decode import Decoder  # imported here: most indexes agree with their log

    decoder = Decoder(view)
    for row in (row for row in rows if row not in empty):
        largest_ms = -1
        for chunk in decoder.chunks(table, row, row + 1):
            largest_ms = max([largest_ms, *chunk.records.column(C.R_TIMESTAMP)])
        yield row, largest_ms
