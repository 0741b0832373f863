"""What appends to both kinds of partition, those of Kafka 0.7 and later ones, have in common: the job and its result."""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import ClassVar, Generic, Protocol, TypeVar

from kseg.change.append.append_guard import Protection
from kseg.change.append.json_input import Numbered
from kseg.change.append.options import AppendOptions
from kseg.change.run.results import ChangeResult
from kseg.segment.findings import Finding
from kseg.segment.partition.targets import PartitionTarget
from kseg.segment.values import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class AppendResult(ChangeResult):
    """What `append` makes of one partition: the line `{"type":"result","command":"append", …}` of docs/json.md.
    timestamps_replaced: number of timestamps of lines that became the time of the append. transaction_start_offset: of the transaction
    that a requested marker ends."""

    command: ClassVar[str] = "append"
    optional: ClassVar[tuple[str, ...]] = ("transaction_start_offset",)

    partition: str = ""
    becomes_stray: bool = False
    applied: bool = False
    is_new: bool
    records: int
    batches: int
    bytes: int
    segments_rolled: int
    flushes: int
    log_start_offset: int
    first_offset: int
    log_end_offset: int
    lines_ignored: Mapping[str, int]
    batches_left_out: int = 0
    timestamps_replaced: int = 0
    transaction_start_offset: int | None = None
    journal: str | None = None


class LogWriter(Protocol):
    """What a job needs of its writer. bytes_appended: to logs."""

    bytes_appended: int
    segments_rolled: int

    @property
    def planned_bytes(self) -> Sequence[int]: ...

    @property
    def flushes(self) -> int: ...

    def close(self) -> None: ...

    def release(self) -> None: ...


W = TypeVar("W", bound=LogWriter)


class AppendJob(ABC, Generic[W]):
    """An append to one partition, or its rehearsal. Nothing changes before the first batch is appended.

    protection: None in a rehearsal. findings: about the batches that were appended.
    """

    findings: Sequence[Finding] = ()

    def __init__(
        self, target: PartitionTarget, options: AppendOptions, protection: Protection | None
    ) -> None:
        self._target, self._options, self._protection = target, options, protection
        self._batches = self._records = 0
        self._log_start_offset = self._first_offset = 0
        self._writer: W | None = None

    @property
    @abstractmethod
    def log_end_offset(self) -> int: ...

    @property
    @abstractmethod
    def is_new(self) -> bool:
        """Whether the partition has no log yet."""

    @abstractmethod
    def take(self, rows: Iterable[Numbered]) -> Iterator[None]:
        """Append everything, batch by batch. Raises BadLine for the first line that cannot be appended."""

    @property
    @abstractmethod
    def ignored(self) -> Mapping[str, int]:
        """The number of lines that are not used, by type."""

    @abstractmethod
    def _open(self, protection: Protection | None) -> W:
        """The writer; from then on the partition changes, unless this is a rehearsal."""

    @property
    def changes_something(self) -> bool:
        """Whether a batch was appended, or the partition is a new one."""
        return self._batches > 0 or self.is_new

    @property
    def planned_bytes(self) -> Sequence[int]:
        """How many bytes a rehearsal would have written to each file."""
        return () if self._writer is None else self._writer.planned_bytes

    @property
    def kept_bytes(self) -> Sequence[int]:
        """Sizes of the files that are copied and then replaced."""
        return ()

    def result(self) -> AppendResult:
        """Counts of what was done; the caller adds the remaining fields."""
        writer = self._writer
        return AppendResult(
            is_new=self.is_new,
            records=self._records,
            batches=self._batches,
            bytes=0 if writer is None else writer.bytes_appended,
            segments_rolled=0 if writer is None else writer.segments_rolled,
            flushes=0 if writer is None else writer.flushes,
            log_start_offset=self._log_start_offset,
            first_offset=self._first_offset,
            log_end_offset=self.log_end_offset,
            lines_ignored=dict(self.ignored),
        )

    def close(self) -> None:
        """Finish as a clean shutdown does; a partition without new batches stays as it was."""
        if self.changes_something:
            self._opened().close()

    def release(self) -> None:
        """Close open files without writing anything else."""
        if self._writer is not None:
            self._writer.release()

    def _opened(self) -> W:
        if self._writer is None:
            self._writer = self._open(self._protection)
        return self._writer
