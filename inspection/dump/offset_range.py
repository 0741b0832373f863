"""Dump a large log in pieces (`kseg.jobs.log_splitting`), in tasks that see the file but not each other.

A piece is printed only when its length fields lead from its first batch exactly to its end and it has no finding: only damaged bytes make
lines depend on what came before. So the concatenated pieces equal one walk over the log, and from the first piece that a task gives up on,
the rest is one walk.
"""

import os
from array import array
from collections.abc import Iterator
from contextlib import suppress

from kseg.inspection.dump.batch_filter import BatchFilter
from kseg.inspection.dump.formats import as_java_shows, as_json, dumper, heading
from kseg.inspection.dump.open_log import OpenLogCache, scanner_of
from kseg.inspection.dump.options import DumpOptions
from kseg.jobs.events import Event, Row, Text
from kseg.jobs.log_splitting import CannotSplit, index_cuts
from kseg.segment import header_tables as C
from kseg.segment.header_tables import Columns
from kseg.segment.kernel import state_fields as S
from kseg.segment.kernel.batch_walk import FULL, walk
from kseg.segment.layout import INT32_MAX, MAX_SEGMENT_BYTES
from kseg.segment.partition.names import Role, parse_given_name
from kseg.segment.storage import places

_HEADERS_PER_WALK = 1024


def cuts(path: str, options: DumpOptions, piece_bytes: int) -> list[int]:
    """The starts of the pieces; only 0 if the selection depends on what came before, or the file is not a plain log."""
    path = as_java_shows(path)
    name = parse_given_name(os.path.basename(path))
    is_plain = name.role is Role.LOG and name.base_offset is not None
    if not is_plain or options.max_bytes != INT32_MAX or not options.selection.selects_everything:
        return [0]
    with suppress(OSError):
        if places.stat(path).st_size <= MAX_SEGMENT_BYTES:
            return index_cuts(path, piece_bytes)
    return [0]


def piece(
    path: str, options: DumpOptions, open_logs: OpenLogCache, start: int, stop: int | None
) -> Iterator[Event]:
    """The events from `start` on, up to `stop` or the end. Raises CannotSplit if only the whole rest can be printed."""
    path = as_java_shows(path)
    name = parse_given_name(os.path.basename(path))
    base = name.base_offset or 0
    file = open_logs.look_up(path, base, options.drop_cache).file
    if stop is not None and not _leads_to(file.view, start, stop):
        raise CannotSplit
    lines = dumper(options.format)(
        path, scanner_of(path, file, base), options, BatchFilter(options.selection)
    )
    if stop is None:
        lines.catch_up(start)
    else:
        lines.end = stop
    if start == 0 and options.format == "kafka":
        yield Text(f"Dumping {options.shown(path)}\n{heading(name)}\n".encode(errors="surrogateescape"))
    for event in lines.events(start):
        if stop is not None and not isinstance(event, Text | Row):
            raise CannotSplit
        yield as_json(event) if options.format == "json" and isinstance(event, Row) else event


def _leads_to(view: memoryview, start: int, stop: int) -> bool:
    """Whether the length fields from the batch at `start` on lead exactly to `stop`."""
    table = Columns(C.BATCH_WIDTH, _HEADERS_PER_WALK)
    state = memoryview(array("q", [start, 0]))
    while state[S.BATCHES_END] < stop <= len(view):
        if walk(view, stop, table.cells, table.capacity, state) != FULL and state[S.BATCHES_END] != stop:
            return False
    return state[S.BATCHES_END] == stop
