COUNTED_FROM: int
MAX_TIMESTAMP: int
OFFSET_OF_MAX: int
END_POSITION: int
OFFSET_ENTRIES: int
LAST_OFFSET: int
TIME_ENTRIES: int
LAST_TIMESTAMP: int
LAST_TIME_OFFSET: int
NEW_OFFSET_ENTRIES: int
NEW_TIME_ENTRIES: int
WIDTH: int

def index_rows(
    cells: memoryview,
    capacity: int,
    row: int,
    stop: int,
    base: int,
    interval: int,
    most_offsets: int,
    most_times: int,
    offsets: bytearray,
    times: bytearray,
    state: memoryview,
) -> int: ...
