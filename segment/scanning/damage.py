"""A span of bytes that is not a valid batch, and the evidence in its own bytes.

The damaged field may be the length of a batch, so a span is also checked as the batch that it would be with another length.
"""

from kseg.segment import crc
from kseg.segment import layout as L
from kseg.segment.diagnosis import FlippedBit
from kseg.segment.scanning.lost_offsets import UNKNOWN, LostRange
from kseg.segment.values import dataclass


@dataclass(frozen=True, slots=True)
class Damage:
    """A span of bytes that is not a valid batch.

    kind: id in the catalogue of findings (torn-tail, zero-tail, zero-filled, bad-crc, bad-length, bad-magic, foreign-bytes,
    unreadable-batch). position, length: the span. next_offset: the offset expected at its start (None if no batch precedes it).
    resumed_offset: base offset of the valid batch found after it, None at the end of the file. claimed_offset: the first 8 bytes as an
    offset, None if there are fewer. intact_length_bytes: with this value in its length field the batch at `position` is valid (only that
    field is damaged). lost: the offsets lost with the damage. first_behind: the first offset after it, None if unknown. flipped: for each
    batch at the start of the span that is valid with one bit inverted, this bit (`flipped_bits`).
    """

    kind: str
    position: int
    length: int
    next_offset: int | None
    resumed_offset: int | None
    claimed_offset: int | None
    intact_length_bytes: int | None = None
    lost: LostRange = UNKNOWN
    first_behind: int | None = None
    flipped: tuple[FlippedBit, ...] = ()


def end_by_length_field(view: memoryview, position: int, end: int) -> int | None:
    """The end according to the length field at `position`; None if the length is not plausible."""
    if position + L.ENTRY_OVERHEAD > end:
        return None
    size = int.from_bytes(view[position + 8 : position + 12], "big", signed=True)
    return None if size < L.MIN_LEGACY_SIZE_FIELD else position + L.ENTRY_OVERHEAD + size


def is_valid_as_magic_2(view: memoryview, position: int, stop: int) -> bool:
    """Whether position…stop is a batch of magic 2 except for its magic byte."""
    return view[position + L.MAGIC_POSITION] != L.MAGIC_V2 and _matches_crc32c(view, position, stop)


def is_intact_when_cut_at(view: memoryview, position: int, stop: int) -> bool:
    """Whether position…stop is a batch or message with a valid checksum (which does not cover the length)."""
    if stop - position < L.ENTRY_OVERHEAD + L.MIN_LEGACY_SIZE_FIELD:
        return False
    if view[position + L.MAGIC_POSITION] >= L.MAGIC_V2:
        return _matches_crc32c(view, position, stop)
    crc_at = position + L.ENTRY_OVERHEAD
    stored = int.from_bytes(view[crc_at : crc_at + 4], "big")
    return crc.crc32(view[position + L.MAGIC_POSITION : stop]) == stored


def _matches_crc32c(view: memoryview, position: int, stop: int) -> bool:
    if not L.BATCH_HEADER <= stop - position <= L.INT32_MAX:
        return False
    crc_at = position + L.CRC_POSITION
    stored = int.from_bytes(view[crc_at : crc_at + 4], "big")
    return crc.crc32c(view[position + L.ATTRIBUTES_POSITION : stop]) == stored


def is_plausible_start(view: memoryview, position: int, end: int, lowest: int) -> bool:
    """Whether a batch could begin here whose offset is the expected one, `lowest`, or a higher one."""
    if position + L.HEADER_TO_MAGIC > end or view[position + L.MAGIC_POSITION] > L.MAGIC_V2:
        return False
    offset = int.from_bytes(view[position : position + 8], "big", signed=True)
    return lowest <= offset <= lowest + L.INT32_MAX


def kind_of_tail(view: memoryview, position: int, end: int, by_length: int | None, lowest: int) -> str:
    """The kind of damage that no valid batch follows. by_length: the end according to its length field. lowest: the offset expected
    there."""
    if by_length is not None and by_length <= end:
        return "bad-crc" if is_plausible_start(view, position, end, lowest) else "foreign-bytes"
    if end - position <= L.HEADER_TO_MAGIC:
        return "torn-tail" if _is_offset_like(view, position, end, lowest) else "foreign-bytes"
    if not is_plausible_start(view, position, end, lowest):
        return "foreign-bytes"
    return "torn-tail" if by_length is not None else "bad-length"


def _is_offset_like(view: memoryview, position: int, end: int, expected: int) -> bool:
    """Whether a tail too short for a header begins like the next offset."""
    head = bytes(view[position : min(position + 8, end)])
    if len(head) < 8:
        return expected.to_bytes(8, "big", signed=True).startswith(head)
    return expected <= int.from_bytes(head, "big", signed=True) <= expected + L.INT32_MAX
