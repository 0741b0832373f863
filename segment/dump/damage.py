"""Findings of a dump: what the scanner and the decoder noticed, as catalogue entries with numbers."""

from typing import TYPE_CHECKING

from kseg.segment import columns as C
from kseg.segment.columns import Columns
from kseg.segment.findings import Finding

if TYPE_CHECKING:
    from kseg.segment.scanning.decode import Problem
    from kseg.segment.scanning.scan import Damage


def damage_finding(path: str, damage: "Damage") -> Finding:
    """A damage span as a finding: its range, the offsets that are missing, and where reading goes on."""
    last_lost = None
    if damage.resumed_offset is not None:
        last_lost = damage.resumed_offset - 1
    behind = (
        f"reading goes on at offset {damage.resumed_offset}"
        if damage.resumed_offset is not None
        else "nothing readable follows"
    )
    lost = ""
    if damage.next_offset is not None and last_lost is not None and last_lost >= damage.next_offset:
        lost = f", offsets {damage.next_offset} to {last_lost} are not readable"
    repair = ""
    if damage.intact_length_bytes is not None:
        repair = f"; the batch is whole if its length is read as {damage.intact_length_bytes} bytes"
    return Finding(
        damage.kind,
        path,
        f"{damage.length} bytes at position {damage.position} are no valid batch{lost}; {behind}{repair}",
        position=damage.position,
        length=damage.length,
        first_offset=damage.next_offset,
        last_offset=last_lost,
        numbers={
            "resumed_offset": damage.resumed_offset,
            "claimed_offset": damage.claimed_offset,
            "intact_length_bytes": damage.intact_length_bytes,
        },
    )


def invalid_batch(path: str, table: Columns, row: int) -> Finding:
    """A batch whose length leads on but whose checksum is wrong."""
    position, size = table.at(C.POSITION, row), table.at(C.SIZE, row)
    first, last = table.at(C.BASE_OFFSET, row), table.at(C.LAST_OFFSET, row)
    return Finding(
        "bad-crc",
        path,
        f"the batch of {size} bytes at position {position} (offsets {first} to {last}) does not match its checksum",
        position=position,
        length=size,
        first_offset=first,
        last_offset=last,
        numbers={"stored_crc": table.at(C.CRC, row)},
    )


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
