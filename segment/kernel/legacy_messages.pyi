from typing_extensions import Buffer

def read_messages(
    buf: Buffer,
    last_row: int,
    batches: memoryview,
    batch_capacity: int,
    cells: memoryview,
    capacity: int,
    state: memoryview,
) -> int: ...
def count_messages(body: Buffer) -> tuple[int, int]: ...
def read_message_set(
    body: Buffer,
    base_offset: int,
    batches: memoryview,
    batch_capacity: int,
    cells: memoryview,
    capacity: int,
    state: memoryview,
) -> int: ...
