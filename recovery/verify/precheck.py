"""The part of a verification that can run ahead, in any order and on any machine: the bytes of large logs.

The pass over a partition goes from batch to batch, since the state of a producer, an epoch or an index entry depends on
earlier batches. Checksums and the decoding of records do not depend on them, and take most of the time. So parts of
the logs are checked first (`claim`), and the pass trusts the result (`segment.scanning.prevalidated`): it reads only
headers, and complete batches only if the first check rejected them.
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
from kseg.segment.partition.targets import FileTarget, PartitionTarget, Target
from kseg.segment.scanning.prevalidated import MAX_SPANS, Span, ValidatedSpans, join_spans
from kseg.segment.scanning.record_validation import valid_until
from kseg.segment.scanning.scan import BATCHES_PER_TABLE, Scanner, rows_for
from kseg.segment.storage import places


def parts(target: Target, part_bytes: int) -> list[Part]:
    """The logs of a partition (or a single log) in parts; empty for files that are not logs or cannot be read."""
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
                return pieces_between(target.path, places.stat(target.path).st_size, part_bytes)
    return []


def claim(part: Part, options: VerifyOptions) -> ValidatedSpans:
    """The valid spans of a part. Raises UnreadableInput."""
    base_offset = parse_file_name(os.path.basename(part.path)).base_offset or 0
    with MappedFile(part.path, options.drop_cache) as file:
        return claim_of(file, base_offset, part.start, part.stop, with_records=options.level == "deep")


def claim_of(
    file: MappedFile, base_offset: int, start: int, stop: int, *, with_records: bool
) -> ValidatedSpans:
    """The valid spans of batches that begin at or after `start` and before `stop`, up to the first invalid batch."""
    view = file.view
    scanner = Scanner.over(file, base_offset)
    table = Columns(C.BATCH_WIDTH, min(BATCHES_PER_TABLE, rows_for(len(view))))
    spans: list[Span] = []
    position, is_whole = start, True
    while is_whole and position < stop and len(spans) < MAX_SPANS:
        position, is_whole = scanner.fill_valid(table, position, len(view), stop)
        row = 0
        while row < table.count:
            sound = valid_until(view, table, row, table.count) if with_records else table.count
            if sound > row:
                join_spans(spans, table.at(C.POSITION, row), _end_of(table, sound - 1))
            row = sound + 1
    return ValidatedSpans(file.path, file.size_bytes, file.mtime_ms, tuple(spans), with_records)


def _end_of(table: Columns, row: int) -> int:
    return table.at(C.POSITION, row) + table.at(C.SIZE, row)
