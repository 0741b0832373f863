"""The work of `dump` on everything that is no log: indexes, snapshots, checkpoints and metadata files."""

import os
from collections.abc import Iterable, Iterator

from kseg.segment.dump.damage import unnumbered
from kseg.segment.dump.index_check import check_offset_index, check_time_index
from kseg.segment.dump.options import DumpOptions
from kseg.segment.dump.other_files import other_file
from kseg.segment.dump.side_files import Item, offset_index, producer_snapshot, time_index, txn_index
from kseg.segment.events import Event, Row, Text
from kseg.segment.files import MappedFile, read_small
from kseg.segment.findings import Finding
from kseg.segment.partition.names import FileName, Role, segment_file_name
from kseg.segment.sidecar.index import OffsetIndex, TimeIndex
from kseg.segment.sidecar.txn_index import TxnIndex


def dump_side_file(path: str, name: FileName, options: DumpOptions) -> Iterator[Event]:
    """Everything in one file. Raises UnreadableInput."""
    match name.role:
        case Role.OFFSET_INDEX:
            yield from _offset_index(path, name, options)
        case Role.TIME_INDEX:
            yield from _time_index(path, name, options)
        case Role.TXN_INDEX:
            yield from _shown(txn_index(path, TxnIndex(read_small(path), name.base_offset or 0)), options)
        case Role.PRODUCER_SNAPSHOT:
            yield from _shown(producer_snapshot(path, read_small(path)), options)
        case _:
            yield from _shown(other_file(path, name, read_small(path)), options)


def _offset_index(path: str, name: FileName, options: DumpOptions) -> Iterator[Event]:
    if name.base_offset is None:
        yield unnumbered(path)
    base = name.base_offset or 0
    log_path = _beside(path, base)
    with MappedFile(path, options.drop_cache) as file:
        index = OffsetIndex(file.view, base, as_kafka=True)
        if not index.entries:
            yield from _said(f"{path} is empty.", options)
        elif options.index_sanity_check:
            yield from _sanity(path, index.sanity_problem(), options)
        else:
            entries = offset_index(path, index, _is_empty(log_path))
            yield from _shown(entries, options, options.verify_index_only)
            yield from check_offset_index(path, log_path, OffsetIndex(file.view, base))


def _time_index(path: str, name: FileName, options: DumpOptions) -> Iterator[Event]:
    if name.base_offset is None:
        yield unnumbered(path)
    base = name.base_offset or 0
    with MappedFile(path, options.drop_cache) as file:
        index = TimeIndex(file.view, base, as_kafka=True)
        if options.index_sanity_check:
            yield from _sanity(path, index.sanity_problem(), options)
        else:
            yield from _shown(time_index(path, index), options, options.verify_index_only)
            yield from check_time_index(path, _beside(path, base), TimeIndex(file.view, base))


def _sanity(path: str, problem: str | None, options: DumpOptions) -> Iterator[Event]:
    if problem is None:
        yield from _said(f"{path} passed sanity check.", options)
    else:
        yield Finding("index-below-base", path, f"the index fails the broker's sanity check: {problem}")


def _beside(path: str, base_offset: int) -> str:
    stem = os.path.basename(path).partition(".")[0]
    name = f"{stem}.log" if stem.isdigit() else segment_file_name(base_offset, ".log")
    return os.path.join(os.path.dirname(path), name)


def _is_empty(log_path: str) -> bool:
    try:
        return os.stat(log_path).st_size == 0
    except OSError:
        return True


def _said(line: str, options: DumpOptions) -> Iterator[Event]:
    if options.format == "kafka":
        yield Text(f"{line}\n".encode(errors="surrogateescape"))


def _shown(items: Iterable[Item], options: DumpOptions, findings_only: bool = False) -> Iterator[Event]:
    lines: list[str] = []
    for item in items:
        if isinstance(item, Finding):
            yield item
        elif not findings_only:
            if options.format == "kafka":
                lines.append(item.line)
            else:
                yield Row(item.row)
    if lines:
        yield Text("".join(f"{line}\n" for line in lines).encode(errors="surrogateescape"))
