"""Check leader epochs again in the salvaged order.

While the files were read, leader epochs were compared between adjacent batches of a file. After batches are moved or
copies removed, other batches are adjacent. Only where an altered epoch was found:

1. Drop every correction: each batch has the epoch of its header again.
2. Let the chain of `verify` check the batches once more in their new order, as if they were one segment.
   So verify accepts the repaired log, and a moved batch keeps its epoch.

Where epochs decrease, they cannot all be right. A few batches of a reused block must not raise those of all later batches: a batch with an
epoch that the leader-epoch checkpoint does not have, above that of a later batch, gets the epoch of the checkpoint.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise

from kseg.recovery.salvage.logs import HeaderFix, Logs, ValidRun
from kseg.recovery.verify.chain import Chain
from kseg.recovery.verify.header_plausibility import HeaderContext, SideFileEvidence
from kseg.segment import header_tables as C
from kseg.segment import layout as L
from kseg.segment.diagnosis import AlteredLeaderEpoch
from kseg.segment.findings import Finding
from kseg.segment.header_tables import Columns
from kseg.segment.sidecar.leader_epochs import EpochHistory


def correct_epochs(logs: Logs, kept: Sequence[ValidRun], epochs: EpochHistory | None) -> None:
    """Set the fixes of `logs` to the leader epochs that are altered in the order `kept`, and no others. epochs: the
    leader-epoch checkpoint, None if there is none or it is not trusted."""
    if _forget(logs) and kept:
        context = HeaderContext("", kept[0].first_offset, evidence=SideFileEvidence(epochs=epochs))
        _set_right(logs, kept, dict(_altered(logs, kept, Chain(context))))
    if epochs is not None and any(before.last_epoch > after.first_epoch for before, after in pairwise(kept)):
        _set_right(logs, kept, dict(_unfiled(logs, kept, epochs)))


def _unfiled(logs: Logs, kept: Sequence[ValidRun], epochs: EpochHistory) -> Iterator[tuple[int, int]]:
    """(first offset, epoch of the checkpoint) of each batch whose epoch is above that of a later batch and not in the checkpoint."""
    known = {entry.epoch for entry in epochs.entries}
    least = L.INT32_MAX
    for valid_run in reversed(kept):
        low = least
        for table in logs.tables(valid_run) if valid_run.last_epoch > least else ():
            for row in range(table.count):
                found, first = table.at(C.LEADER_EPOCH, row), logs.first_offset(valid_run.log, table, row)
                filed = epochs.epoch_for_offset(first)
                if found > least and found not in known and filed is not None and filed <= least:
                    yield first, filed
                else:
                    low = min(low, found)
        if valid_run.last_epoch <= least and valid_run.first_epoch >= 0:
            low = min(least, valid_run.first_epoch)
        least = low if low >= 0 else least


def _forget(logs: Logs) -> bool:
    """Remove all leader epochs from the fixes; returns whether there were any."""
    are_any = False
    for number in range(len(logs)):
        for position, fix in [*logs[number].fixes.items()]:
            if fix.leader_epoch is not None:
                are_any = True
                logs.set_fix(number, position, replace(fix, leader_epoch=None))
    return are_any


def _altered(logs: Logs, kept: Sequence[ValidRun], chain: Chain) -> Iterator[tuple[int, int]]:
    """(first offset, true epoch) of each batch with an altered epoch; if several epochs fit, that of the batch before."""
    for valid_run in kept:
        for table in logs.tables(valid_run):
            yield from _corrections(chain, chain.feed(table))
            chain.carry()
    yield from _corrections(chain, chain.close_before(None))


def _corrections(chain: Chain, findings: Iterator[Finding]) -> Iterator[tuple[int, int]]:
    for finding in findings:
        if isinstance(finding.diagnosis, AlteredLeaderEpoch) and finding.first_offset is not None:
            probable = finding.diagnosis.probable
            if probable is None:
                probable = _in_table(chain.table, finding.first_offset)
            yield finding.first_offset, probable


def _in_table(table: Columns, offset: int) -> int:
    """The epoch that the chain chose for a row."""
    rows = [row for row in range(table.count) if table.at(C.BASE_OFFSET, row) == offset]
    return table.at(C.LEADER_EPOCH, rows[0]) if rows else L.NO_LEADER_EPOCH


def _set_right(logs: Logs, kept: Sequence[ValidRun], epochs: Mapping[int, int]) -> None:
    """Correct the headers. epochs: the true ones, by first offset of the batch."""
    offsets = sorted(epochs)
    for valid_run in kept:
        low, high = bisect_left(offsets, valid_run.first_offset), bisect_right(offsets, valid_run.last_offset)
        wanted = offsets[low:high]
        for table in logs.tables(valid_run) if wanted else ():
            last_offsets = table.column(C.LAST_OFFSET)
            while wanted and wanted[0] <= last_offsets[-1]:
                offset = wanted.pop(0)
                position = table.at(C.POSITION, bisect_left(last_offsets, offset))
                previous = logs[valid_run.log].fixes.get(position)
                logs.set_fix(valid_run.log, position, HeaderFix(leader_epoch=epochs[offset]).over(previous))
            if not wanted:
                break
