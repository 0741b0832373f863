# cython: language_level=3, boundscheck=True, wraparound=False, cdivision=True, annotation_typing=False
"""Decides by a map of keys (`keymap`) which records of a table stay, and totals the result per batch.

Any map with the slots of a `keymap` will do: it leads from the words of a record (usually the hash of its key) to an
offset, stored plus 1. Records of that key stay from that offset on. Tables are those of `header_tables`;
`compaction.cleaner.second_pass` has the rules.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kseg.segment import header_tables as C
from kseg.segment.kernel import buffer_access, keymap_probe
from kseg.segment.kernel import state_fields as S

if TYPE_CHECKING:
    from kseg.segment.kernel.buffer_types import Readable, Writable


def judge_rows(
    cells: Writable,
    capacity: int,
    count: int,
    hashes: Writable,
    slots: Writable,
    slot_count: int,
    latest_offset: int,
    now_ms: int,
    keeps_legacy: int,
    batches: Readable,
    batch_capacity: int,
    flags: bytearray,
    tallies: Writable,
    totals: Writable,
) -> int:
    """Decide which records of a table stay: sets flags[row] to 1 or 0, and adds to the tallies of their batches.

    latest_offset: the last offset that the map covers; records above it stay. keeps_legacy: 1 if tombstones of magic 0 and 1
    stay. tallies: columns of `batch_capacity` rows, which are added to; the caller has set T_RECORDS to 0 for batches not begun.
    """
    if (
        count > capacity
        or C.RECORD_WIDTH * capacity > len(cells)
        or 2 * count > len(hashes)
        or count > len(flags)
    ):
        raise ValueError("a table is smaller than its capacity says")
    if slot_count < 2 or 3 * slot_count > len(slots) or C.BATCH_WIDTH * batch_capacity > len(batches):
        raise ValueError("the map is smaller than its capacity says")
    if C.TALLY_WIDTH * batch_capacity > len(tallies) or len(totals) < S.TOTAL_WIDTH:
        raise ValueError("there is no room for the tallies")
    table = buffer_access.table_in(slots)
    words = buffer_access.table_in(hashes)
    rows = buffer_access.table_in(cells)
    of_batch = buffer_access.table_in(tallies)
    touched_to = 0
    for row in range(count):
        if row == touched_to:
            touched_to = row + 32
            if touched_to > count:
                touched_to = count
            totals[S.TOTAL_TOUCHED] = keymap_probe.touched(
                table, slot_count, rows, capacity, row, touched_to, words
            )
        batch = rows[C.R_BATCH * capacity + row]
        if batch < 0 or batch >= batch_capacity:
            raise ValueError("a record belongs to no batch of the table")
        offset = rows[C.R_OFFSET * capacity + row]
        has_key = rows[C.R_KEY_LENGTH * capacity + row] >= 0
        has_value = rows[C.R_VALUE_LENGTH * capacity + row] >= 0
        keep = 1
        if offset <= latest_offset:
            if not has_key:
                keep = 0
                totals[S.TOTAL_INVALID] = totals[S.TOTAL_INVALID] + 1
            else:
                at = keymap_probe.find_slot(table, slot_count, words[2 * row], words[2 * row + 1])
                if table[at + 2] > offset + 1:
                    keep = 0
                    totals[S.TOTAL_SUPERSEDED] = totals[S.TOTAL_SUPERSEDED] + 1
                    totals[S.TOTAL_SUPERSEDED_BYTES] = (
                        totals[S.TOTAL_SUPERSEDED_BYTES] + rows[C.R_KEY_LENGTH * capacity + row]
                    )
                    if has_value:
                        totals[S.TOTAL_SUPERSEDED_BYTES] = (
                            totals[S.TOTAL_SUPERSEDED_BYTES] + rows[C.R_VALUE_LENGTH * capacity + row]
                        )
                elif has_value:
                    totals[S.TOTAL_LIVE] = totals[S.TOTAL_LIVE] + 1
                elif batches[C.MAGIC * batch_capacity + batch] < 2:
                    keep = keeps_legacy
                elif batches[C.ATTRIBUTES * batch_capacity + batch] & C.DELETE_HORIZON_BIT:
                    keep = now_ms < batches[C.BASE_TIMESTAMP * batch_capacity + batch]
        flags[row] = keep
        if has_key and not has_value:
            totals[2 - keep] = totals[2 - keep] + 1
        if of_batch[C.T_RECORDS * batch_capacity + batch] == 0:
            of_batch[C.T_BEGIN * batch_capacity + batch] = offset
            of_batch[C.T_KEPT * batch_capacity + batch] = 0
            of_batch[C.T_TOMBSTONES * batch_capacity + batch] = 0
        of_batch[C.T_RECORDS * batch_capacity + batch] = of_batch[C.T_RECORDS * batch_capacity + batch] + 1
        if keep:
            timestamp = rows[C.R_TIMESTAMP * capacity + row]
            kept = of_batch[C.T_KEPT * batch_capacity + batch]
            if kept == 0:
                of_batch[C.T_MAX_TIMESTAMP * batch_capacity + batch] = -1
                of_batch[C.T_FIRST_TIMESTAMP * batch_capacity + batch] = timestamp
                of_batch[C.T_FIRST_OFFSET * batch_capacity + batch] = offset
                of_batch[C.T_NEGATIVE * batch_capacity + batch] = 0
            if timestamp < -1:
                of_batch[C.T_NEGATIVE * batch_capacity + batch] = (
                    of_batch[C.T_NEGATIVE * batch_capacity + batch] + 1
                )
            if timestamp > of_batch[C.T_MAX_TIMESTAMP * batch_capacity + batch]:
                of_batch[C.T_MAX_TIMESTAMP * batch_capacity + batch] = timestamp
            of_batch[C.T_LAST_OFFSET * batch_capacity + batch] = offset
            of_batch[C.T_KEPT * batch_capacity + batch] = kept + 1
            if not has_value:
                of_batch[C.T_TOMBSTONES * batch_capacity + batch] = (
                    of_batch[C.T_TOMBSTONES * batch_capacity + batch] + 1
                )
    return 0


def tally_keys(
    cells: Readable,
    capacity: int,
    count: int,
    hashes: Readable,
    flags: bytearray,
    batches: Readable,
    batch_capacity: int,
    segment: int,
    sketch: Writable,
    used: Writable,
    places: int,
) -> int:
    """Count the removed values by key in a sketch of `places`, which never misses the keys with the most bytes.

    sketch: for each place hash, hash, weight, bytes, values, segment, position of the batch, offset. A key has one place, which it
    keeps until the bytes of other keys there outweigh its own; bytes from before it took the place are not counted. used: the number
    of places that were ever taken, followed by those places.
    """
    if (
        count > capacity
        or C.RECORD_WIDTH * capacity > len(cells)
        or 2 * count > len(hashes)
        or count > len(flags)
    ):
        raise ValueError("a table is smaller than its capacity says")
    if (
        places < 1
        or 8 * places > len(sketch)
        or places >= len(used)
        or C.BATCH_WIDTH * batch_capacity > len(batches)
    ):
        raise ValueError("the sketch is smaller than its capacity says")
    for row in range(count):
        if (
            flags[row] == 0
            and cells[C.R_KEY_LENGTH * capacity + row] >= 0
            and cells[C.R_VALUE_LENGTH * capacity + row] >= 0
        ):
            batch = cells[C.R_BATCH * capacity + row]
            if batch < 0 or batch >= batch_capacity:
                raise ValueError("a record belongs to no batch of the table")
            weight = cells[C.R_KEY_LENGTH * capacity + row] + cells[C.R_VALUE_LENGTH * capacity + row] + 1
            at = 8 * keymap_probe.home_of(hashes[2 * row + 1], places)
            is_known = sketch[at] == hashes[2 * row] and sketch[at + 1] == hashes[2 * row + 1]
            if is_known or sketch[at + 2] < weight:
                if sketch[at + 4] == 0:
                    used[0] = used[0] + 1
                    used[used[0]] = at // 8
                if not is_known:
                    weight = weight - sketch[at + 2]
                    sketch[at] = hashes[2 * row]
                    sketch[at + 1] = hashes[2 * row + 1]
                    sketch[at + 2] = 0
                    sketch[at + 3] = 0
                    sketch[at + 4] = 0
                    sketch[at + 5] = segment
                    sketch[at + 6] = batches[C.POSITION * batch_capacity + batch]
                    sketch[at + 7] = cells[C.R_OFFSET * capacity + row]
                sketch[at + 2] = sketch[at + 2] + weight
                sketch[at + 3] = (
                    sketch[at + 3]
                    + cells[C.R_KEY_LENGTH * capacity + row]
                    + cells[C.R_VALUE_LENGTH * capacity + row]
                )
                sketch[at + 4] = sketch[at + 4] + 1
            else:
                sketch[at + 2] = sketch[at + 2] - weight
    return 0
