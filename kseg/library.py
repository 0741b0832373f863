"""kseg as a library: the logs on a broker's disk as Python values. `import kseg` exports these names; docs/library.md has examples.

    kseg.open(path, …)  →  Logs  →  partitions  →  batches, records, findings, Arrow tables

Nothing here writes, or needs a broker. Damage does not end an iteration: it is reported to `on_finding` and skipped, as in the commands.
The stability promise covers only what is exported here (docs/library.md), not the packages below.
"""

import os
import time
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Literal, Self

from kseg.segment import layout as L
from kseg.segment.errors import (
    KsegError,
    OutOfReach,
    OutOfResources,
    Refused,
    UnreadableInput,
    UsageError,
    cannot_read,
)
from kseg.segment.findings import Finding
from kseg.segment.model import Batch, Record
from kseg.segment.partition.directory import own_partition_name
from kseg.segment.partition.names import PartitionName, PartitionState
from kseg.segment.partition.targets import (
    Expansion,
    LogDirTarget,
    LogTarget,
    PartitionTarget,
    Target,
    directory_of,
    is_selected,
    resolve_targets,
)
from kseg.segment.storage import places
from kseg.segment.values import dataclass

if TYPE_CHECKING:
    import pyarrow

    from kseg.inspection.arrow.log_ranges import LogPiece
    from kseg.segment.partition.partition_log import PartitionLog

__all__ = [
    "Batch",
    "Finding",
    "KsegError",
    "Logs",
    "OutOfReach",
    "OutOfResources",
    "Partition",
    "Record",
    "Refused",
    "Segment",
    "UnreadableInput",
    "UsageError",
    "open_logs",
]

Level = Literal["quick", "default", "deep"]
OnFinding = Callable[[Finding], object]

_LATEST = L.INT64_MAX


def open_logs(*paths: str | os.PathLike[str]) -> "Logs":
    """Open segments (`.log`), partition directories, data directories, or parents of several. Exported as `kseg.open`.

    This only lists directories; files are opened when something is read. Raises UnreadableInput if a path cannot be read, UsageError
    if none was given.
    """
    if not paths:
        raise UsageError("kseg.open needs at least one path")
    return Logs([os.fspath(path) for path in paths])


