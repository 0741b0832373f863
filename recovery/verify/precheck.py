"""What of a verification others can do beforehand, in any order and on any machine: the bytes of large logs.

The pass over a partition goes from batch to batch, since a producer's state, an epoch, an index entry hang on what came
before. Checksums do not, nor does whether records can be decoded; and these are what takes time. So parts of the logs are
looked at first (`claim`), and the pass believes what was found (`segment.scanning.prevalidated`): it reads the headers, and only of
batches that somebody stumbled over the rest.
"""

import os
from contextlib import suppress

from kseg.jobs.log_splitting import Part, pieces_between
from kseg.recovery.verify.options import VerifyOptions
from kseg.segment import header_tables as C
from kseg.segment.files import MappedFile
from kseg.segment.header_tables import Columns
from kseg.segment.partition.directory import list_partition
from kseg.segment.partition.names import Role, parse_file_name
from kseg.segment.partition.targets import FileTarget, LogDirTarget, PartitionTarget
from kseg.segment.scanning.prevalidated import MOST_SPANS, Claim, Span, join_spans
from kseg.segment.scanning.record_validation import sound_until
from kseg.segment.scanning.scan import BATCHES_PER_TABLE, Scanner, rows_for


def parts(target: FileTarget | PartitionTarget | LogDirTarget, part_bytes: int) -> list[Part]:
    """The logs of a partition (or one log alone) in parts; none of what is no log or cannot be read."""
    match target:
        case PartitionTarget():
            segments = list_partition(target.path).segments
            return [
                part
                for segment in segments
                for part in pieces_between(segment.log.path, segment.log.size_bytes, part_bytes)
            ]
        case FileTarget() if parse_file_name(os.path.basename(target.path)).role is Role.LOG:
            with suppress(OSError):
                return pieces_between(target.path, os.stat(target.path).st_size, part_bytes)
    return []


def claim(part: Part, options: VerifyOptions) -> Claim:
    """What is sound in a part. Raises UnreadableInput."""
    base_offset = parse_file_name(os.path.basename(part.path)).base_offset or 0
    with MappedFile(part.path, options.drop_cache) as file:
        return claim_of(file, base_offset, part.start, part.stop, with_records=options.level == "deep")


def claim_of(file: MappedFile, base_offset: int, start: int, stop: int, *, with_records: bool) -> Claim:
    """What can be claimed of the batches that begin from `start` on, before `stop`. It ends where a batch is not valid."""
    view = file.view
    scanner = Scanner.over(file, base_offset)
    table = Columns(C.BATCH_WIDTH, min(BATCHES_PER_TABLE, rows_for(len(view))))
    spans: list[Span] = []
    position, is_whole = start, True
    while is_whole and position < stop and len(spans) < MOST_SPANS:
        position, is_whole = scanner.fill_valid(table, position, len(view), stop)
        row = 0
        while row < table.count:
            sound = sound_until(view, table, row, table.count) if with_records else table.count
            if sound > row:
                join_spans(spans, table.at(C.POSITION, row), _end_of(table, sound - 1))
            row = sound + 1
    return Claim(file.path, file.size_bytes, file.mtime_ms, tuple(spans), with_records)


def _end_of(table: Columns, row: int) -> int:
    return table.at(C.POSITION, row) + table.at(C.SIZE, row)
