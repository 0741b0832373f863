"""The messages between the tasks of a shuffled compaction, and their common parameters.

    keys       a part of the hash space ◄── PUT   rows of records that count for their keys
                                            ASK   rows of records that do not, and may be superseded
                                            GONE  offsets that are superseded, for the next step
    verdicts   a group of segments      ◄── offsets that are superseded
    notes      the slot after the last group ◄── notes to the driver (`Note`)

A row has 24 bytes, an offset 8 (`kernel.key_exchange`); many are sent at a time, as bytes.
"""

import os
from array import array
from collections.abc import Sequence
from contextlib import suppress
from enum import IntEnum

from kseg.compaction.cleaner.active_producers import LastRecords
from kseg.compaction.cleaner.cleaned_transactions import Transactions
from kseg.compaction.cleaner.options import CleanSettings
from kseg.compaction.cleaner.segments import CleanerSegment
from kseg.segment.findings import Finding
from kseg.segment.sidecar.txn_index import AbortedTxn
from kseg.segment.values import dataclass
from kseg.spark import scheduling

ROW_BYTES = 24
OFFSET_BYTES = 8
# the memory of a part: the rows as received, and a map of them, which is filled to two thirds
PART_BYTES_PER_ROW = ROW_BYTES + ROW_BYTES * 3 // 2


class WorkKind(IntEnum):
    """The kinds of messages to a part of the hash space."""

    PUT = 0
    ASK = 1
    GONE = 2
    NOTE = 3


Message = tuple[WorkKind, bytes]


@dataclass(frozen=True, slots=True)
class ShufflePlan:
    """The parameters of a shuffle. secret: of the hash, new for each compaction. parts: the number of parts of the hash space. bases:
    the first offsets of the groups. settings: of the compaction; map_bytes limits the keys in a task. directory: the working directory."""

    secret: tuple[int, int]
    parts: int
    bases: Sequence[int]
    settings: CleanSettings
    directory: str

    @property
    def notes_place(self) -> int:
        """The number of the slot for notes, after those of the groups."""
        return len(self.bases)


def enter_directory(directory: str) -> None:
    """Change a task's working directory to the driver's. If it does not exist, relative paths fail when they are used."""
    with suppress(OSError):
        scheduling.enter_directory(directory)


def numbers(count: int) -> memoryview:
    """A zeroed array of 8-byte numbers."""
    return memoryview(array("q", bytes(OFFSET_BYTES * count)))


def new_secret() -> tuple[int, int]:
    """A random hash secret, without which nobody can construct colliding keys."""
    return int.from_bytes(os.urandom(8)), int.from_bytes(os.urandom(8))


@dataclass(frozen=True, slots=True)
class Note:
    """A task's findings about a segment. number: of the segment. findings: damage, in order of position. is_irregular: offsets do not
    increase within it, so that an offset does not identify one record."""

    number: int
    findings: tuple[Finding, ...] = ()
    is_irregular: bool = False


@dataclass(frozen=True, slots=True)
class SegmentWork:
    """One segment whose keys are to be sent. bound: the base offset of the next one. start_offset: records below it do not
    supersede others. records: the number declared in the headers. transactions: the state of a first pass at its beginning. finds:
    whether damage is reported and skipped; otherwise the first one ends the segment."""

    number: int
    segment: CleanerSegment
    bound: int
    start_offset: int
    records: int
    transactions: Transactions
    finds: bool


@dataclass(frozen=True, slots=True)
class GroupWork:
    """One group of segments to be rewritten. first_number: the number of its first segment. bound: the first offset of the next group.
    aborted: the aborted transactions of each segment. transactions: the state of a second pass at its beginning."""

    number: int
    first_number: int
    segments: Sequence[CleanerSegment]
    bound: int
    aborted: Sequence[Sequence[AbortedTxn]]
    transactions: Transactions


@dataclass(frozen=True, slots=True)
class PassWork:
    """The common parameters of all groups of a second pass. exchange_path: the directory for new logs, None to only count."""

    records: LastRecords
    upper_offset: int
    legacy_horizon_ms: int
    top_keys: int
    exchange_path: str | None
