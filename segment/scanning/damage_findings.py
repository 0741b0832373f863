"""Findings of a dump: what the scanner and the decoder noticed, as catalogue entries with numbers."""

from typing import TYPE_CHECKING

from kseg.segment import header_tables as C
from kseg.segment.findings import Finding
from kseg.segment.header_tables import Columns

if TYPE_CHECKING:
    from kseg.segment.scanning.decode import Problem
    from kseg.segment.scanning.lost_offsets import LostRange
    from kseg.segment.scanning.scan import Damage


UNREADABLE = "unreadable-batch"


def damage_finding(path: str, damage: "Damage") -> Finding:
    """A damage span as a finding: its range, the offsets that it stands for, and where reading goes on."""
    lost = damage.lost
    behind = (
        f"reading goes on at offset {damage.resumed_offset}"
        if damage.resumed_offset is not None
        else "nothing readable follows"
    )
    repair = ""
    what = "hold bytes that cannot be read" if damage.kind == UNREADABLE else "are no valid batch"
    if damage.intact_length_bytes is not None:
        repair = f"; the batch is whole if its length is read as {damage.intact_length_bytes} bytes"
    return Finding(
        damage.kind,
        path,
        f"{damage.length} bytes at position {damage.position} {what}{_lost(lost)}; {behind}{repair}",
        position=damage.position,
        length=damage.length,
        first_offset=lost.first_offset,
        last_offset=lost.last_offset,
        numbers={
            "records": lost.records,
            "resumed_offset": damage.resumed_offset,
            "claimed_offset": damage.claimed_offset,
            "intact_length_bytes": damage.intact_length_bytes,
        },
    )


def _lost(lost: "LostRange") -> str:
    """Which offsets cannot be read, in words."""
    first, last, records = lost.first_offset, lost.last_offset, lost.records
    if first is None or last is None:
        return ""
    if first == last and records is not None and records <= 1:
        return f", offset {first} is not readable" if records else f", offset {first} held no record"
    if records is None:
        return f", offsets {first} to {last} are not readable"
    named = f"{records} record" if records == 1 else f"{records} records"
    return f", offsets {first} to {last} ({named}) are not readable"


def undecodable(path: str, table: Columns, problem: "Problem") -> Finding:
    """A batch whose records cannot (all) be decoded."""
    row = problem.row
    position, size = table.at(C.POSITION, row), table.at(C.SIZE, row)
    first, last = table.at(C.BASE_OFFSET, row), table.at(C.LAST_OFFSET, row)
    return Finding(
        "undecodable-batch",
        path,
        f"the records of the batch at position {position} (offsets {first} to {last}) cannot all be decoded: "
        f"{problem.sentence}",
        position=position,
        length=size,
        first_offset=first,
        last_offset=last,
    )


def official_stop(path: str, position: int, exception: str) -> Finding:
    """Where DumpLogSegments itself would have ended with an exception."""
    return Finding(
        "official-tool-stops",
        path,
        f"Kafka's own dump tool ends with {exception} at position {position}; this dump goes on",
        position=position,
        length=0,
        numbers={"exception": exception},
    )


def unnumbered(path: str) -> Finding:
    """A file of a segment whose name holds no offset."""
    return Finding(
        "bad-file-name", path, "the name holds no offset; Kafka's own dump tool ends with an exception"
    )
