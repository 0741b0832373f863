from typing_extensions import Buffer

S_AT: int
S_LAST: int
F_SIZE: int
F_GONE: int
F_TOUCHED: int
LATER: int

def copy_rows(
    cells: memoryview,
    capacity: int,
    count: int,
    hashes: memoryview,
    from_offset: int,
    to_offset: int,
    bound: int,
    state: memoryview,
    out: memoryview,
) -> int: ...
def fold_rows(
    rows: memoryview,
    first: int,
    stop: int,
    slots: memoryview,
    slot_count: int,
    limit: int,
    state: memoryview,
    gone: memoryview,
) -> int: ...
def ask_rows(
    rows: memoryview, count: int, slots: memoryview, slot_count: int, state: memoryview, gone: memoryview
) -> int: ...
def scatter_rows(rows: memoryview, count: int, parts: int, bounds: memoryview, out: memoryview) -> int: ...
def scatter_offsets(
    offsets: memoryview, count: int, bases: memoryview, stretches: int, bounds: memoryview, out: memoryview
) -> int: ...
def mark_offsets(offsets: memoryview, count: int, base: int, bits: Buffer) -> int: ...
def spare_latest(slots: memoryview, slot_count: int, base: int, bits: memoryview) -> int: ...
def look_up(
    size: int,
    cells: memoryview,
    capacity: int,
    count: int,
    base: int,
    bits: Buffer,
    words: memoryview,
) -> int: ...
