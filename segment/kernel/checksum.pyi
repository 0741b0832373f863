from array import array
from collections.abc import Callable

from typing_extensions import Buffer

CASTAGNOLI: int
IEEE: int

def make_tables(polynomial: int) -> array[int]: ...
def crc_of(buf: Buffer, start: int, end: int, tables: Buffer) -> int: ...
def judge_small(
    buf: Buffer,
    cells: memoryview,
    capacity: int,
    count: int,
    limit_bytes: int,
    castagnoli: Buffer,
    ieee: Buffer,
) -> int: ...
def judge_large(
    view: memoryview,
    cells: memoryview,
    capacity: int,
    count: int,
    castagnoli: Callable[[memoryview], int],
    ieee: Callable[[memoryview], int],
) -> int: ...
