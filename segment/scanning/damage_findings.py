"""Damage and undecodable batches that the scanner and the decoder found, as findings."""

from typing import TYPE_CHECKING

from kseg.segment import header_tables as C
from kseg.segment.counted import counted, offsets_words
from kseg.segment.diagnosis import InvalidBytes
from kseg.segment.findings import Finding
from kseg.segment.header_tables import Columns
from kseg.segment.scanning.preallocated_tail import PREALLOCATED, is_preallocated

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kseg.segment.diagnosis import FlippedBit
    from kseg.segment.scanning.damage import Damage
    from kseg.segment.scanning.decode import Problem
    from kseg.segment.scanning.lost_offsets import LostRange


UNREADABLE = "unreadable-batch"


def damage_finding(path: str, damage: "Damage") -> Finding:
    """A damage span as a finding: its range, the offsets lost with it, and where reading continues. Zeros that a broker
    preallocated are an INFO."""
    lost = damage.lost
    if damage.kind == "zero-tail" and is_preallocated(path, damage.position + damage.length):
        return _preallocated(path, damage)
    behind = (
        f"reading resumes at offset {damage.resumed_offset}"
        if damage.resumed_offset is not None
        else "no readable data follows"
    )
    repair = ""
    place = f"the {counted(damage.length, 'byte')} at position {damage.position}"
    what = f"{place} cannot all be read" if damage.kind == UNREADABLE else f"no valid batch in {place}"
    if damage.intact_length_bytes is not None:
        repair = f"; the batch is intact if its length is taken as {damage.intact_length_bytes} bytes"
    elif damage.flipped:
        repair = f"; {_explained(damage.flipped)}"
    diagnosis = InvalidBytes(
        lost.records,
        damage.resumed_offset,
        damage.claimed_offset,
        damage.intact_length_bytes,
        damage.flipped,
    )
    return Finding(
        damage.kind,
        path,
        f"{what}{_lost(lost)}; {behind}{repair}",
        position=damage.position,
        length=damage.length,
        first_offset=lost.first_offset,
        last_offset=lost.last_offset,
        numbers=diagnosis.numbers(),
        diagnosis=diagnosis,
    )


def _explained(flipped: "Sequence[FlippedBit]") -> str:
    """What a single inverted bit per batch explains, as a clause."""
    first = flipped[0]
    where = f"with bit {first.bit} of the byte at position {first.position} inverted"
    if len(flipped) == 1:
        return f"the batch is valid {where}"
    return f"{len(flipped)} batches are valid with one bit of each inverted, the first one {where}"


def _preallocated(path: str, damage: "Damage") -> Finding:
    """A finding with the diagnosis of damage, for callers that truncate the log."""
    diagnosis = InvalidBytes(damage.lost.records, None, damage.claimed_offset, None)
    return Finding(
        PREALLOCATED,
        path,
        f"the file was preallocated with {damage.position + damage.length:,} bytes, of which {damage.length:,} are not "
        "written yet",
        position=damage.position,
        length=damage.length,
        first_offset=damage.lost.first_offset,
        last_offset=damage.lost.last_offset,
        numbers=diagnosis.numbers(),
        diagnosis=diagnosis,
    )


def _lost(lost: "LostRange") -> str:
    """The offsets that cannot be read, as a clause."""
    first, last, records = lost.first_offset, lost.last_offset, lost.records
    if first is None or last is None:
        return ""
    if first == last and records is not None and records <= 1:
        return f", offset {first} cannot be read" if records else f", offset {first} held no record"
    if records is None:
        return f", {offsets_words(first, last)} cannot be read"
    return f", {offsets_words(first, last)} ({counted(records, 'record')}) cannot be read"


def transaction_end_lost(
    path: str, producer: tuple[int, int], offsets: tuple[int, int | None], lost: tuple[int, int]
) -> Finding:
    """A transaction that was open at the lost offsets, which may include its marker. producer: id and epoch. offsets: of the
    transaction, the last one as far as known."""
    (producer_id, producer_epoch), (first, last) = producer, lost
    message = (
        f"the transaction of producer {producer_id} from offset {offsets[0]} was open where "
        f"{offsets_words(first, last)} {'is' if first == last else 'are'} lost; if its marker was among "
        "them, the transaction now extends to the next marker or stays open"
    )
    numbers = {
        "producer_id": producer_id,
        "producer_epoch": producer_epoch,
        "lost_first_offset": first,
        "lost_last_offset": last,
    }
    return Finding(
        "transaction-end-lost",
        path,
        message,
        first_offset=offsets[0],
        last_offset=offsets[1],
        numbers=numbers,
    )


def undecodable(path: str, table: Columns, problem: "Problem") -> Finding:
    """A batch whose records cannot (all) be decoded."""
    row = problem.row
    position, size = table.at(C.POSITION, row), table.at(C.SIZE, row)
    first, last = table.at(C.BASE_OFFSET, row), table.at(C.LAST_OFFSET, row)
    return Finding(
        "undecodable-batch",
        path,
        f"the records of the batch at position {position} ({offsets_words(first, last)}) cannot all be decoded: "
        f"{problem.sentence}",
        position=position,
        length=size,
        first_offset=first,
        last_offset=last,
    )


def official_stop(path: str, position: int, exception: str) -> Finding:
    """A finding for the position where DumpLogSegments itself would stop with an exception."""
    return Finding(
        "official-tool-stops",
        path,
        f"Kafka's own dump tool ends with {exception} at position {position}; this dump continues",
        position=position,
        length=0,
        numbers={"exception": exception},
    )


def unnumbered(path: str) -> Finding:
    """A finding for a segment file without an offset in its name."""
    return Finding(
        "bad-file-name", path, "the name holds no offset; Kafka's own dump tool ends with an exception"
    )
