"""CRC-32C with the instructions of x86 processors, in C, and its fallback in plain Python.

A library call costs as much as the checksum of a kilobyte, and the Python library that accepts mapped files processes eight bytes at a
time. In C in the `.pxd` (this module itself is not compiled; `checksum` includes it):

1. Up to 255 bytes, word by word (SSE 4.2).
2. Longer ranges in four lanes that are folded by carry-less multiplication: lanes of 16 bytes (PCLMULQDQ), or of 64 bytes if the
   processor has AVX-512 and VPCLMULQDQ. The constants are powers of x modulo the polynomial; a test computes them.

`way` is what the processor supports: 0 nothing, 1 lanes of 16 bytes, 2 also lanes of 64. With 0, and in plain Python, a table or the
library is used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from typing import Any


def way() -> int:
    return 0


def crc_of(way: int, data: Any, start: int, end: int) -> int:
    raise NotImplementedError
