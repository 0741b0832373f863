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
# a part: its rows as they came, and the map made of them, which is filled to two thirds
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
    """secret: of the hash, for this compaction. parts: of the hash space. bases: where the groups begin. settings: of the
    compaction; map_bytes is what a task may take for keys. directory: where paths are relative to."""

    secret: tuple[int, int]
    parts: int
    bases: Sequence[int]
    settings: CleanSettings
    directory: str

    @property
    def notes_place(self) -> int:
        """Where notes go, among the groups."""
        return len(self.bases)


def enter_directory(directory: str) -> None:
    """A task goes to where paths are relative to. Where that is not there, relative paths lead nowhere, and whoever follows
    one says so."""
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
    """A task's findings about a segment. number: of the segment. findings: damage, in the order of its bytes.
    is_irregular: offsets do not ascend within it, so that an offset does not tell one record."""

    number: int
    findings: tuple[Finding, ...] = ()
    is_irregular: bool = False


@dataclass(frozen=True, slots=True)
class SegmentWork:
    """One segment whose keys are to be sent. bound: where the next one begins. start_offset: records below it do not
    count for their keys. records: as the headers declare. transactions: as a first pass has them at its beginning.
    finds: damage is told, and the rest of the segment is read; else the first one ends it."""

    number: int
    segment: CleanerSegment
    bound: int
    start_offset: int
    records: int
    transactions: Transactions
    finds: bool


@dataclass(frozen=True, slots=True)
class GroupWork:
    """One group of segments to be rewritten. first_number: of its first segment. bound: where the next group begins.
    aborted: known of each segment. transactions: as a second pass has them at its beginning."""

    number: int
    first_number: int
    segments: Sequence[CleanerSegment]
    bound: int
    aborted: Sequence[Sequence[AbortedTxn]]
    transactions: Transactions


@dataclass(frozen=True, slots=True)
class PassWork:
    """What all groups of a second pass have in common. exchange_path: the directory for new logs, None to count only."""

    records: LastRecords
    upper_offset: int
    legacy_horizon_ms: int
    top_keys: int
    exchange_path: str | None
