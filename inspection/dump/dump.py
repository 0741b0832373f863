"""The work of `dump` on one file: `dump(FileTarget, DumpOptions) -> Iterator[Event]`.

Dispatch is by what stands behind the last dot, as in Kafka's tool; suffixed files (`.deleted`, `.swap`,
`.cleaned`) are dumped as what they were, and the other files of a data directory as text lines of our own.
"""

import os
from collections.abc import Iterator
from typing import TYPE_CHECKING

from kseg.inspection.dump.batch_filter import Narrowing
from kseg.inspection.dump.formats import as_java_shows, as_json, dumper, heading
from kseg.inspection.dump.open_log import Desk, scanner_of
from kseg.inspection.dump.options import DumpOptions
from kseg.jobs.events import Event, Failure, Row, Text
from kseg.segment.errors import KsegError
from kseg.segment.files import MappedFile
from kseg.segment.findings import Finding
from kseg.segment.layout import INT32_MAX, LOG_SUFFIX, MAX_SEGMENT_BYTES, OFFSET_INDEX_SUFFIX
from kseg.segment.partition.names import FileName, Role, parse_given_name
from kseg.segment.partition.targets import FileTarget
from kseg.segment.scanning.damage_findings import unnumbered
from kseg.segment.scanning.scan import Damage, scan
from kseg.segment.scanning.steadiness import Steadiness

if TYPE_CHECKING:
    from kseg.inspection.dump.log_rows import LogRows
    from kseg.inspection.dump.log_text import LogText


def dump(target: FileTarget, options: DumpOptions) -> Iterator[Event]:
    """Everything in one file. Yields Text (format kafka or json) or Row (table), and findings.

    An unreadable file is a Failure with its exit status, after the line `Dumping …`.
    """
    return Dump()(target, options)


class Dump:
    """`dump` of one file after another, so that the log of a segment need not be read again for its indexes.

    One file at a time: the next call ends the one before it.
    """

    def __init__(self) -> None:
        self._desk = Desk()

    def __reduce__(self) -> tuple[type["Dump"], tuple[()]]:
        return Dump, ()  # what lies open stays in its process

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
        return piece(target.path, options, self._desk, start, stop)

    def __call__(self, target: FileTarget, options: DumpOptions) -> Iterator[Event]:
        path = as_java_shows(target.path)
        name = parse_given_name(os.path.basename(path))
        try:
            if options.format == "kafka":
                title = f"Dumping {options.shown(path)}\n".encode(errors="surrogateescape")
                yield from _entitled(title, _file(path, name, options, self._desk))
                return
            for event in _file(path, name, options, self._desk):
                yield as_json(event) if options.format == "json" and isinstance(event, Row) else event
        except KsegError as error:
            yield Failure(path, str(error), error.exit_status)
        finally:
            if options.drop_cache:
                self._desk.clear()


def _entitled(title: bytes, events: Iterator[Event]) -> Iterator[Event]:
    """The events behind a title, which travels with what follows it."""
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


def _file(path: str, name: FileName, options: DumpOptions, desk: Desk) -> Iterator[Event]:
    match name.role:
        case Role.LOG | Role.METADATA_SNAPSHOT | Role.BOOTSTRAP_SNAPSHOT:
            yield from _log(path, name, options, desk)
        case Role.ANCIENT_LOG:
            from kseg.inspection.dump.dump07 import dump_ancient

            yield from dump_ancient(path, name.base_offset or 0, options)
        case _:
            from kseg.inspection.dump.side_dump import dump_side_file

            yield from dump_side_file(path, name, options, desk)


# --- logs


def _log(path: str, name: FileName, options: DumpOptions, desk: Desk) -> Iterator[Event]:
    title = heading(name)
    if options.format == "kafka":
        if title is None:
            yield unnumbered(path)
        else:
            yield Text(title.encode() + b"\n")
    narrowing = _narrowing(path, options)
    base = name.base_offset or 0
    log = desk.open(path, base, options.drop_cache)
    seen = desk.seen = Steadiness()
    if log.file.size_bytes > MAX_SEGMENT_BYTES:
        yield _oversized(path, log.file.size_bytes)
    if options.jobs > 1 and narrowing.everything and options.max_bytes == INT32_MAX:
        yield from _by_many(path, log.file, base, options, narrowing, seen)
        return
    start = _first_position(path, base, log.file, options.selection.from_offset)
    lines = dumper(options.format)(path, log.scanner, options, narrowing)
    lines.seen = seen
    yield from lines.events(start)


def _by_many(
    path: str,
    log: MappedFile,
    base_offset: int,
    options: DumpOptions,
    narrowing: Narrowing,
    seen: Steadiness,
) -> Iterator[Event]:
    from kseg.inspection.dump.parallel import in_parts

    def make() -> "LogText | LogRows":
        return dumper(options.format)(path, scanner_of(path, log, base_offset), options, narrowing)

    of_parts = make()

    def dump_range(start: int, end: int | None) -> Iterator[Event]:
        lines = of_parts
        if end is None:  # a part that was given up may have left something in its lines
            lines = make()
            lines.catch_up(start)
        else:
            lines.end = end
        for event in lines.events(start):
            yield as_json(event) if options.format == "json" and isinstance(event, Row) else event

    yield from in_parts(log.view, dump_range, options.jobs, plain_too=options.format != "kafka", seen=seen)


def _first_position(path: str, base_offset: int, log: MappedFile, from_offset: int | None) -> int:
    """Where a dump from an offset may begin: by the `.index` beside the log when what it says is true, else at 0.

    True means that a valid batch begins there at or below the offset; so nothing that is asked for lies before it.
    """
    index_path = path.removesuffix(LOG_SUFFIX) + OFFSET_INDEX_SUFFIX
    if from_offset is None or not path.endswith(LOG_SUFFIX) or not os.path.isfile(index_path):
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
        f"the file has {size_bytes} bytes; brokers and Kafka's own dump tool refuse more than {MAX_SEGMENT_BYTES}",
        length=size_bytes,
        numbers={"limit_bytes": MAX_SEGMENT_BYTES},
    )


def _narrowing(path: str, options: DumpOptions) -> Narrowing:
    if not options.selection.read_committed:
        return Narrowing(options.selection)
    from kseg.segment.partition.committed import undecided

    aborted, stable_offset = undecided(path)
    return Narrowing(options.selection, aborted, stable_offset)
