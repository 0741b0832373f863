"""What leaves the logs, said in findings and in the list of removed bytes: a broker itself only logs a warning.

Behind the first damage of a segment a broker keeps nothing, so the bytes it cuts off are scanned here once more, to
count the valid batches among them.
"""

from kseg.recovery.loading.workplace import Workplace
from kseg.recovery.repair.outcome import Removed
from kseg.segment import columns as C
from kseg.segment.dump.damage import damage_finding
from kseg.segment.findings import Finding
from kseg.segment.scanning.scan import Damage, Scanner


def report_cut(
    place: Workplace,
    name: str,
    base_offset: int,
    position: int,
    next_offset: int | None,
    cause: Finding | None,
) -> str:
    """The log `name` is about to be cut at `position`: note what that costs, and why.

    next_offset: of the log before the cut. cause: None when the bytes themselves say it. Returns the id of the
    finding that is to blame.
    """
    source = place.source(name)
    view = place.view(name)
    scanner = Scanner(view, base_offset)
    scanner.next_offset = next_offset
    batches, offsets = 0, [offset for offset in (next_offset,) if offset is not None]
    for block in scanner.blocks(position):
        if not isinstance(block, Damage):
            batches += block.count
            offsets += (block.at(C.BASE_OFFSET, 0), max(block.column(C.LAST_OFFSET)))
        elif cause is None:
            cause = damage_finding(place.path(name), block)
    blame = "torn-tail" if cause is None else cause.id
    if cause is not None:
        place.report(cause)
    if source is not None:
        known = offsets if batches else []
        place.removed.append(
            Removed(
                source.name,
                source.position + position,
                len(view) - position,
                min(known, default=None),
                max(known, default=None),
                blame,
                batches,
            )
        )
    return blame


def report_whole(
    place: Workplace, name: str, base_offset: int, cause: str, *, is_replaced: bool = False
) -> None:
    """The whole log `name` is about to go. is_replaced: its offsets live on in other files."""
    source = place.source(name)
    if source is None or not source.length:
        return
    batches = 0
    offsets: list[int] = []
    for block in Scanner(place.view(name), base_offset).blocks():
        if not isinstance(block, Damage):
            batches += block.count
            offsets += (min(block.column(C.BASE_OFFSET)), max(block.column(C.LAST_OFFSET)))
    if is_replaced:
        offsets = []
    place.removed.append(
        Removed(
            source.name,
            source.position,
            source.length,
            min(offsets, default=None),
            max(offsets, default=None),
            cause,
            batches,
        )
    )
