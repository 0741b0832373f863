from typing_extensions import Buffer

P_SIZE: int
P_OFFSET: int
P_ROW: int
P_TOUCHED: int
P_STOPPED: int
P_TURNS: int
P_WIDTH: int
MAPPED: int
FULL: int
BAD: int
PENDING: int

def hash_rows(
    body: Buffer, cells: memoryview, capacity: int, count: int, first: int, second: int, hashes: memoryview
) -> int: ...
def put_rows(
    cells: memoryview,
    capacity: int,
    row: int,
    count: int,
    hashes: memoryview,
    start_offset: int,
    slots: memoryview,
    slot_count: int,
    limit: int,
    state: memoryview,
) -> int: ...
def move_slots(slots: memoryview, slot_count: int, larger: memoryview, larger_count: int) -> int: ...
def map_rows(
    body: Buffer,
    bounds: memoryview,
    first_row: int,
    row: int,
    stop: int,
    batches: memoryview,
    capacity: int,
    start_offset: int,
    first: int,
    second: int,
    slots: memoryview,
    slot_count: int,
    limit: int,
    pending: memoryview,
    state: memoryview,
) -> int: ...
