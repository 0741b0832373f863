from typing_extensions import Buffer

SLOT_WIDTH: int
P_SIZE: int
P_OFFSET: int
P_ROW: int
P_TOUCHED: int
P_STOPPED: int
P_WIDTH: int
MAPPED: int
FULL: int
BAD: int
PENDING: int
T_RECORDS: int
T_KEPT: int
T_TOMBSTONES: int
T_MAX_TIMESTAMP: int
T_FIRST_TIMESTAMP: int
T_FIRST_OFFSET: int
T_LAST_OFFSET: int
T_BEGIN: int
T_WIDTH: int
J_INVALID: int
J_TOMBSTONES_KEPT: int
J_TOMBSTONES_REMOVED: int
J_LIVE: int
J_SUPERSEDED: int
J_SUPERSEDED_BYTES: int
J_TOUCHED: int
J_WIDTH: int

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
def map_rows(
    body: Buffer,
    is_packed: bool,
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
def judge_rows(
    cells: memoryview,
    capacity: int,
    count: int,
    hashes: memoryview,
    slots: memoryview,
    slot_count: int,
    latest_offset: int,
    now_ms: int,
    keeps_legacy: int,
    batches: memoryview,
    batch_capacity: int,
    flags: bytearray,
    tallies: memoryview,
    totals: memoryview,
) -> int: ...
def tally_keys(
    cells: memoryview,
    capacity: int,
    count: int,
    hashes: memoryview,
    flags: bytearray,
    batches: memoryview,
    batch_capacity: int,
    segment: int,
    sketch: memoryview,
    places: int,
) -> int: ...
