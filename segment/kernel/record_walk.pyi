from typing_extensions import Buffer

ROW: int
NEXT: int
DONE: int
COUNT: int
ERROR: int
ERROR_AT: int
STATE_WIDTH: int
OK: int
NEGATIVE_COUNT: int
BAD_STRUCTURE: int
RECORD_TOO_LONG: int
BAD_HEADER_COUNT: int
NEGATIVE_HEADER_NAME: int
SIZE_MISMATCH: int
TOO_FEW_RECORDS: int
BYTES_LEFT_OVER: int
MESSAGE_TOO_SHORT: int
VALUE_BEYOND_MESSAGE: int
INNER_TOO_SMALL: int
INNER_COMPRESSED: int
EMPTY_SET: int
BAD_WRAPPER_OFFSET: int
SENTENCES: tuple[str, ...]
BODY_FULL: int
BODY_DONE: int
BODY_BAD: int

def read_body(
    body: Buffer,
    start: int,
    end: int,
    batches: memoryview,
    batch_capacity: int,
    cells: memoryview,
    capacity: int,
    state: memoryview,
) -> int: ...
def read_plain(
    buf: Buffer,
    last_row: int,
    batches: memoryview,
    batch_capacity: int,
    cells: memoryview,
    capacity: int,
    state: memoryview,
) -> int: ...
def read_bodies(
    body: Buffer,
    bounds: memoryview,
    first: int,
    last_row: int,
    batches: memoryview,
    batch_capacity: int,
    cells: memoryview,
    capacity: int,
    state: memoryview,
) -> int: ...
