"""The log start according to the leader-epoch checkpoint of a partition, for use if log-start-offset-checkpoint is lost.

When DeleteRecords or retention moves a log start, the broker truncates the leader-epoch checkpoint there: the entry of
the epoch at the log start then begins at it (LeaderEpochFileCache.truncateFromStart). So a first entry that begins
in the middle of an epoch's batches is a trace of the log start. A file that recovery recreated can begin late, too, but
at the base offset of a segment; and a file that begins with the first batch of an epoch is no evidence.
"""

from kseg.segment import header_tables as C
from kseg.segment import layout as L
from kseg.segment.errors import FormatError, UnreadableInput
from kseg.segment.files import MappedFile
from kseg.segment.header_tables import Columns
from kseg.segment.partition.directory import SegmentFiles, list_partition
from kseg.segment.partition.partition_epochs import partition_epochs
from kseg.segment.scanning.damage import Damage
from kseg.segment.scanning.scan import Scanner
from kseg.segment.values import dataclass


@dataclass(frozen=True, slots=True)
class LogStartTrace:
    """offset: of the first entry. epoch: its epoch, which is also that of the batch before. is_certain: the offset is inside a segment."""

    offset: int
    epoch: int
    is_certain: bool


def log_start_trace(partition_path: str) -> LogStartTrace | None:
    """The trace of a log start above the base offset of the first segment, None if there is none."""
    try:
        entries = partition_epochs(partition_path)
    except (FormatError, UnreadableInput):
        return None
    if not entries or entries[0].start_offset <= 0:
        return None
    epoch, offset = entries[0]
    segments = list_partition(partition_path).segments
    if not segments or segments[0].base_offset >= offset:
        return None
    around = [segment for segment in segments if segment.base_offset < offset][-1]
    try:
        is_within = _epoch_at(around, offset - 1) == epoch
    except UnreadableInput:
        return None
    bases = {segment.base_offset for segment in segments}
    return LogStartTrace(offset, epoch, offset not in bases) if is_within else None


def _epoch_at(segment: SegmentFiles, offset: int) -> int | None:
    """The leader epoch of the last batch that begins at or below `offset`, None if there is none or its format has none."""
    found = None
    with MappedFile(segment.log.path) as file:
        for block in Scanner(file.view, segment.base_offset).blocks(0):
            if isinstance(block, Damage):
                continue
            row = _last_row(block, offset)
            if row >= 0:
                is_modern = block.at(C.MAGIC, row) >= L.MAGIC_V2
                found = block.at(C.LEADER_EPOCH, row) if is_modern else None
            if row + 1 < block.count:
                break
    return found


def _last_row(table: Columns, offset: int) -> int:
    """The last row that begins at or below `offset`, -1 if there is none."""
    for row in range(table.count - 1, -1, -1):
        if table.at(C.BASE_OFFSET, row) <= offset:
            return row
    return -1
