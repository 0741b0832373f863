"""`dump` for one file: `dump(FileTarget, DumpOptions) -> Iterator[Event]`.

Dispatch is by the part after the last dot, as in Kafka's tool; files with an additional suffix (`.deleted`, `.swap`, `.cleaned`) are
dumped as what they were, and the other files of a data directory as text lines in kseg's own format.
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING

from kseg.inspection.dump.batch_filter import BatchFilter
from kseg.inspection.dump.formats import as_java_shows, as_json, dumper, given_name, heading
from kseg.inspection.dump.open_log import OpenLogCache, scanner_of
from kseg.inspection.dump.options import DumpOptions
from kseg.jobs.events import Event, Row, Text
from kseg.segment.counted import counted
from kseg.segment.errors import KsegError
from kseg.segment.files import MappedFile
from kseg.segment.findings import Finding
from kseg.segment.layout import INT32_MAX, LOG_SUFFIX, MAX_SEGMENT_BYTES, OFFSET_INDEX_SUFFIX
from kseg.segment.partition.names import FileName, Role
from kseg.segment.partition.targets import FileTarget
from kseg.segment.scanning.batches import scan
from kseg.segment.scanning.damage import Damage
from kseg.segment.scanning.damage_findings import unnumbered
from kseg.segment.scanning.header_continuity import HeaderContinuity
from kseg.segment.storage import places

if TYPE_CHECKING:
    from kseg.inspection.dump.log_rows import LogRows
    from kseg.inspection.dump.log_text import LogText


class Dump:
    """`dump` of one file after another, so that the log of a segment need not be read again for its indexes.

    A call yields Text (format kafka or json) or Row (table), and findings. One file at a time: the next call ends the previous one.
    Raises UnreadableInput, after the line `Dumping …`.
    """

    def __init__(self) -> None:
        self._open_logs = OpenLogCache()

    def __reduce__(self) -> tuple[type["Dump"], tuple[()]]:
        return Dump, ()  # open files stay in their process

    def cuts(self, target: FileTarget, options: DumpOptions, piece_bytes: int) -> list[int]:
        """See `kseg.jobs.log_splitting`."""
        from kseg.inspection.dump.offset_range import cuts

        return cuts(target.path, options, piece_bytes)

    def piece(
        self, target: FileTarget, options: DumpOptions, start: int, stop: int | None
    ) -> Iterator[Event]:
        """See `kseg.jobs.log_splitting`."""
        from kseg.inspection.dump.offset_range import piece

        if start == 0 and stop is None:
            return self(target, options)
        return piece(target.path, options, self._open_logs, start, stop)

    def __call__(self, target: FileTarget, options: DumpOptions) -> Iterator[Event]:
        path = as_java_shows(target.path)
        name = given_name(path)
        try:
            if options.format == "kafka":
                title = f"Dumping {options.shown(path)}\n".encode(errors="surrogateescape")
                yield from _with_title(title, _file(path, name, options, self._open_logs))
                return
            for event in _file(path, name, options, self._open_logs):
                yield as_json(event) if options.format == "json" and isinstance(event, Row) else event
        finally:
            if options.drop_cache:
                self._open_logs.clear()


def _with_title(title: bytes, events: Iterator[Event]) -> Iterator[Event]:
    """The events after a title, which is emitted together with the first of them."""
    try:
        first = next(events, None)
    except KsegError:
        yield Text(title)
        raise
    if isinstance(first, Text):
        yield Text(title + first.data)
    else:
        yield Text(title)
        if first is not None:
            yield first
    yield from events


def _file(path: str, name: FileName, options: DumpOptions, open_logs: OpenLogCache) -> Iterator[Event]:
    match name.role:
        case Role.LOG | Role.METADATA_SNAPSHOT | Role.BOOTSTRAP_SNAPSHOT:
            yield from _log(path, name, options, open_logs)
        case Role.KAFKA07_LOG:
            from kseg.inspection.dump.dump07 import dump_kafka07

            yield from dump_kafka07(path, name.base_offset or 0, options)
        case _:
            from kseg.inspection.dump.side_dump import dump_side_file

            yield from dump_side_file(path, name, options, open_logs)


# --- logs


def _log(path: str, name: FileName, options: DumpOptions, open_logs: OpenLogCache) -> Iterator[Event]:
    title = heading(name)
    if options.format == "kafka":
        if title is None:
            yield unnumbered(path)
        else:
            yield Text(title.encode() + b"\n")
    batch_filter = _batch_filter(path, options)
    base = name.base_offset or 0
    log = open_logs.open(path, base, options.drop_cache)
    seen = open_logs.seen = HeaderContinuity()
    if log.file.size_bytes > MAX_SEGMENT_BYTES:
        yield _oversized(path, log.file.size_bytes)
    is_whole = batch_filter.everything and options.max_bytes == INT32_MAX
    if options.jobs > 1 and is_whole and _pays_in_parts(log.file, options):
        yield from _in_parallel(path, log.file, base, options, batch_filter, seen)
        return
    start = _first_position(path, base, log.file, options.selection.from_offset)
    lines = dumper(options.format)(path, log.scanner, options, batch_filter)
    lines.seen = seen
    yield from lines.events(start)


def _makes_more_of_it(options: DumpOptions) -> bool:
    """Whether a line costs more than those of Kafka's tool."""
    return options.format != "kafka" or options.decoder is not None


