"""Byte ranges of a log to read, and their bounds: plain values that can be sent to another process.

A piece is a stretch of one file between two batch boundaries. Bounds are offsets and timestamps of records. The aborted
transactions come with the piece, because one segment alone does not show them.
"""

from dataclasses import field

from kseg.segment.model import Batch
from kseg.segment.partition.bounds import Bounds
from kseg.segment.redaction import Redactor
from kseg.segment.values import dataclass


@dataclass(frozen=True, slots=True)
class Aborted:
    """An aborted transaction: first_offset … marker_offset of one producer."""

    producer_id: int
    first_offset: int
    marker_offset: int


@dataclass(frozen=True, slots=True)
class LogPiece:
    """A stretch of a `.log`, or a whole `.kafka` file.

    path: as shown. base_offset: from its name. start, stop: batch boundaries in bytes, stop None for the end of the file. size_bytes: of
    the stretch when it was planned. aborted: transactions that may overlap it. checks_markers: `aborted` comes from transaction indexes,
    and is compared with the log.
    """

    path: str
    topic: str
    partition: int
    base_offset: int
    bounds: Bounds = field(default_factory=Bounds)
    start: int = 0
    stop: int | None = None
    size_bytes: int = 0
    aborted: tuple[Aborted, ...] = ()
    is_kafka07: bool = False
    checks_markers: bool = False

    def is_aborted(self, batch: Batch) -> bool:
        """Whether a batch belongs to one of the aborted transactions."""
        return batch.is_transactional and any(
            each.producer_id == batch.producer_id
            and each.first_offset <= batch.base_offset <= each.marker_offset
            for each in self.aborted
        )


@dataclass(frozen=True, slots=True)
class ValidatedRanges:
    """Results of an earlier reader of a piece. misplaced: positions of batches whose offsets are altered; their records are read
    as invalid ones. spans: of bytes that were found valid (`scanning.prevalidated`)."""

    misplaced: frozenset[int] = frozenset()
    spans: tuple[tuple[int, int], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """What to read of a piece besides its bounds.

    include_control: also control records. include_invalid: also the records of batches (and messages) with a wrong checksum.
    records_per_batch, bytes_per_batch: of an Arrow batch. redactor: redacts secrets in values, None leaves all values as they are.
    """

    include_control: bool = False
    include_invalid: bool = False
    records_per_batch: int = 32768
    bytes_per_batch: int = 8 * 1024 * 1024
    redactor: Redactor | None = None
