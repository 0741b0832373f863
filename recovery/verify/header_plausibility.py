"""Decide which of two adjacent batches has a corrupt header. The CRC does not cover base offset and leader epoch, so only adjacent batches
can tell.

The batches of a log cover increasing, disjoint offset ranges, and leader epochs never decrease. One altered field breaks
that between two batches, and either of them can be the corrupt one. For a pair (previous, current) that breaks it:

1. Suppose `previous` is altered: would a batch with its number of offsets fit between the one before it and `current`?
2. Suppose `current` is altered: would it fit between `previous` and its successor (or the base offset of the next segment)?
3. The tighter the fit, the stronger the hypothesis: a gap of exactly this number of offsets; a value that touches an
   adjacent batch and differs in one bit; one that differs in one bit; any gap that is wide enough. Legal gaps exist, so
   width alone decides nothing there. When both are equally strong, or neither fits, the pair is reported as out of order.
   An offset index entry for one of the two decides: it confirms the batch, or has the original value.
4. A batch that is a copy of the previous one was duplicated; one that exactly fills the gap before the previous one was moved.
5. Leader epochs likewise: without the altered one the epochs around it do not decrease; the leader-epoch checkpoint
   decides what the order cannot (an increase for a single batch that the checkpoint does not have).
6. The last batch of the log has no successor: a gap before it counts only when one flipped bit closes it and side
   files confirm that (`SideFileEvidence`), or nothing else in the segment has gaps and the sequence of its producer continues.

The altered value is replaced in the table by the probable one, so that no index or adjacent batch is reported because of it.
"""

from collections.abc import Callable

from kseg.segment import header_tables as C
from kseg.segment import layout as L
from kseg.segment.diagnosis import AlteredBaseOffset, AlteredLeaderEpoch
from kseg.segment.findings import Finding
from kseg.segment.header_tables import Columns
from kseg.segment.scanning import offset_fit as F
from kseg.segment.scanning.offset_fit import Fit, flipped_bit, one_bit_away
from kseg.segment.sidecar.leader_epochs import EpochHistory
from kseg.segment.values import dataclass

# Without other evidence, an epoch that only the last batch has is rejected if it rises by more than this.
BELIEVABLE_EPOCH_RISE = 1024


@dataclass(frozen=True, slots=True)
class SideFileEvidence:
    """Evidence from side files about the last segment. last_offsets: offsets at which a batch ends according to indexes,
    snapshots and checkpoints. epochs: the leader-epoch checkpoint, None if there is none or it is not trusted."""

    last_offsets: frozenset[int] = frozenset()
    epochs: EpochHistory | None = None


NO_EVIDENCE = SideFileEvidence()


def no_index(_position: int) -> int | None:
    """An index that has no entries."""
    return None


@dataclass(frozen=True, slots=True)
class PreviousBatch:
    """The leader epoch of the last batch of the previous segment. epoch_before: that of the batch before it."""

    path: str
    position: int
    offsets: tuple[int, int]
    epoch: int
    epoch_before: int


@dataclass(frozen=True, slots=True)
class HeaderContext:
    """What the checks of a segment must know about it.

    next_base: base offset of the next segment, None for the last. previous_epoch: the leader epoch before the first batch, -1 = unknown.
    indexed: the offset that the offset index has for a batch position. previous: the last batch of the previous segment, None if it is
    damaged or has no epoch.
    """

    path: str
    base_offset: int
    next_base: int | None = None
    is_last: bool = True
    previous_epoch: int = L.NO_LEADER_EPOCH
    previous: PreviousBatch | None = None
    evidence: SideFileEvidence = NO_EVIDENCE
    indexed: Callable[[int], int | None] = no_index


