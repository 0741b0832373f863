"""Staged runs: the records that one of many writers has for partitions whose log end offsets are not known yet.

A task of a cluster cannot assign offsets, because others write to the same partition at the same time. So it writes
complete batches of magic 2, whose offsets count from 0 in each run or are those of its records, into a file of its own:

    file     chunk*            written when large enough, those of different partitions one after the other
    chunk    batch*            of one run, in its order
    run      the chunks of one partition, in order of their positions

The checksum of a batch does not cover its base offset and leader epoch. So `commit` sets just these two when it merges runs,
and the batches are compressed only once, by the tasks.

The files are in the log dir under names that brokers ignore, a unique one for each attempt.
"""

import os
from collections.abc import Iterator
from dataclasses import field
from typing import Self

from kseg.change.append.batching import DEFAULT_BATCH_BYTES, record_bytes
from kseg.segment import layout as L
from kseg.segment.encoding.batch import encode_batch
from kseg.segment.errors import UsageError
from kseg.segment.model import NewBatch, Record
from kseg.segment.new_files import NewFile
from kseg.segment.partition.names import STAGED_PREFIX
from kseg.segment.values import dataclass

_CHUNK_BYTES = 1 << 20
_WAITING_BYTES = 64 << 20  # in memory, encoded or not, for all partitions of one writer


@dataclass(frozen=True, slots=True, kw_only=True)
class RunRules:
    """How to build the batches of a run. codec: an id. batch_bytes, batch_records: upper limits, uncompressed; None for no limit."""

    codec: int = L.NONE
    batch_bytes: int = DEFAULT_BATCH_BYTES
    batch_records: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class StagedRun:
    """The data of one writer for one partition. file: the name of its file. chunks: (position, length in bytes) there, in order.
    end_offset: after the last record. has_offsets: whether offsets come from the records; otherwise they count from 0."""

    topic: str
    partition: int
    file: str
    chunks: tuple[tuple[int, int], ...]
    records: int
    first_offset: int
    end_offset: int
    has_offsets: bool


def staged_name(run_id: str, task: int) -> str:
    """A unique file name for one attempt of a task."""
    return f"{_prefix(run_id)}{task}-{os.urandom(6).hex()}"


def is_staged_by(name: str, run_id: str) -> bool:
    """Whether the name is that of a file of the run."""
    return name.startswith(_prefix(run_id))


def _prefix(run_id: str) -> str:
    return f"{STAGED_PREFIX}{run_id}-"


@dataclass(slots=True)
class _Open:
    """A partition's run while it is being written. waiting: encoded batches that are not yet in the file."""

    has_offsets: bool
    first_offset: int
    next_offset: int
    append_time_ms: int | None = None
    records: list[Record] = field(default_factory=list)
    records_bytes: int = L.BATCH_HEADER
    waiting: bytearray = field(default_factory=bytearray)
    chunks: list[tuple[int, int]] = field(default_factory=list)
    count: int = 0


class RunWriter:
    """Writes the file of one attempt. A context manager, which removes the file again if it is left by an exception.

    directory: the log dir. name: see `staged_name`. The file is created with the first record.
    """

    def __init__(self, directory: str, name: str, rules: RunRules) -> None:
        self.name = name
        self._path = os.path.join(directory, name)
        self._rules = rules
        self._file: NewFile | None = None
        self._open: dict[tuple[str, int], _Open] = {}
        self._bytes = 0  # of all that is waiting

    def add(
        self,
        partition: tuple[str, int],
        record: Record,
        *,
        has_offset: bool = False,
        append_time: bool = False,
    ) -> None:
        """Add a record of (topic, partition). has_offset: whether its offset is to be kept. append_time: whether its timestamp is a
        LogAppendTime. Raises UsageError if offsets do not increase, or only some records have one."""
        run = self._open.get(partition)
        if run is None:
            first = record.offset if has_offset else 0
            run = self._open[partition] = _Open(has_offset, first, first)
        if run.has_offsets != has_offset:
            raise UsageError(f"{_shown(partition)}: some records have an offset and some do not")
        offset = record.offset if has_offset else run.next_offset
        if offset < run.next_offset:
            raise UsageError(
                f"{_shown(partition)}: offset {offset} follows {run.next_offset - 1}; sort the rows of a "
                "partition by offset"
            )
        append_time_ms = record.timestamp_ms if append_time else None
        size_bytes = record_bytes(record)
        if run.records and (append_time_ms != run.append_time_ms or self._is_full(run, offset, size_bytes)):
            self._encode(run)
        run.append_time_ms = append_time_ms
        run.records.append(
            record
            if has_offset
            else Record(offset, record.timestamp_ms, record.key, record.value, record.headers)
        )
        run.records_bytes += size_bytes
        run.next_offset = offset + 1
        run.count += 1
        self._bytes += size_bytes
        if self._bytes > _WAITING_BYTES:
            self._put_all()

    def fits(self, partition: tuple[str, int], record: Record) -> bool:
        """Whether a record without an offset fits into the open batch of its partition, or is its first one."""
        run = self._open.get(partition)
        if run is None or not run.records:
            return run is None
        return not self._is_full(run, run.next_offset, record_bytes(record))

    def close(self) -> tuple[StagedRun, ...]:
        """Write and sync everything; returns the runs ordered by topic and partition."""
        self._put_all()
        if self._file is not None:
            self._file.sync()
            self._file.close()
        return tuple(self._runs())

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        if self._file is not None:
            self._file.__exit__(*error)

    def _runs(self) -> Iterator[StagedRun]:
        for (topic, partition), run in sorted(self._open.items()):
            yield StagedRun(
                topic=topic,
                partition=partition,
                file=self.name,
                chunks=tuple(run.chunks),
                records=run.count,
                first_offset=run.first_offset,
                end_offset=run.next_offset,
                has_offsets=run.has_offsets,
            )

    def _is_full(self, run: _Open, offset: int, size_bytes: int) -> bool:
        rules = self._rules
        return (
            run.records_bytes + size_bytes > rules.batch_bytes
            or (rules.batch_records is not None and len(run.records) >= rules.batch_records)
            or offset - run.records[0].offset > L.INT32_MAX
        )

    def _encode(self, run: _Open) -> None:
        """Close the open batch of a run."""
        if not run.records:
            return
        data = encode_batch(
            NewBatch(
                records=tuple(run.records),
                codec=self._rules.codec,
                log_append_time=run.append_time_ms is not None,
                max_timestamp_ms=run.append_time_ms,
            )
        )
        self._bytes += len(data) - (run.records_bytes - L.BATCH_HEADER)
        run.records.clear()
        run.records_bytes = L.BATCH_HEADER
        run.waiting += data
        if len(run.waiting) >= _CHUNK_BYTES:
            self._put(run)

    def _put_all(self) -> None:
        for run in self._open.values():
            self._encode(run)
            if run.waiting:
                self._put(run)

    def _put(self, run: _Open) -> None:
        if self._file is None:
            self._file = NewFile(self._path)
        position = self._file.size_bytes
        self._file.write(run.waiting)
        last = run.chunks[-1] if run.chunks else (0, 0)
        if run.chunks and sum(last) == position:
            run.chunks[-1] = (last[0], last[1] + len(run.waiting))
        else:
            run.chunks.append((position, len(run.waiting)))
        self._bytes -= len(run.waiting)
        run.waiting.clear()


def _shown(partition: tuple[str, int]) -> str:
    return f"{partition[0]}-{partition[1]}"
