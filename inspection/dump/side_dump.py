"""`dump` for every file that is not a log: indexes, snapshots, checkpoints and metadata files."""

from collections.abc import Callable, Iterable, Iterator
from typing import TypeVar

from kseg.inspection.dump.index_mismatches import check_offset_index, check_time_index
from kseg.inspection.dump.open_log import OpenLog, OpenLogCache
from kseg.inspection.dump.options import DumpOptions
from kseg.inspection.dump.side_files import (
    Item,
    no_batch_to_compare,
    offset_index_lines,
    offset_index_rows,
    producer_snapshot,
    starts_preallocated,
    time_index_lines,
    time_index_rows,
    txn_index,
)
from kseg.jobs.events import Event, Row, Text
from kseg.segment.errors import UnreadableInput
from kseg.segment.files import MappedFile, read_small
from kseg.segment.findings import Finding
from kseg.segment.partition.names import FileName, Role, segment_file_name
from kseg.segment.scanning.damage_findings import unnumbered
from kseg.segment.sidecar.index import OffsetIndex, TimeIndex
from kseg.segment.storage import places


def dump_side_file(
    path: str, name: FileName, options: DumpOptions, open_logs: OpenLogCache
) -> Iterator[Event]:
    """Dump one side file. open_logs: logs of indexes that may already be open. Raises UnreadableInput."""
    dump_index = _INDEXES.get(name.role)
    if dump_index is not None:
        return dump_index(path, name, options, open_logs)
    return _shown(_items(path, name), options)


def _items(path: str, name: FileName) -> Iterator[Item]:
    data = read_small(path)
    if name.role is Role.PRODUCER_SNAPSHOT:
        yield from producer_snapshot(path, data)
        return
    # imported here: most dumps have no such file
    if name.role is Role.TXN_INDEX:
        from kseg.segment.sidecar.txn_index import TxnIndex

        if name.base_offset is None:
            yield unnumbered(path)
        yield from txn_index(path, TxnIndex(data, name.base_offset or 0))
        return
    from kseg.inspection.dump.other_files import other_file

    yield from other_file(path, name, data)


def _offset_index(
    path: str, name: FileName, options: DumpOptions, open_logs: OpenLogCache
) -> Iterator[Event]:
    if name.base_offset is None:
        yield unnumbered(path)
    base = name.base_offset or 0
    with MappedFile(path, options.drop_cache) as file:
        index = OffsetIndex(file.view, base, as_kafka=True)
        if not index.entries:
            yield from _as_event(f"{path} is empty.", options)
            return
        if options.index_sanity_check:
            yield from _sanity(path, index.sanity_error(), options)
            return
        log = _look_up(_log_beside(path, name), base, options, open_logs)
        if (isinstance(log, UnreadableInput) or not log.file.size_bytes) and starts_preallocated(index):
            yield no_batch_to_compare(path)
        elif not options.verify_index_only:
            yield from _entries(offset_index_lines, offset_index_rows, path, index, options)
        if isinstance(log, UnreadableInput):
            yield Finding("orphan-index", path, f"its log cannot be read: {log}")
        else:
            yield from check_offset_index(path, log, index.of_used_slots())


def _time_index(path: str, name: FileName, options: DumpOptions, open_logs: OpenLogCache) -> Iterator[Event]:
    if name.base_offset is None:
        yield unnumbered(path)
    base = name.base_offset or 0
    with MappedFile(path, options.drop_cache) as file:
        index = TimeIndex(file.view, base, as_kafka=True)
        if options.index_sanity_check:
            yield from _sanity(path, index.sanity_error(), options)
            return
        if not options.verify_index_only:
            yield from _entries(time_index_lines, time_index_rows, path, index, options)
        log_path = _log_beside(path, name)
        log = _look_up(log_path, base, options, open_logs)
        if not isinstance(log, UnreadableInput):
            yield from check_time_index(path, log, index.of_used_slots())
        elif places.exists(log_path):
            raise log
        else:
            yield Finding("orphan-index", path, f"its log {log_path} is missing")


_INDEXES = {Role.OFFSET_INDEX: _offset_index, Role.TIME_INDEX: _time_index}


def _log_beside(path: str, name: FileName) -> str:
    """The log of the segment that the index at `path` belongs to."""
    if name.remote_segment_id is None:
        log_name = f"{name.name.partition('.')[0]}.log"
    else:
        log_name = segment_file_name(name.base_offset or 0, ".log")
    return path.removesuffix(name.name) + log_name


def _look_up(
    log_path: str, base_offset: int, options: DumpOptions, open_logs: OpenLogCache
) -> OpenLog | UnreadableInput:
    try:
        return open_logs.look_up(log_path, base_offset, options.drop_cache)
    except UnreadableInput as error:
        return error


I = TypeVar("I", OffsetIndex, TimeIndex)


def _entries(
    lines: Callable[[I], bytes],
    rows: Callable[[str, I], Iterator[dict[str, object]]],
    path: str,
    index: I,
    options: DumpOptions,
) -> Iterator[Event]:
    if options.format != "kafka":
        yield from map(Row, rows(path, index))
    elif text := lines(index):
        yield Text(text)


def _sanity(path: str, sanity_error: tuple[str, str] | None, options: DumpOptions) -> Iterator[Event]:
    if sanity_error is None:
        yield from _as_event(f"{options.shown(path)} passed sanity check.", options)
    else:
        kind, problem = sanity_error
        yield Finding(kind, path, f"the index fails the broker's sanity check: {problem}")


def _as_event(line: str, options: DumpOptions) -> Iterator[Event]:
    if options.format == "kafka":
        yield Text(f"{line}\n".encode(errors="surrogateescape"))


def _shown(items: Iterable[Item], options: DumpOptions) -> Iterator[Event]:
    lines: list[str] = []
    for item in items:
        if isinstance(item, Finding):
            yield item
        elif options.format == "kafka":
            lines.append(item.line)
        else:
            yield Row(item.row)
    if lines:
        yield Text("".join(f"{line}\n" for line in lines).encode(errors="surrogateescape"))
