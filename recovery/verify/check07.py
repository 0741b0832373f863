"""Verify Kafka 0.7 `.kafka` files (fact sheet §2.1). Offsets are byte positions, so the files must join exactly.

A 0.7 broker reads only its last file when it starts; here every file is read. The deep level also decompresses
the sets and checks the messages inside.
"""

import os
from collections.abc import Iterator

from kseg.jobs.events import Advance, Event
from kseg.recovery.verify.options import VerifyOptions
from kseg.recovery.verify.totals import Totals
from kseg.segment.errors import FormatError
from kseg.segment.files import MappedFile
from kseg.segment.findings import Finding
from kseg.segment.kafka07.findings07 import bad_crc07, bad_inner_crc07, invalid_bytes07, undecodable07
from kseg.segment.kafka07.messages07 import Damage07, Entry07, messages, walk
from kseg.segment.partition.directory import PartitionDirectory
from kseg.segment.partition.names import parse_file_name

_PROGRESS_BYTES = 16 * 1024 * 1024


def check_partition07(
    directory: PartitionDirectory, options: VerifyOptions, totals: Totals
) -> Iterator[Event]:
    """Check all `.kafka` files of a directory, and whether each begins where the previous one ends."""
    from kseg.recovery.verify.small_files import readable

    expected: int | None = None
    for entry in directory.kafka07_files:
        number = entry.name.base_offset or 0
        if entry.problem is not None:
            expected = None
            continue
        if expected is not None and number != expected:
            message = (
                f"the file starts at byte {number} of the partition, but the previous one ends at {expected}"
            )
            found = {"expected": expected, "found": number}
            yield Finding("ancient-gap", entry.path, message, 0, 0, numbers=found)
        path = entry.path
        yield from readable(path, check_file07(path, options, totals))
        expected = number + entry.size_bytes


def check_file07(path: str, options: VerifyOptions, totals: Totals) -> Iterator[Event]:
    """One `.kafka` file. Raises UnreadableInput."""
    base = parse_file_name(os.path.basename(path)).base_offset or 0
    damaged = padding = reported_position = 0
    with MappedFile(path, options.drop_cache) as file:
        for item in walk(file.view, 0, file.unreadable, file.extents):
            if isinstance(item, Damage07):
                if item.kind == "zero-tail":
                    padding += item.length
                else:
                    damaged += item.length
                yield invalid_bytes07(path, base, item)
                continue
            totals.batches += 1
            if not item.crc_valid:
                damaged += item.size_bytes
                yield bad_crc07(path, base, item)
            elif options.level == "deep":
                yield from _contents(path, file.view, item, base, totals)
            else:
                totals.records += 1
            if item.end_position - reported_position > _PROGRESS_BYTES:
                yield Advance(path, item.end_position - reported_position)
                reported_position = item.end_position
        yield Advance(path, file.size_bytes - reported_position)
        totals.account(path, file.size_bytes, damaged, padding)


def _contents(path: str, view: memoryview, entry: Entry07, base: int, totals: Totals) -> Iterator[Finding]:
    try:
        for message in messages(view, entry, base):
            totals.records += 1
            if not message.crc_valid:
                yield bad_inner_crc07(path, base, entry)
    except FormatError as error:
        yield undecodable07(path, base, entry, error)