def fit_epoch(found: int, lower: int, upper: int | None) -> Fit:
    """How well an altered epoch `found` fits between the adjacent epochs (lower -1, upper None = unknown)."""
    if upper is not None and lower > upper:
        return Fit(F.NONE)
    fitting = [v for v in one_bit_away(found, 32) if v >= max(lower, 0) and (upper is None or v <= upper)]
    if upper is not None and lower == upper:
        return Fit(F.EXACT_BIT if lower in fitting else F.EXACT, lower)
    for neighbour in (lower, upper):
        if neighbour is not None and neighbour >= 0 and neighbour in fitting:
            return Fit(F.TOUCHING_BIT, neighbour)
    if upper is None:
        return Fit(F.NONE)
    return Fit(F.BIT, fitting[0]) if len(fitting) == 1 else Fit(F.FITS)


def first_of(table: Columns, row: int) -> int:
    """The first offset of a batch according to its header: a message of an old format has only its last offset."""
    return table.at(C.BASE_OFFSET if table.at(C.MAGIC, row) >= L.MAGIC_V2 else C.LAST_OFFSET, row)


def width_of(table: Columns, row: int) -> int:
    return table.at(C.LAST_OFFSET, row) - first_of(table, row) + 1


def is_copy(table: Columns, row: int) -> bool:
    """Whether the batch repeats the one before it."""
    return all(
        table.at(field, row) == table.at(field, row - 1) for field in (C.BASE_OFFSET, C.SIZE, C.CRC, C.MAGIC)
    )


def goes_on(table: Columns, row: int) -> bool | None:
    """Whether the batch continues the sequence of the previous one; None when their producers differ."""
    for field in (C.PRODUCER_ID, C.PRODUCER_EPOCH):
        if table.at(field, row) != table.at(field, row - 1) or table.at(field, row) < 0:
            return None
    if table.at(C.BASE_SEQUENCE, row) < 0 or table.at(C.BASE_SEQUENCE, row - 1) < 0:
        return None
    expected = L.increment_sequence(table.at(C.BASE_SEQUENCE, row - 1), L.as_int32(width_of(table, row - 1)))
    return expected == table.at(C.BASE_SEQUENCE, row)


def set_offset(table: Columns, row: int, first: int) -> None:
    """Treat the batch as if it began at `first`."""
    width = width_of(table, row)
    table.cells[C.BASE_OFFSET * table.capacity + row] = L.as_int64(first)
    table.cells[C.LAST_OFFSET * table.capacity + row] = L.as_int64(first + width - 1)


def altered_offset(path: str, table: Columns, row: int, probable: int | None, why: str) -> Finding:
    """Report the altered base offset; call it before `set_offset`."""
    found, width = first_of(table, row), width_of(table, row)
    return altered_base_offset(path, table.at(C.POSITION, row), found, width, probable, why)


def altered_base_offset(
    path: str, position: int, found: int, width: int, probable: int | None, why: str
) -> Finding:
    """The finding about a batch of `width` offsets."""
    bit = flipped_bit(found, probable, 64)
    diagnosis = AlteredBaseOffset(found, probable, bit)
    return Finding(
        "altered-base-offset",
        path,
        f"the batch at position {position} claims base offset {found}, but {why}{_guess(probable, bit)}",
        position=position,
        length=8,
        first_offset=probable,
        last_offset=None if probable is None else probable + width - 1,
        numbers=diagnosis.numbers(),
        diagnosis=diagnosis,
    )


def _guess(probable: int | None, bit: int | None) -> str:
    flipped = "" if bit is None else f" (bit {bit} is flipped)"
    return "" if probable is None else f"; it was probably {probable}{flipped}"


def altered_epoch(
    path: str,
    position: int,
    found: int,
    probable: int | None,
    why: str,
    offsets: tuple[int, int] | None = None,
) -> Finding:
    bit = flipped_bit(found, probable, 32)
    diagnosis = AlteredLeaderEpoch(found, probable, bit)
    return Finding(
        "altered-leader-epoch",
        path,
        f"the batch at position {position} claims leader epoch {found}, but {why}{_guess(probable, bit)}",
        position=position + L.ENTRY_OVERHEAD,
        length=4,
        first_offset=offsets[0] if offsets else None,
        last_offset=offsets[1] if offsets else None,
        numbers=diagnosis.numbers(),
        diagnosis=diagnosis,
    )
