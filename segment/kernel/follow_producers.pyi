EPOCH: int
LAST_SEQUENCE: int
LAST_OFFSET: int
OFFSET_DELTA: int
TIMESTAMP: int
COORDINATOR_EPOCH: int
IS_OPEN: int
FIRST_OFFSET: int
WIDTH: int
S_LAST: int
S_WIDTH: int

def follow(
    cells: memoryview,
    capacity: int,
    row: int,
    stop: int,
    slot_of: dict[int, int],
    slots: memoryview,
    room: int,
    state: memoryview,
) -> int: ...
