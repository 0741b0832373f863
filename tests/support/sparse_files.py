"""A partition shaped like 1 TiB: files with the sizes of a big log and only the batches that a lookup should touch."""

from __future__ import annotations

import struct
from pathlib import Path

from kseg.segment.encoding.batch import encode_batch
from kseg.segment.model import NewBatch, Record

SEGMENT_BYTES = 1 << 30
OFFSETS_PER_SEGMENT = 1_000_000
RECORDS_PER_BATCH = 10
BATCHES_PER_ISLAND = 12
ISLANDS = 16
FIRST_MS = 1_700_000_000_000


def timestamp_of(offset: int) -> int:
    return FIRST_MS + offset


def batch_bytes(first: int, count: int = RECORDS_PER_BATCH) -> bytes:
    records = tuple(
        Record(offset, timestamp_of(offset), b"key-%d" % offset, b"value" * 20)
        for offset in range(first, first + count)
    )
    return encode_batch(NewBatch(records=records, leader_epoch=3))


def build(directory: Path, segments: int) -> Path:
    """Create segments with islands of batches, 64 MiB apart, to which the index entries point. The rest are holes.

    The last island ends with the last offset of the segment.
    """
    directory.mkdir()
    for number in range(segments):
        _segment(directory, number * OFFSETS_PER_SEGMENT)
    return directory


def _segment(directory: Path, base: int) -> None:
    index, times = bytearray(), bytearray()
    step = OFFSETS_PER_SEGMENT // ISLANDS
    with (directory / f"{base:020d}.log").open("wb") as log:
        for island in range(ISLANDS):
            position = island * (SEGMENT_BYTES // ISLANDS)
            last_first = base + OFFSETS_PER_SEGMENT - BATCHES_PER_ISLAND * RECORDS_PER_BATCH
            first = base + island * step if island < ISLANDS - 1 else last_first
            log.seek(position)
            for number in range(BATCHES_PER_ISLAND):
                log.write(batch_bytes(first + number * RECORDS_PER_BATCH))
            if island:
                last = first + RECORDS_PER_BATCH - 1
                index += struct.pack(">ii", last - base, position)
                times += struct.pack(">qi", timestamp_of(last), last - base)
        if island == ISLANDS - 1:
            log.truncate(log.tell())
    last = base + OFFSETS_PER_SEGMENT - 1
    times += struct.pack(">qi", timestamp_of(last), last - base)
    (directory / f"{base:020d}.index").write_bytes(index)
    (directory / f"{base:020d}.timeindex").write_bytes(times)
