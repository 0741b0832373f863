"""A partition with the shape of 1 TiB that takes a few hundred MiB: 1,000 segments that consist almost entirely of holes.

Every segment is a grid of batches of one size, 1 GiB in all, as a producer of steady records would fill it; only the
batches around its beginning, middle and end are really written. The indexes are complete: an offset index entry for every
batch (the relative offsets are the same in each segment, so all `.index` names link to one file), and a time index
entry for every 64th. Record n has offset n and time FIRST_MS + n.
"""

from __future__ import annotations

import os
import shutil
from dataclasses import dataclass
from pathlib import Path

from kseg.segment.encoding.batch import encode_batch
from kseg.segment.model import NewBatch, Record
from kseg.segment.sidecar.index_writer import OffsetIndexBuilder, TimeIndexBuilder

SEGMENTS = 1000
SEGMENT_BYTES = 1 << 30
RECORDS_PER_BATCH = 100
FIRST_MS = 1_700_000_000_000
WRITTEN_BATCHES = 4
TIME_ENTRY_EVERY = 64


@dataclass(frozen=True, slots=True)
class Grid:
    """The positions of the batches in every segment."""

    batch_bytes: int
    batches: int

    @property
    def records(self) -> int:
        return self.batches * RECORDS_PER_BATCH

    def written(self) -> list[int]:
        """The numbers of the batches that are really written."""
        last = self.batches - WRITTEN_BATCHES
        return [first + n for first in (0, self.middle, last) for n in range(WRITTEN_BATCHES)]

    @property
    def middle(self) -> int:
        """The first of the batches written in the middle, which has a time index entry."""
        return self.batches // 2 // TIME_ENTRY_EVERY * TIME_ENTRY_EVERY

    def middle_offset(self, segment: int) -> int:
        """An offset in the middle of a segment, in the second batch written there."""
        return segment * self.records + (self.middle + 1) * RECORDS_PER_BATCH + RECORDS_PER_BATCH // 2


def grid(segment_bytes: int = SEGMENT_BYTES) -> Grid:
    """The grid of a segment of at most `segment_bytes`."""
    batch_bytes = len(_batch(0))
    return Grid(batch_bytes, segment_bytes // batch_bytes)


def make(directory: Path, segments: int = SEGMENTS, segment_bytes: int = SEGMENT_BYTES) -> Path:
    """Create the partition `sparse-0` in `directory` unless it exists; returns its path."""
    done = directory / "sparse-0"
    if done.exists():
        return done
    shape = grid(segment_bytes)
    half = directory / f".sparse-0.{os.getpid()}"
    shutil.rmtree(half, ignore_errors=True)
    half.mkdir(parents=True)
    for segment in range(segments):
        _segment(half, segment * shape.records, shape)
    half.rename(done)
    return done


def _segment(directory: Path, base_offset: int, shape: Grid) -> None:
    stem = f"{base_offset:020d}"
    with (directory / f"{stem}.log").open("wb") as log:
        log.truncate(shape.batches * shape.batch_bytes)
        for number in shape.written():
            log.seek(number * shape.batch_bytes)
            log.write(_batch(base_offset + number * RECORDS_PER_BATCH))
    index = directory / f"{stem}.index"
    if base_offset:
        os.link(directory / f"{0:020d}.index", index)
    else:
        index.write_bytes(_offset_index(shape))
    (directory / f"{stem}.timeindex").write_bytes(_time_index(base_offset, shape))


def _offset_index(shape: Grid) -> bytes:
    builder = OffsetIndexBuilder(0)
    for number in range(1, shape.batches):
        builder.append((number + 1) * RECORDS_PER_BATCH - 1, number * shape.batch_bytes)
    return builder.to_bytes()


def _time_index(base_offset: int, shape: Grid) -> bytes:
    builder = TimeIndexBuilder(base_offset)
    numbers = {*range(0, shape.batches, TIME_ENTRY_EVERY), shape.batches - 1}
    for number in sorted(numbers):
        last = base_offset + (number + 1) * RECORDS_PER_BATCH - 1
        builder.maybe_append(FIRST_MS + last, last)
    return builder.to_bytes()


def _batch(base_offset: int) -> bytes:
    return encode_batch(
        NewBatch(
            records=tuple(
                Record(n, FIRST_MS + n, b"key-%09d" % (n % 10**9), b"%-100d" % n)
                for n in range(base_offset, base_offset + RECORDS_PER_BATCH)
            ),
            leader_epoch=0,
        )
    )
