"""How well the offsets of a batch fit its position, if its base offset was altered: the CRC does not cover that field.

The tighter the fit, the stronger the hypothesis: a gap of exactly the number of offsets; a value that touches an adjacent batch and
differs in one bit; one that differs in one bit; any gap that is wide enough.
"""

from collections.abc import Iterator

from kseg.segment.values import dataclass

CERTAIN = 6
EXACT_BIT, EXACT, TOUCHING_BIT, BIT, FITS, NONE = 5, 4, 3, 2, 1, 0


@dataclass(frozen=True, slots=True)
class Fit:
    """How well a hypothesis fits. value: the probable value, None if several fit equally well."""

    strength: int
    value: int | None = None


def one_bit_away(found: int, bits: int) -> Iterator[int]:
    """Every signed value of this many bits that differs from `found` in one bit."""
    for bit in range(bits - 1):
        yield found ^ (1 << bit)
    yield found ^ -(1 << (bits - 1))


def flipped_bit(found: int, probable: int | None, bits: int) -> int | None:
    """The number of the single bit in which the two differ, None if they differ in none or several."""
    if probable is None:
        return None
    difference = (found ^ probable) & ((1 << bits) - 1)
    return difference.bit_length() - 1 if difference and difference & (difference - 1) == 0 else None


def fit_offset(found: int, width: int, lower: int, upper: int | None) -> Fit:
    """How well a batch of `width` offsets with a wrong first offset `found` fits above `lower` and below `upper`
    (None = nothing is known to follow; then only a value directly after `lower` counts)."""
    if upper is not None and upper - lower - 1 < width:
        return Fit(NONE)
    fitting = [v for v in one_bit_away(found, 64) if v > lower and (upper is None or v + width <= upper)]
    if upper is not None and upper - lower - 1 == width:
        return Fit(EXACT_BIT if lower + 1 in fitting else EXACT, lower + 1)
    for touching in (lower + 1, None if upper is None else upper - width):
        if touching in fitting:
            return Fit(TOUCHING_BIT, touching)
    if upper is None:
        return Fit(NONE)
    if fitting:
        return Fit(BIT, fitting[0] if len(fitting) == 1 else None)
    return Fit(FITS)
