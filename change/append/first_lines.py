"""The first lines of the input of `append`, which determine where a new partition begins."""

from collections.abc import Iterable, Iterator

from kseg.change.append.json_input import Row, base_offset_of_file
from kseg.change.append.options import AppendOptions
from kseg.segment import layout as L

COUNTED = ("batch", "record")  # the types of lines that are appended
Numbered = tuple[int, Row]


def first_lines(rows: Iterator[Numbered]) -> tuple[Numbered, ...]:
    """The lines up to the first batch or record, which determines where a new partition begins."""
    read = []
    for numbered in rows:
        read.append(numbered)
        if numbered[1].get("type", "record") in COUNTED:
            break
    return tuple(read)


def start_offset(first: Iterable[Numbered], options: AppendOptions) -> int | None:
    """Start offset of a new partition: the requested one, otherwise that of the segment or the record in the first line; None if neither
    says it."""
    if options.start_offset is not None:
        return options.start_offset
    for _, row in first:
        if (
            row.get("type", "record") not in COUNTED
            or options.batches.keep_offsets is False
            or "next_offset" in row
        ):
            continue
        segment = base_offset_of_file(row)
        # a batch in an old format has only its last offset, so its segment determines where it begins
        offset = (
            row.get("base_offset", row.get("offset"))
            if row.get("magic", L.MAGIC_V2) == L.MAGIC_V2
            else segment
        )
        if type(offset) is int and 0 <= offset <= L.INT64_MAX:
            return offset if segment is None else min(segment, offset)
    return None
