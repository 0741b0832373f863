"""Checksums of many overlapping ranges of one buffer, each in time that does not grow with the range.

A hostile file can contain a header every few bytes that claims half of the file, and only the checksum shows which of them are wrong. Plan:

1. Once, in order: the checksum of everything up to each block boundary.
2. CRCs are linear: with c(X) the checksum of X and x the polynomial's variable, c(AB) = c(A)·x^(8·|B|) ⊕ c(B).
   So the checksum from one boundary to another follows from those up to each of them by one multiplication.
3. A range is its head up to a boundary, whole blocks, and its tail; only head and tail are read again.

Polynomials are reflected, as in zlib: the bit of x^0 is the highest.
"""

from array import array
from collections.abc import Callable
from typing import Any

from kseg.segment.kernel.checksum import multiplied

BLOCK_BYTES = 16 * 1024
_ONE = 1 << 31
_BLOCK_SQUARINGS = (8 * BLOCK_BYTES).bit_length() - 1
assert 1 << _BLOCK_SQUARINGS == 8 * BLOCK_BYTES


class RangeChecksum:
    """view: the whole buffer. polynomial: reflected. checksum: the library's function, `(data, value so far)`."""

    def __init__(self, view: memoryview, polynomial: int, checksum: Callable[..., Any]) -> None:
        self._view = view
        self._polynomial = polynomial
        self._checksum = checksum
        self._until = array("I", [0])  # entry k: the checksum of the first k blocks
        self._powers = array("I", [_ONE])  # entry k: x to the power of the bits of k blocks
        self._block_power = _ONE >> 1
        for _ in range(_BLOCK_SQUARINGS):
            self._block_power = multiplied(self._block_power, self._block_power, polynomial)

    def of(self, start: int, end: int) -> int:
        """The checksum of view[start:end], 0 ≤ start ≤ end ≤ len(view)."""
        view, checksum = self._view, self._checksum
        if end - start <= 2 * BLOCK_BYTES:
            return int(checksum(view[start:end]))
        first, last = -(-start // BLOCK_BYTES), end // BLOCK_BYTES
        self._extend_to(last)
        head = checksum(view[start : first * BLOCK_BYTES])
        moved = multiplied(self._powers[last - first], head ^ self._until[first], self._polynomial)
        return int(checksum(view[last * BLOCK_BYTES : end], self._until[last] ^ moved))

    def _extend_to(self, block: int) -> None:
        for known in range(len(self._until), block + 1):
            data = self._view[(known - 1) * BLOCK_BYTES : known * BLOCK_BYTES]
            self._until.append(self._checksum(data, self._until[known - 1]))
            self._powers.append(multiplied(self._powers[known - 1], self._block_power, self._polynomial))
