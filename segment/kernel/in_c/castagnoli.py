"""CRC-32C by the instructions that x86 processors have for it: what only C can say, and what plain Python says instead.

A call into a library costs as much as the checksum of a kilobyte, and the one for Python that takes a mapped file sums eight bytes at a time.
In C in the `.pxd` (this module itself is not compiled; `checksum` takes it in):

1. Up to 255 bytes, word after word (SSE 4.2).
2. More of them in four lanes that are moved on by multiplication without carries: of 16 bytes (PCLMULQDQ), or of 64 bytes where the
   processor has AVX-512 and VPCLMULQDQ. The constants are powers of x modulo the polynomial; `tests` computes them.

`way` says what there is: 0 nothing, 1 lanes of 16 bytes, 2 also of 64. Other processors use a table or the library, as does plain Python.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from typing import Any


def way() -> int:
    return 0


def crc_of(way: int, data: Any, start: int, end: int) -> int:
    raise NotImplementedError
