"""Check files that only a metadata log has: quorum-state and snapshots in `.checkpoint` files, which must reach the log.

A snapshot is a sequence of batches that begins with a control batch (SNAPSHOT_HEADER first) and ends with another (SNAPSHOT_FOOTER); its
offsets start at 0 (fact sheet §1.7). A log that starts above 0 needs a snapshot that ends at or above its start.
"""

from collections.abc import Iterator

from kseg.jobs.events import Event
from kseg.recovery.verify.header_plausibility import HeaderContext
from kseg.recovery.verify.options import VerifyOptions
from kseg.recovery.verify.records_check import RecordsCheck
from kseg.recovery.verify.segment_check import Consumer, SegmentCheck, SegmentFacts
from kseg.recovery.verify.totals import Totals
from kseg.segment import header_tables as C
from kseg.segment import layout as L
from kseg.segment.errors import FormatError
from kseg.segment.files import MappedFile
from kseg.segment.findings import Finding
from kseg.segment.header_tables import Columns
from kseg.segment.partition.directory import PartitionDirectory
from kseg.segment.partition.names import Role
from kseg.segment.scanning.decode import Decoder, record_at
from kseg.segment.state import kraft_messages as kraft
from kseg.segment.state.control import parse_control_record


class _Frame:
    """A `Consumer` that looks at the first and the last batch."""

    def __init__(self, path: str, view: memoryview) -> None:
        self._path = path
        self._decoder = Decoder(view, 16)
        self._first: str | None = None
        self._last = ""

    def take(self, table: Columns, first: int, stop: int) -> Iterator[Finding]:
        if self._first is None:
            self._first = self._kind(table, first)
        self._last = self._kind(table, stop - 1)
        return iter(())

    def _kind(self, table: Columns, row: int) -> str:
        """The type of the first record of a control batch; empty for other batches."""
        if not table.at(C.ATTRIBUTES, row) & L.CONTROL_BIT or table.at(C.MAGIC, row) < L.MAGIC_V2:
            return ""
        for chunk in self._decoder.chunks(table, row, row + 1):
            if chunk.records.count:
                record = record_at(chunk, 0)
                try:
                    return parse_control_record(record.key, record.value).kind
                except FormatError:
                    return ""
        return ""

    def finish(self, facts: SegmentFacts) -> Iterator[Finding]:
        for kind, wanted, where in (
            (self._first, kraft.SNAPSHOT_HEADER, "header at its start"),
            (self._last, kraft.SNAPSHOT_FOOTER, "footer at its end"),
        ):
            if kind != wanted:
                message = f"the snapshot has no {where}"
                yield Finding("metadata-snapshot-incomplete", self._path, message, 0, facts.size_bytes)


def snapshot_file(path: str, options: VerifyOptions, totals: Totals) -> Iterator[Event]:
    """Check one `.checkpoint` with records. Raises UnreadableInput."""
    with MappedFile(path, options.drop_cache) as file:
        consumers: list[Consumer] = [_Frame(path, file.view)]
        if options.level == "deep":
            consumers.append(RecordsCheck(path, file.view))
        yield from SegmentCheck(file, HeaderContext(path, 0), options, totals, consumers).events()


def raft_files(directory: PartitionDirectory, options: VerifyOptions, totals: Totals) -> Iterator[Event]:
    """Check the files of a metadata log that other partitions do not have."""
    from kseg.recovery.verify.small_files import readable, small_file

    snapshots = [
        entry
        for entry in directory.entries
        if entry.name.role is Role.METADATA_SNAPSHOT and entry.name.is_live and entry.problem is None
    ]
    for entry in directory.entries:
        if entry.name.role is Role.QUORUM_STATE and entry.name.is_live and entry.problem is None:
            path = entry.path
            yield from readable(path, small_file(path, Role.QUORUM_STATE, totals))
    for entry in snapshots:
        path = entry.path
        yield from readable(path, snapshot_file(path, options, totals))
    if not directory.segments:
        return
    start = directory.segments[0].base_offset
    reach = max((entry.name.base_offset or 0 for entry in snapshots), default=0)
    if start > reach:
        message = f"the log starts at offset {start}, but the latest snapshot ends at {reach}"
        yield Finding(
            "quorum-snapshot-missing", directory.path, message, first_offset=reach, last_offset=start - 1
        )
