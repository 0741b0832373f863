"""Batches that one inverted bit damaged: find the bit by the checksum.

A CRC is linear: the stored checksum and that of the damaged bytes differ by a value that depends only on which bits differ, not on the
contents. For a single bit at distance d from the end of the checksummed bytes it is Z^d(1), where Z passes a zero bit through the
register. So the bit is a discrete logarithm:

1. Difference of the two checksums. If a single bit of it is set, the stored checksum itself was damaged.
2. The first STEPS powers of Z are in a table. Undo STEPS zero bits at a time (Z^-STEPS, as four tables of 256 values), until the
   difference is in the table: at most `bits / STEPS` steps.
3. Invert the bit in a copy and decode the records: they must be complete, in the number that the header declares.

All powers differ up to 2^31 − 1 bits (CRC-32C) or 2^32 − 1 bits (CRC-32), so at most one bit explains a difference. Bytes that are
damaged in more than one bit are explained by a single one with a probability of up to `bits / 2^31`, 6 in 100,000 for a batch of 16 KiB
(less where the contents are compressed, as they must be decoded). That is why a repair makes use of it only on request.
"""

from collections.abc import Iterator
from functools import lru_cache
from itertools import islice

from kseg.segment import crc
from kseg.segment import header_tables as C
from kseg.segment import layout as L
from kseg.segment.diagnosis import FlippedBit
from kseg.segment.header_tables import Columns
from kseg.segment.scanning.damage import end_by_length_field, is_intact_when_cut_at
from kseg.segment.scanning.decode import Decoder
from kseg.segment.scanning.table_walk import TableWalk

STEPS = 4096
# In a larger batch, whatever the damage, the chance that inverting one of its bits matches the CRC exceeds 6 %: 2^27 bits share the 2^31
# syndromes that an odd number of inverted bits can have.
MAX_BATCH_BYTES = 16 << 20
MAX_BATCHES = 1000
_CRC_BITS = 32
_RECORDS_PER_TABLE = 1024


def flipped_bits_in(view: memoryview, position: int, stop: int) -> tuple[FlippedBit, ...]:
    """For each batch in position … stop that is valid with one bit inverted, that bit. The range starts with a batch; the following
    ones are examined as long as each is valid, or only one bit away from being valid."""
    return tuple(islice(_flipped_bits(view, position, stop), MAX_BATCHES))


def _flipped_bits(view: memoryview, position: int, stop: int) -> Iterator[FlippedBit]:
    end = end_by_length_field(view, position, stop)
    while end is not None and end <= stop:
        if not is_intact_when_cut_at(view, position, end):
            found = _flipped_bit(view, position, end)
            if found is None:
                return
            yield found
        position, end = end, end_by_length_field(view, end, stop)


def _flipped_bit(view: memoryview, position: int, end: int) -> FlippedBit | None:
    if end - position > MAX_BATCH_BYTES:
        return None
    magic = view[position + L.MAGIC_POSITION]
    if magic == L.MAGIC_V2 and end - position >= L.BATCH_HEADER:
        crc_at, start, register = position + L.CRC_POSITION, position + L.ATTRIBUTES_POSITION, crc.CASTAGNOLI
        computed = crc.crc32c(view[start:end])
    elif magic < L.MAGIC_V2 and end - position >= L.ENTRY_OVERHEAD + L.MIN_LEGACY_SIZE_FIELD:
        crc_at, start, register = position + L.ENTRY_OVERHEAD, position + L.MAGIC_POSITION, _CRC32
        computed = crc.crc32(view[start:end])
    else:
        return None
    difference = computed ^ int.from_bytes(view[crc_at : crc_at + 4], "big")
    if not difference:
        return None
    if difference & (difference - 1) == 0:  # in the checksum itself
        byte, bit = divmod(difference.bit_length() - 1, 8)
        flipped = FlippedBit(crc_at + 3 - byte, bit)
    else:
        distance = _register(register).distance(difference, 8 * (end - start))
        if distance is None:
            return None
        byte, bit = divmod(8 * (end - start) - distance, 8)
        flipped = FlippedBit(start + byte, bit)
    return flipped if _is_sound(_inverted(view, position, end, flipped)) else None


def _inverted(view: memoryview, position: int, end: int, flipped: FlippedBit) -> bytearray:
    """A copy of position … end with that bit inverted."""
    copy = bytearray(view[position:end])
    copy[flipped.position - position] ^= 1 << flipped.bit
    return copy


def _is_sound(batch: bytearray) -> bool:
    """Whether it is one batch of which all records can be decoded."""
    view, table = memoryview(batch), Columns(C.BATCH_WIDTH, 1)
    TableWalk(view).fill(table, 0, len(batch))
    if not table.count or table.at(C.VALID, 0) != 1 or table.at(C.SIZE, 0) != len(batch):
        return False
    records = 0
    for chunk in Decoder(view, capacity=_RECORDS_PER_TABLE).chunks(table):
        if chunk.problem is not None:
            return False
        records += chunk.records.count
    return table.at(C.COUNT, 0) in (records, -1)  # -1: a compressed set of an old format


# --- the logarithm

_CRC32 = 0xEDB88320  # zlib's polynomial, bits reversed as in the checksum


class _Register:
    """The register of a CRC with this polynomial, and the powers of Z."""

    def __init__(self, polynomial: int) -> None:
        self._powers: dict[int, int] = {}
        value = 1
        for power in range(1, STEPS + 1):
            value = value >> 1 ^ (polynomial if value & 1 else 0)
            self._powers[value] = power
        # 2^31 comes from a register whose lowest bit was set: only that adds the polynomial
        top = ((1 << _CRC_BITS - 1) ^ polynomial) << 1 | 1
        undo = [*(1 << bit + 1 for bit in range(_CRC_BITS - 1)), top]
        for _ in range(STEPS.bit_length() - 1):
            undo = [crc.through(undo, column) for column in undo]
        self._tables = [
            [crc.through(undo, byte << shift) for byte in range(256)] for shift in range(0, _CRC_BITS, 8)
        ]

    def distance(self, difference: int, bits: int) -> int | None:
        """The d in 1 … bits with Z^d(1) = difference; None if there is none."""
        powers, (first, second, third, fourth) = self._powers, self._tables
        for undone in range(0, bits, STEPS):
            power = powers.get(difference)
            if power is not None:
                return undone + power if undone + power <= bits else None
            difference = (
                first[difference & 255]
                ^ second[difference >> 8 & 255]
                ^ third[difference >> 16 & 255]
                ^ fourth[difference >> 24]
            )
        return None


@lru_cache
def _register(polynomial: int) -> _Register:
    return _Register(polynomial)
