from typing_extensions import Buffer

def wanted_until(batches: memoryview, capacity: int, row: int, count: int, bounds: memoryview) -> int: ...
def keep_rows(cells: memoryview, capacity: int, count: int, bounds: memoryview) -> int: ...
def rows_within(
    cells: memoryview, capacity: int, first: int, stop: int, keys: bool, values: bool, room: memoryview
) -> int: ...
def gather_bytes(
    body: Buffer,
    cells: memoryview,
    capacity: int,
    first: int,
    stop: int,
    field: int,
    out: memoryview,
    filled: int,
    ends: memoryview,
    flags: memoryview,
    at: int,
) -> int: ...
def measure_headers(
    body: Buffer, cells: memoryview, capacity: int, first: int, stop: int, most: int, sums: memoryview
) -> int: ...
def gather_headers(
    body: Buffer,
    cells: memoryview,
    capacity: int,
    first: int,
    stop: int,
    ends: memoryview,
    names: memoryview,
    name_ends: memoryview,
    values: memoryview,
    value_ends: memoryview,
    value_flags: memoryview,
) -> int: ...
def gather_longs(
    cells: memoryview, capacity: int, first: int, stop: int, field: int, out: memoryview, at: int
) -> int: ...
def gather_ints(
    cells: memoryview, capacity: int, first: int, stop: int, field: int, out: memoryview, at: int
) -> int: ...
def gather_times(
    cells: memoryview, capacity: int, first: int, stop: int, out: memoryview, at: int
) -> int: ...
def spread_longs(
    batches: memoryview,
    batch_capacity: int,
    cells: memoryview,
    capacity: int,
    first: int,
    stop: int,
    field: int,
    out: memoryview,
    at: int,
) -> int: ...
def spread_ints(
    batches: memoryview,
    batch_capacity: int,
    cells: memoryview,
    capacity: int,
    first: int,
    stop: int,
    field: int,
    out: memoryview,
    at: int,
) -> int: ...
def spread_time_types(
    batches: memoryview,
    batch_capacity: int,
    cells: memoryview,
    capacity: int,
    first: int,
    stop: int,
    out: memoryview,
    at: int,
) -> int: ...
def spread_codecs(
    batches: memoryview,
    batch_capacity: int,
    cells: memoryview,
    capacity: int,
    first: int,
    stop: int,
    out: memoryview,
    at: int,
) -> int: ...
def spread_flags(
    batches: memoryview,
    batch_capacity: int,
    cells: memoryview,
    capacity: int,
    first: int,
    stop: int,
    bit: int,
    flags: memoryview,
    at: int,
) -> int: ...
def spread_validity(
    batches: memoryview,
    batch_capacity: int,
    cells: memoryview,
    capacity: int,
    first: int,
    stop: int,
    flags: memoryview,
    at: int,
) -> int: ...
def spread_checksums(
    batches: memoryview,
    batch_capacity: int,
    cells: memoryview,
    capacity: int,
    first: int,
    stop: int,
    out: memoryview,
    at: int,
) -> int: ...