def _pays_in_parts(log: MappedFile, options: DumpOptions) -> bool:
    from kseg.jobs.log_parts import pays

    return pays(log.view, include_uncompressed=_makes_more_of_it(options))


def _in_parallel(
    path: str,
    log: MappedFile,
    base_offset: int,
    options: DumpOptions,
    batch_filter: BatchFilter,
    seen: HeaderContinuity,
) -> Iterator[Event]:
    from kseg.jobs.log_parts import in_parts

    def make() -> "LogText | LogRows":
        return dumper(options.format)(path, scanner_of(path, log, base_offset), options, batch_filter)

    of_parts = make()

    def dump_range(start: int, end: int | None) -> Iterator[Event]:
        lines = of_parts
        if end is None:  # a part that was given up may have left lines in the buffer
            lines = make()
            lines.catch_up(start)
        else:
            lines.end = end
        for event in lines.events(start):
            yield as_json(event) if options.format == "json" and isinstance(event, Row) else event

    yield from in_parts(
        log.view,
        dump_range,
        options.jobs,
        include_uncompressed=_makes_more_of_it(options),
        seen=seen,
        write_into=of_parts.write_into,
    )


def _first_position(path: str, base_offset: int, log: MappedFile, from_offset: int | None) -> int:
    """Where a dump from an offset may begin: at the position in the log's `.index` if that is correct, else at 0.

    Correct means that a valid batch starts there at or below the offset, so no requested record precedes it.
    """
    index_path = path.removesuffix(LOG_SUFFIX) + OFFSET_INDEX_SUFFIX
    if from_offset is None or not path.endswith(LOG_SUFFIX) or not places.isfile(index_path):
        return 0
    from kseg.segment.sidecar.index import OffsetIndex

    with MappedFile(index_path) as file:
        position = OffsetIndex(file.view, base_offset).lookup(from_offset).position
    if not 0 <= position < log.size_bytes:
        return 0
    batch = next(scan(log.view, base_offset, position), None)
    is_true = batch is not None and not isinstance(batch, Damage) and batch.base_offset <= from_offset
    return position if is_true else 0


def _oversized(path: str, size_bytes: int) -> Finding:
    return Finding(
        "oversized-segment",
        path,
        f"the file has {counted(size_bytes, 'byte')}; brokers and Kafka's own dump tool refuse more than {MAX_SEGMENT_BYTES}",
        length=size_bytes,
        numbers={"limit_bytes": MAX_SEGMENT_BYTES},
    )


def _batch_filter(path: str, options: DumpOptions) -> BatchFilter:
    if not options.selection.read_committed:
        return BatchFilter(options.selection)
    from kseg.segment.partition.committed import transactions_around

    aborted, stable_offset = transactions_around(path)
    return BatchFilter(options.selection, aborted, stable_offset)
