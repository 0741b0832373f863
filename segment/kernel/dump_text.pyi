from typing_extensions import Buffer

DEEP: int
CONTENTS: int
SKIP_METADATA: int
ESCAPE: int
ROW: int
RECORD: int
STATE_WIDTH: int
BATCH_ROOM: int

def format_lines(
    buf: Buffer,
    batches: memoryview,
    batch_capacity: int,
    last_row: int,
    cells: memoryview,
    capacity: int,
    count: int,
    flags: int,
    out: Buffer,
    start: int,
    state: memoryview,
) -> int: ...
