from collections.abc import Callable

def seal_small(
    out: bytearray,
    table: memoryview,
    table_capacity: int,
    count: int,
    limit_bytes: int,
    castagnoli: memoryview,
) -> int: ...
def seal_large(
    view: memoryview,
    out: bytearray,
    table: memoryview,
    table_capacity: int,
    count: int,
    castagnoli: Callable[[memoryview], int],
) -> int: ...
