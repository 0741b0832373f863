"""Findings and a list of removed byte ranges for all that a load truncates; a broker itself only logs a warning.

A broker truncates a segment at its first damage. The truncated bytes are scanned once more, to count the valid batches among them.
"""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace

from kseg.recovery.loading.broker_walk import LogWalk
from kseg.recovery.loading.kafka_exceptions import BrokerException
from kseg.recovery.loading.load_state import LoadState
from kseg.recovery.policy import Removed
from kseg.recovery.verify.header_plausibility import first_of
from kseg.segment import header_tables as C
from kseg.segment import layout as L
from kseg.segment.findings import Finding
from kseg.segment.scanning.damage import Damage
from kseg.segment.scanning.damage_findings import damage_finding
from kseg.segment.scanning.lost_offsets import plus, records_of
from kseg.segment.scanning.scan import Scanner


def report_truncation(
    load_state: LoadState,
    name: str,
    base_offset: int,
    position: int,
    next_offset: int | None,
    cause: Finding | None,
) -> str:
    """Record the cost of truncating the log `name` at `position`, and the reason.

    next_offset: after the last batch before the cut, None when there is none. cause: None when the truncated bytes themselves show it.
    Returns the id of the finding that caused the truncation.
    """
    batches, lowest, highest, damage, records = _scan_removed(
        load_state, name, base_offset, position, next_offset
    )
    if cause is None and damage is not None:
        cause = damage_finding(load_state.path(name), damage)
    cause_id = "torn-tail" if cause is None else cause.id
    if cause is not None:
        load_state.report(cause)
    source = load_state.source(name)
    if source is not None:
        first = None
        if lowest is not None:
            first = min(lowest, base_offset if next_offset is None else next_offset)
        length = source.length - position
        at = source.position + position
        load_state.removed.append(
            Removed(source.name, at, length, first, highest, cause_id, batches, records)
        )
    return cause_id


def report_removed_log(
    load_state: LoadState, name: str, base_offset: int, cause: str, *, is_replaced: bool = False
) -> None:
    """Record the removal of the whole log `name`. is_replaced: other files have its offsets."""
    source = load_state.source(name)
    if source is None or not source.length:
        return
    batches, first, last, _, records = _scan_removed(load_state, name, base_offset, 0, None)
    if is_replaced:
        first = last = None
        records = 0
    load_state.removed.append(
        Removed(source.name, source.position, source.length, first, last, cause, batches, records)
    )


def _scan_removed(
    load_state: LoadState, name: str, base_offset: int, position: int, next_offset: int | None
) -> tuple[int, int | None, int | None, Damage | None, int | None]:
    """(valid batches from `position` on, least and greatest removed offset, the first damage, its records)."""
    scanner = load_state.scanner(name, base_offset)
    if next_offset is not None:
        scanner.order.begin_behind(next_offset - 1)
    batches, lowest, highest, damage = 0, L.INT64_MAX, -1, None
    records: int | None = 0
    for block in scanner.blocks(position):
        if isinstance(block, Damage):
            damage = damage or block
            inside = [*_batches_in(scanner, block)]
            batches += len(inside)
            records = plus(records, block.lost.records)
            if block.lost.first_offset is not None and block.lost.last_offset is not None:
                lowest = min(lowest, block.lost.first_offset)
                highest = max(highest, block.lost.last_offset)
            lowest = min([lowest, *(first for first, _ in inside)])
            highest = max([highest, *(last for _, last in inside)])
        else:
            batches += block.count
            records = plus(records, records_of(block))
            lowest = min(lowest, min(block.column(C.BASE_OFFSET)))
            highest = max(highest, max(block.column(C.LAST_OFFSET)))
    if highest < 0:
        return batches, None, None, damage, records
    return batches, lowest, highest, damage, records


def _batches_in(scanner: Scanner, damage: Damage) -> Iterator[tuple[int, int]]:
    """(first, last offset) of valid batches that the resync search skipped because their offsets are below the expected one. Each
    is followed by another batch or ends the damage, which no batch inside a record value does."""
    stop = damage.position + damage.length
    found = [
        (table.at(C.POSITION, 0), table.at(C.SIZE, 0), first_of(table, 0), table.at(C.LAST_OFFSET, 0))
        for table in scanner.valid_within(damage.position + 1, stop)
    ]
    starts = {stop, *(position for position, *_ in found)}
    for position, size, first, last in found:
        if position + size in starts and 0 <= first <= last:
            yield first, last


def kept_ranges(load_state: LoadState) -> list[tuple[int, int]]:
    """Offset ranges of the logs in their simulated state, sorted, taken from the headers as a broker does."""
    found: list[tuple[int, int]] = []
    for name in load_state.listing():
        if not name.endswith(L.LOG_SUFFIX):
            continue
        with suppress(BrokerException):
            for table in LogWalk(load_state.view(name), name).tables(0):
                for row in range(table.count):
                    first, last = first_of(table, row), table.at(C.LAST_OFFSET, row)
                    if found and found[-1][1] + 1 == first:
                        found[-1] = found[-1][0], last
                    else:
                        found.append((first, last))
    return sorted(found)


def without_kept(removed: Iterable[Removed], kept: Sequence[tuple[int, int]]) -> Iterator[Removed]:
    """The same removed ranges, with the number of records that no other log contains."""
    for each in removed:
        first, last = each.first_offset, each.last_offset
        if first is None or last is None:
            yield each
            continue
        overlaps = [(low, high) for low, high in kept if low <= last and high >= first]
        if any(low <= first and last <= high for low, high in overlaps):
            yield replace(each, records=0)
        else:
            yield replace(each, records=None) if overlaps else each