class Logs:
    """Partitions and data directories; a context manager that closes every partition opened through it."""

    def __init__(self, paths: Sequence[str]) -> None:
        self._targets = resolve_targets(paths, expand=Expansion.VERIFY)
        self._open: list[Partition] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close all files."""
        for partition in self._open:
            partition.close()
        self._open.clear()

    @property
    def log_dirs(self) -> tuple[str, ...]:
        """Paths of the data directories."""
        return tuple(target.path for target in self._targets if isinstance(target, LogDirTarget))

    def partitions(self, topic: str = "*", number: int | None = None) -> "Iterator[Partition]":
        """The partitions in order of their names; each is closed when the next one is requested, unless a `with` keeps it open.

        topic: a glob. number: only this partition. Directories with a suffix (`-stray`, `-future`) are included (see `state`).
        """
        for target in self._targets:
            if isinstance(target, LogDirTarget):
                continue
            name = own_partition_name(directory_of(target))
            if (topic != "*" or number is not None) and (
                name is None or not is_selected(name, (topic,), number)
            ):
                continue
            partition = Partition(target)
            self._open.append(partition)
            try:
                yield partition
            finally:
                partition.close()
                if partition in self._open:  # `close` may have been called meanwhile
                    self._open.remove(partition)

    def partition(self, topic: str, number: int) -> "Partition":
        """One live partition; of several replicas the first. Raises UnreadableInput if there is none."""
        for target in self._targets:
            name = None if isinstance(target, LogDirTarget) else own_partition_name(directory_of(target))
            if name == PartitionName(topic, number):
                partition = Partition(target)
                self._open.append(partition)
                return partition
        raise UnreadableInput(f"there is no partition {topic}-{number} among the given paths")

    def verify(self, level: Level = "default", now_ms: int | None = None) -> Iterator[Finding]:
        """The findings of `kseg verify` on everything opened, except those that compare several log dirs with the cluster's metadata.

        level: as the options of that command. now_ms: the current time, for rules that depend on it.
        """
        for target in self._targets:
            yield from _findings(target, level, now_ms)


@dataclass(frozen=True, slots=True)
class Segment:
    """One segment of a log. path: of its `.log`."""

    base_offset: int
    path: str
    size_bytes: int


class Partition:
    """The log of one partition, or a single segment given by its path; a context manager.

    Offsets, timestamps (epoch milliseconds) and sizes are integers. Every method that reads raises UnreadableInput if a file cannot be
    opened; damage is reported to `on_finding`, and without one skipped silently.
    """

    def __init__(self, target: Target) -> None:
        self._target = target
        self._name = own_partition_name(directory_of(target))
        self._opened: PartitionLog | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"Partition({self.path!r})"

    def close(self) -> None:
        """Close the files; reading opens them again."""
        if self._opened is not None:
            self._opened.__exit__(None, None, None)
            self._opened = None

    @property
    def _log(self) -> "PartitionLog":
        if self._opened is None:
            self._opened = self._reopened()
        return self._opened

    def _reopened(self) -> "PartitionLog":
        from kseg.segment.partition.partition_log import PartitionLog

        assert isinstance(self._target, LogTarget)
        return PartitionLog(self._target)

    # --- what it is

    @property
    def path(self) -> str:
        """The given path, or the given directory joined with the name of the partition."""
        return self._target.path

    @property
    def topic(self) -> str | None:
        """The topic; None if the directory is not named like a partition."""
        return None if self._name is None else self._name.topic

    @property
    def number(self) -> int | None:
        """The number of the partition; None as for `topic`."""
        return None if self._name is None else self._name.partition

    @property
    def state(self) -> str:
        """`live`, `delete`, `stray` or `future`, by the suffix of the directory."""
        return str(PartitionState.LIVE if self._name is None else self._name.state)

    @property
    def segments(self) -> tuple[Segment, ...]:
        """By base offset; empty for a log of Kafka 0.7, which has no segments in this sense."""
        return tuple(
            Segment(each.base_offset, each.path, _size_bytes(each.path)) for each in self._log.segments
        )

    @property
    def log_start_offset(self) -> int:
        return self._log.start_offset

    @property
    def log_end_offset(self) -> int:
        """The offset of the next record."""
        return self._log.end_offset

    @property
    def high_watermark(self) -> int:
        """The checkpointed high watermark, which may be seconds old; the log end if no checkpoint has it."""
        return self._log.high_watermark

    @property
    def last_stable_offset(self) -> int:
        """The offset at which read_committed consumers stop."""
        from kseg.segment.partition.derived_state import last_stable_offset

        return last_stable_offset(self._log)

    # --- what is in it

    def batches(
        self, start: int = 0, end: int | None = None, *, on_finding: OnFinding | None = None
    ) -> Iterator[Batch]:
        """The valid batches with offsets in [start, end), in log order. Raises UsageError for a log of Kafka 0.7."""
        report = on_finding or _ignore
        stop = _LATEST if end is None else end
        with self._reopened() as log:  # an open log reports each finding only once
            if log.is_kafka07:
                raise UsageError(f"{self.path} is a log of Kafka 0.7, which has no batches; read its records")
            for segment in log.from_floor(max(start, 0)):
                if segment.base_offset >= stop:
                    return
                for batch in segment.reaching(start):
                    if batch.base_offset >= stop:
                        break
                    yield batch
                    _report_findings(log, report)
                _report_findings(log, report)
                segment.close()

    def records(
        self,
        start: int = 0,
        end: int | None = None,
        *,
        start_ms: int | None = None,
        end_ms: int | None = None,
        committed: bool = False,
        on_finding: OnFinding | None = None,
    ) -> Iterator[Record]:
        """The records with start ≤ offset < end and start_ms ≤ timestamp < end_ms, in order, without control records and records
        below the log start offset. committed: only those that a read_committed consumer gets."""
        from kseg.library_records import records_of_piece

        for piece in self._pieces(start, end, start_ms, end_ms, committed):
            yield from records_of_piece(piece, on_finding or _ignore)

    def record(self, offset: int) -> Record | None:
        """The record at an offset; None if there is none because it is compacted away, a control record, damaged, or out of range."""
        return next(self.records(offset, offset + 1), None)

    def offset_for_time(self, timestamp_ms: int) -> int | None:
        """The offset that a broker's ListOffsets returns for a timestamp: that of the first record at or after it; None if all records
        are older. Raises UsageError for a log of Kafka 0.7, whose messages have no timestamps."""
        from kseg.inspection.lookup.by_time import by_timestamp
        from kseg.inspection.query import LookupQuery

        with self._reopened() as log:
            if log.is_kafka07:
                raise UsageError(f"{self.path} is a log of Kafka 0.7, whose messages have no timestamps")
            query = LookupQuery(kind="timestamp", timestamp_ms=timestamp_ms)
            return next((answer.offset for answer in by_timestamp(log, query)), None)

    def verify(self, level: Level = "default", now_ms: int | None = None) -> Iterator[Finding]:
        """The findings of `kseg verify` on this partition."""
        yield from _findings(self._target, level, now_ms)

    # --- as a table

    def arrow_batches(
        self,
        start: int = 0,
        end: int | None = None,
        *,
        start_ms: int | None = None,
        end_ms: int | None = None,
        columns: Sequence[str] | None = None,
        committed: bool = False,
        on_finding: OnFinding | None = None,
    ) -> "Iterator[pyarrow.RecordBatch]":
        """The records as Arrow batches, with the columns of `kseg export` (docs/export.md) or those named, in that order. Needs
        `kseg[export]`. Raises UsageError for an unknown column."""
        from kseg.library_tables import schema_of, tables_of_piece

        schema = schema_of(columns)
        for piece in self._pieces(start, end, start_ms, end_ms, committed):
            yield from tables_of_piece(piece, schema, on_finding or _ignore)

    def to_arrow(
        self,
        start: int = 0,
        end: int | None = None,
        *,
        start_ms: int | None = None,
        end_ms: int | None = None,
        columns: Sequence[str] | None = None,
        committed: bool = False,
        on_finding: OnFinding | None = None,
    ) -> "pyarrow.Table":
        """The same as one table, which must fit in memory; `to_arrow().to_pandas()` is a pandas DataFrame."""
        import pyarrow as pa

        from kseg.library_tables import schema_of

        batches = list(
            self.arrow_batches(
                start,
                end,
                start_ms=start_ms,
                end_ms=end_ms,
                columns=columns,
                committed=committed,
                on_finding=on_finding,
            )
        )
        return pa.Table.from_batches(batches, batches[0].schema if batches else schema_of(columns))

    def _pieces(
        self, start: int, end: int | None, start_ms: int | None, end_ms: int | None, committed: bool
    ) -> "Iterator[LogPiece]":
        """The byte ranges of the log that contain the requested records."""
        from kseg.inspection.export.export_ranges import pieces_of
        from kseg.inspection.record_filter import Selection

        assert isinstance(self._target, LogTarget)
        if isinstance(self._target, PartitionTarget):
            start = max(start, self._log.start_offset)
        selection = Selection(
            from_offset=start,
            to_offset=end,
            from_time_ms=start_ms,
            to_time_ms=end_ms,
            read_committed=committed,
        )
        yield from pieces_of(self._target, selection)


def _findings(target: Target, level: Level, now_ms: int | None) -> Iterator[Finding]:
    from kseg.recovery.verify.options import VerifyOptions
    from kseg.recovery.verify.verify import verify

    clock_ms = time.time_ns() // 1_000_000 if now_ms is None else now_ms
    for event in verify(target, VerifyOptions(level=level, now_ms=clock_ms)):
        if isinstance(event, Finding):
            yield event


def _size_bytes(path: str) -> int:
    try:
        return places.stat(path).st_size
    except OSError as error:
        raise cannot_read(path, error) from error


def _report_findings(log: "PartitionLog", on_finding: OnFinding) -> None:
    """Report the findings since the last call."""
    for finding in log.findings:
        on_finding(finding)
    log.findings.clear()


def _ignore(_finding: Finding) -> None:
    return None
