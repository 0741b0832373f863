"""Leader epochs, judged in the order that stays.

While the files were read, a leader epoch was judged beside the batches that lay there. Where batches are moved or
copies go, others stand beside it in the end. Plan, only where an altered epoch was found:

1. Forget every value that was found: each batch has the epoch of its header again.
2. Let the chain of `verify` judge the batches once more as they follow one another now, as if they were one segment.
   So the repaired log is what verify finds sound, and a moved batch keeps its epoch.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from kseg.recovery.salvage.logs import HeaderFix, Logs, ValidRun
from kseg.recovery.verify.chain import Chain
from kseg.recovery.verify.header_plausibility import HeaderPlace, Witness
from kseg.segment import header_tables as C
from kseg.segment import layout as L
from kseg.segment.findings import Finding
from kseg.segment.header_tables import Columns
from kseg.segment.sidecar.leader_epochs import EpochHistory


def judge_epochs(logs: Logs, kept: Sequence[ValidRun], epochs: EpochHistory | None) -> None:
    """Leave in the fixes of `logs` the leader epochs that are altered in the order `kept`, and no others. epochs: the
    leader-epoch checkpoint, None when there is none to trust."""
    if not _forget(logs):
        return
    if kept:
        place = HeaderPlace("", kept[0].first_offset, witness=Witness(epochs=epochs))
        _set_right(logs, kept, dict(_altered(logs, kept, Chain(place))))


def _forget(logs: Logs) -> bool:
    """Drop all epochs from the fixes; whether there were any."""
    are_any = False
    for number in range(len(logs)):
        for position, fix in [*logs[number].fixes.items()]:
            if fix.leader_epoch is not None:
                are_any = True
                logs.set_fix(number, position, replace(fix, leader_epoch=None))
    return are_any


def _altered(logs: Logs, kept: Sequence[ValidRun], chain: Chain) -> Iterator[tuple[int, int]]:
    """(first offset, true epoch) of each batch whose epoch is altered; of several that fit, that of the batch before."""
    for stretch in kept:
        for table in logs.tables(stretch):
            yield from _told(chain, chain.feed(table))
            chain.carry()
    yield from _told(chain, chain.close(is_damaged=True))


def _told(chain: Chain, findings: Iterator[Finding]) -> Iterator[tuple[int, int]]:
    for finding in findings:
        if finding.id == "altered-leader-epoch" and finding.first_offset is not None:
            probable = finding.numbers["probable_epoch"]
            if not isinstance(probable, int):
                probable = _in_table(chain.table, finding.first_offset)
            yield finding.first_offset, probable


def _in_table(table: Columns, offset: int) -> int:
    """The epoch that the chain has put."""
    rows = [row for row in range(table.count) if table.at(C.BASE_OFFSET, row) == offset]
    return table.at(C.LEADER_EPOCH, rows[0]) if rows else L.NO_LEADER_EPOCH


def _set_right(logs: Logs, kept: Sequence[ValidRun], epochs: Mapping[int, int]) -> None:
    """epochs: the true ones, by the first offset of the batch."""
    offsets = sorted(epochs)
    for stretch in kept:
        low, high = bisect_left(offsets, stretch.first_offset), bisect_right(offsets, stretch.last_offset)
        wanted = offsets[low:high]
        for table in logs.tables(stretch) if wanted else ():
            lasts = table.column(C.LAST_OFFSET)
            while wanted and wanted[0] <= lasts[-1]:
                offset = wanted.pop(0)
                position = table.at(C.POSITION, bisect_left(lasts, offset))
                former = logs[stretch.log].fixes.get(position)
                logs.set_fix(stretch.log, position, HeaderFix(leader_epoch=epochs[offset]).over(former))
            if not wanted:
                break
