from typing_extensions import Buffer

AUTO: int
TEXT: int

def format_json(
    buf: Buffer,
    batches: memoryview,
    batch_capacity: int,
    last_row: int,
    cells: memoryview,
    capacity: int,
    count: int,
    mode: int,
    file: Buffer,
    out: Buffer,
    start: int,
    state: memoryview,
) -> int: ...
