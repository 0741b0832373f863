from typing_extensions import Buffer

SEEN_LAST: int
SEEN_EPOCH: int
SEEN_REASONS: int
SEEN_WIDTH: int
OFFSET: int
EPOCH: int
COUNT: int
ATTRIBUTES: int
MAGIC: int

T_LAST: int
T_CONTIGUOUS: int
T_GAPS: int
T_MISSING: int
T_GAP_POSITION: int
T_GAP_OFFSET: int
T_RECORDS: int
T_WRAPPERS: int
T_MAX_TIMESTAMP: int
T_FUTURE: int
T_FUTURE_POSITION: int
T_FUTURE_OFFSET: int
T_FUTURE_TIMESTAMP: int
T_MAGICS: int
T_CLEANED: int
T_PRODUCERS: int
T_WIDTH: int

I_SLOT: int
I_ROW: int
I_SEEN: int
I_FORMER: int
I_FORMER_LAST: int
I_EXACT: int
I_FIRST: int
I_INNER: int
I_BEYOND: int
I_FORMER_SLOT: int
I_WIDTH: int
IN_ORDER: int
MORE: int
UNSORTED: int
NO_BATCH: int
WRONG_OFFSET: int
FORMER_TOO_HIGH: int
WRONG_TIMESTAMP: int
OLD_TIMESTAMP: int

R_BATCH: int
R_OFFSET: int
R_MAX: int
R_RULE: int
R_MISSED: int
R_STATE_WIDTH: int
RECORDS_DONE: int
OUTSIDE: int
NOT_INCREASING: int
BAD_MESSAGE_CRC: int
MAX_TIMESTAMP: int

def next_suspect(cells: memoryview, capacity: int, row: int, count: int, state: memoryview) -> int: ...
def tally(cells: memoryview, capacity: int, row: int, count: int, now: int, state: memoryview) -> int: ...
def next_producer(cells: memoryview, capacity: int, row: int, count: int) -> int: ...
def steady_run(cells: memoryview, capacity: int, row: int, count: int) -> int: ...
def next_epoch(cells: memoryview, capacity: int, row: int, count: int, epoch: int) -> int: ...
def next_offset_entry(
    index: Buffer, slots: int, base: int, cells: memoryview, capacity: int, stop: int, state: memoryview
) -> int: ...
def next_time_entry(
    index: Buffer, slots: int, base: int, cells: memoryview, capacity: int, stop: int, state: memoryview
) -> int: ...
def next_record(
    records: memoryview,
    capacity: int,
    at: int,
    count: int,
    batches: memoryview,
    batch_capacity: int,
    state: memoryview,
) -> int: ...
def max_reached(batches: memoryview, capacity: int, row: int, greatest: int) -> int: ...
