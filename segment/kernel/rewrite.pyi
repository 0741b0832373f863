from collections.abc import Callable

from typing_extensions import Buffer

S_OUT: int
S_SPAN_START: int
S_SPAN_END: int
S_POSITION: int
S_ROWS: int
S_AT: int
S_ROW: int
S_BODY_START: int
S_BODY_END: int
S_RECORDS: int
S_TAKEN: int
S_REBUILT: int
S_EMPTIED: int
S_DROPPED: int
S_EMPTIED_LEGACY: int
S_WIDTH: int
P_UPPER: int
P_HORIZON: int
P_SHORT: int
P_PROTECTED: int
P_WIDTH: int
ALL: int
NO_ROOM: int
SPAN_DUE: int
PACK_DUE: int

def clear_tallies(tallies: memoryview, capacity: int, row: int, stop: int) -> int: ...
def emit_rows(
    view: memoryview,
    body: Buffer,
    cells: memoryview,
    capacity: int,
    count: int,
    flags: bytearray,
    batches: memoryview,
    batch_capacity: int,
    stop: int,
    tallies: memoryview,
    params: memoryview,
    protected: memoryview,
    out: bytearray,
    table: memoryview,
    table_capacity: int,
    state: memoryview,
) -> int: ...
def finish_packed(
    end: int,
    batches: memoryview,
    batch_capacity: int,
    tallies: memoryview,
    params: memoryview,
    out: bytearray,
    table: memoryview,
    table_capacity: int,
    state: memoryview,
) -> int: ...
def encode_rows(
    body: Buffer,
    cells: memoryview,
    capacity: int,
    count: int,
    flags: bytearray,
    batches: memoryview,
    batch_capacity: int,
    row: int,
    tallies: memoryview,
    new_ms: int,
    out: bytearray,
    o: int,
) -> int: ...
def move_rows(
    view: memoryview,
    batches: memoryview,
    batch_capacity: int,
    stop: int,
    empties: int,
    tallies: memoryview,
    params: memoryview,
    protected: memoryview,
    out: bytearray,
    table: memoryview,
    table_capacity: int,
    state: memoryview,
) -> int: ...
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
