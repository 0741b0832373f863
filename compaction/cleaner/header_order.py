"""Find batches whose base offset or leader epoch contradicts adjacent batches: damage that the CRC does not cover.

The CRC covers neither field. A base offset that was altered upwards would be the latest one of every key in its batch, and the
cleaner would remove the true latest records as superseded. So before anything is cleaned:

1. The headers of each segment are walked without checksums: offsets must increase from the base offset to below the next segment's,
   and leader epochs must not decrease. Nearly always this is sufficient.
2. Otherwise the segment is scanned, and only batches with a valid checksum are compared: the others are damage anyway, which any
   reader of the segment finds.
3. Offsets that do not increase are always damage. A leader epoch is damage only if it contradicts both adjacent batches while these
   agree with each other: logs of old brokers do have decreasing epochs.
"""

from array import array
from collections.abc import Iterator
from itertools import pairwise
from typing import NamedTuple

from kseg.compaction.cleaner.segments import CleanerSegment
from kseg.segment import header_tables as C
from kseg.segment import layout as L
from kseg.segment.counted import offsets_words
from kseg.segment.findings import Finding
from kseg.segment.header_tables import Columns
from kseg.segment.kernel import state_fields as S
from kseg.segment.kernel import verify_records
from kseg.segment.kernel.batch_walk import FULL, walk
from kseg.segment.scanning.damage import Damage
from kseg.segment.scanning.scan import Scanner, rows_for

OFFSETS = "offset-not-monotonic"
EPOCH = "altered-leader-epoch"


class _Header(NamedTuple):
    position: int
    size_bytes: int
    first_offset: int
    last_offset: int
    leader_epoch: int


def contradictions(segment: CleanerSegment, next_base_offset: int | None) -> list[Finding]:
    """Findings for the batches of one segment that contradict adjacent batches, the first of each kind.

    next_base_offset: of the next segment, None for the last one.
    """
    with segment.opened() as view:
        if not _needs_scan(view, segment.base_offset, next_base_offset):
            return []
        headers = [*_headers(view, segment)]
    return [*_offsets(segment, headers, next_base_offset), *_epochs(segment, headers)]


def _needs_scan(view: memoryview, base_offset: int, next_base_offset: int | None) -> bool:
    table = Columns(C.BATCH_WIDTH, rows_for(len(view)))
    state = memoryview(array("q", [0, 0]))
    seen = memoryview(array("q", bytes(8 * S.SEEN_WIDTH)))
    seen[S.SEEN_LAST], seen[S.SEEN_EPOCH] = base_offset - 1, L.NO_LEADER_EPOCH
    reason = FULL
    while reason == FULL:
        reason = walk(view, len(view), table.cells, table.capacity, state)
        table.count = state[S.BATCHES_COUNT]
        row = 0
        while row < table.count:
            first, former_epoch = row, seen[S.SEEN_EPOCH]
            row = verify_records.next_suspect(table.cells, table.capacity, row, table.count, seen)
            if row >= table.count:
                break
            reasons, epoch = seen[S.SEEN_REASONS], seen[S.SEEN_EPOCH]
            if reasons & verify_records.EPOCH:
                former_epoch = max((former_epoch, *table.column(C.LEADER_EPOCH)[first:row]))
            if reasons & verify_records.OFFSET or (
                reasons & verify_records.EPOCH and (epoch < 0 or epoch < former_epoch)
            ):
                return True
            row += 1
    if state[S.BATCHES_END] < len(view):
        return True  # damage: the batches after it were not read
    return next_base_offset is not None and seen[S.SEEN_LAST] >= next_base_offset


def _headers(view: memoryview, segment: CleanerSegment) -> Iterator[_Header]:
    """Headers of the batches with a valid CRC."""
    for block in Scanner(view, segment.base_offset, file=segment.file).blocks():
        if isinstance(block, Damage):
            continue
        for row in range(block.count):
            is_legacy = block.at(C.MAGIC, row) < L.MAGIC_V2  # their header contains only the last offset
            last = block.at(C.LAST_OFFSET, row)
            yield _Header(
                block.at(C.POSITION, row),
                block.at(C.SIZE, row),
                last if is_legacy else block.at(C.BASE_OFFSET, row),
                last,
                L.NO_LEADER_EPOCH if is_legacy else block.at(C.LEADER_EPOCH, row),
            )


def _offsets(
    segment: CleanerSegment, headers: list[_Header], next_base_offset: int | None
) -> Iterator[Finding]:
    before = segment.base_offset - 1
    for header in headers:
        first, last = header.first_offset, header.last_offset
        if first <= before or last < first:
            what = f"does not start above the preceding offset {before}"
        elif next_base_offset is not None and last >= next_base_offset:
            what = f"overlaps the next segment, which starts at offset {next_base_offset}"
        else:
            before = last
            continue
        message = f"the batch at position {header.position} ({offsets_words(first, last)}) {what}"
        yield Finding(OFFSETS, segment.path, message, header.position, header.size_bytes, first, last)
        return


def _epochs(segment: CleanerSegment, headers: list[_Header]) -> Iterator[Finding]:
    known = [header for header in headers if header.leader_epoch != L.NO_LEADER_EPOCH]
    epochs = [header.leader_epoch for header in known]
    decreases = sum(former > following for former, following in pairwise(epochs))
    for at, header in enumerate(known):
        if header.leader_epoch >= 0 and not (decreases and _is_altered(epochs, at, decreases)):
            continue
        message = (
            f"the batch at position {header.position} has leader epoch {header.leader_epoch}, "
            "which contradicts the batches before and after it"
        )
        offsets = header.first_offset, header.last_offset
        yield Finding(EPOCH, segment.path, message, header.position + L.ENTRY_OVERHEAD, 4, *offsets)
        return


def _is_altered(epochs: list[int], at: int, decreases: int) -> bool:
    """Whether no epoch decreases without this one. The first and the last batch have only one neighbour; there the values must
    differ in a single bit.

    decreases: how many epochs are lower than the previous one.
    """
    neighbours = epochs[max(0, at - 1) : at + 2]
    if sum(former > following for former, following in pairwise(neighbours)) != decreases:
        return False
    if 0 < at < len(epochs) - 1:
        return neighbours[0] <= neighbours[2]
    return len(epochs) > 1 and (epochs[at] ^ epochs[at - 1 if at else 1]).bit_count() == 1
