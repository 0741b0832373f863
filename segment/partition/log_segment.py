"""One segment of a log, opened on first use, and the notes that a read of the log collects.

An index entry is used only if a valid batch starts at its position, the first offset of this batch exceeds neither the entry's offset nor
the requested one, and the entry's offset is in the batch or after it: brokers before 4.0 index the last offset of an append, which may
consist of several batches. Then no earlier batch can contain the requested offset. So a damaged index, or an altered base offset, costs
time but never causes a wrong answer.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from typing import TypeVar

from kseg.segment import header_tables as C
from kseg.segment.files import MappedFile, read_small
from kseg.segment.findings import Finding
from kseg.segment.header_tables import Columns
from kseg.segment.kernel.batch_walk import highest_offset
from kseg.segment.model import Batch, Record
from kseg.segment.partition.header_walk import BatchWalk, Meter
from kseg.segment.partition.names import Role
from kseg.segment.scanning.damage import Damage
from kseg.segment.scanning.damage_findings import damage_finding, undecodable
from kseg.segment.scanning.decode import Chunk, Decoder, record_at
from kseg.segment.sidecar.index import OffsetIndex, OffsetIndexEntry, TimeIndex

Step = dict[str, object]
I = TypeVar("I", OffsetIndex, TimeIndex)


class Notes:
    """The notes of a read of a log.

    meter: bytes read in logs and side files. findings: each once. path: the steps taken, in order. use_index:
    whether to use `.index` and `.timeindex`. is_live: a broker may be writing at the same time.
    """

    def __init__(self, use_index: bool = True, is_live: bool = False) -> None:
        self.use_index = use_index
        self.is_live = is_live
        self.meter = Meter()
        self.findings: list[Finding] = []
        self.path: list[Step] = []
        self._seen: set[tuple[object, ...]] = set()

    def report(self, finding: Finding) -> None:
        """Keep a finding unless it was reported before."""
        mark = (finding.id, finding.path, finding.position, finding.message)
        if mark not in self._seen:
            self._seen.add(mark)
            self.findings.append(finding)

    def note(self, step: Step) -> None:
        """Add a step to the lookup path."""
        if not self.path or self.path[-1] != step:
            self.path.append(step)

    def take_notes(self, others: "Notes") -> None:
        """Add the notes of another reader of the same log."""
        self.meter.bytes_read += others.meter.bytes_read
        for finding in others.findings:
            self.report(finding)
        for step in others.path:
            self.note(step)


class LogSegment:
    """One segment of a `PartitionLog`, opened on first use.

    base_offset: from its name. next_base_offset: of the next segment, None for the last. paths: its files by
    role, each as shown to the user.
    """

    __slots__ = (
        "_decoder",
        "_file",
        "_indexes",
        "_notes",
        "_walk",
        "base_offset",
        "next_base_offset",
        "paths",
    )

    def __init__(self, notes: Notes, base_offset: int, paths: dict[Role, str]) -> None:
        self.base_offset = base_offset
        self.next_base_offset: int | None = None
        self.paths = paths
        self._notes = notes
        self._file: MappedFile | None = None
        self._walk: BatchWalk | None = None
        self._decoder: Decoder | None = None
        self._indexes: dict[Role, tuple[MappedFile | None, OffsetIndex | TimeIndex] | None] = {}

    @property
    def path(self) -> str:
        """Path of the `.log` file."""
        return self.paths[Role.LOG]

    @property
    def file(self) -> MappedFile:
        """The mapped `.log`; raises UnreadableInput."""
        if self._file is None:
            self._file = MappedFile(self.path, random_access=True)
            self._notes.note({"step": "open", "file": self.path})
        return self._file

    @property
    def walk(self) -> BatchWalk:
        if self._walk is None:
            self._walk = BatchWalk(
                self.file, self.base_offset, self._notes.meter, self.report_damage, self.following_base
            )
        return self._walk

    def following_base(self) -> int | None:
        """The base offset of the next segment, None for the last."""
        return self.next_base_offset

    @property
    def offset_index(self) -> OffsetIndex | None:
        """The offset index; None if the file is missing."""
        return self._index(Role.OFFSET_INDEX, OffsetIndex)

    @property
    def time_index(self) -> TimeIndex | None:
        """The time index; None if the file is missing."""
        return self._index(Role.TIME_INDEX, TimeIndex)

    def batch_reaching(self, offset: int) -> Batch | None:
        """The first valid batch that ends at or after an offset."""

        def reaching(table: Columns) -> Iterator[int]:
            ends = table.column(C.LAST_OFFSET)
            return (row for row in range(table.count) if ends[row] >= offset)

        return next(self.walk.find(self.start_for(offset), reaching), None)

    @property
    def index_bytes_read(self) -> int:
        return sum(held[1].bytes_read for held in self._indexes.values() if held is not None)

    def close(self) -> None:
        """Close the files. Using the segment again reopens them."""
        self._notes.meter.bytes_read += self.index_bytes_read
        for held in self._indexes.values():
            if held is not None and held[0] is not None:
                held[0].close()
        self._indexes.clear()
        self._walk = self._decoder = None
        if self._file is not None:
            self._file.close()
            self._file = None

    @property
    def _decoding(self) -> Decoder:
        if self._decoder is None:
            self._decoder = Decoder(self.file.sparse_view)
        return self._decoder

    def start_for(self, offset: int) -> int:
        """A position from which a walk reaches the first batch that ends at or above `offset`; 0 if no index entry helps."""
        if not self._notes.use_index:
            return 0
        index = self.offset_index
        if index is None:
            self.distrust(Role.OFFSET_INDEX, "there is no offset index")
            return 0
        slot = index.slot_for(offset)
        if slot < 0:
            self._notes.note({"step": "offset-index", "file": self.paths[Role.OFFSET_INDEX], "slot": None})
            return 0
        entry = index.entry(slot)
        self._notes.note(
            {"step": "offset-index", "file": self.paths[Role.OFFSET_INDEX], "slot": slot, **entry._asdict()}
        )
        problem = self._entry_problem(entry, offset)
        if problem is None:
            return entry.position
        self.distrust(Role.OFFSET_INDEX, f"entry {slot} is wrong: {problem}")
        return 0

    def reaching(self, offset: int, position: int | None = None) -> Iterator[Batch]:
        """The valid batches from the first one on whose last offset is not below `offset`.

        position: where the walk begins, a batch boundary at or before it; None uses the offset index.
        """
        start = self.start_for(offset) if position is None else position
        end = start
        try:
            for batch in self.walk.find(start, reaching(offset)):
                end = batch.end_position
                yield batch
            end = self.file.size_bytes
        finally:
            self.scanned(start, end)

    def records(self, batch: Batch) -> Iterator[tuple[Chunk, int]]:
        """(chunk, row) of each record of a valid batch; reports one that cannot be decoded."""
        self.file.need(batch.position, batch.end_position)
        table = self.walk.table_of(batch)
        for chunk in self._decoding.chunks(table):
            for at in range(chunk.records.count):
                yield chunk, at
            if chunk.problem is not None:
                self._notes.report(undecodable(self.path, table, chunk.problem))

    def first_record(self, batch: Batch, accepts: Callable[[Columns, int], bool]) -> Record | None:
        """The first record of the batch that `accepts` selects by its row."""
        for chunk, at in self.records(batch):
            if accepts(chunk.records, at):
                return record_at(chunk, at)
        return None

    def first_offset_of(self, batch: Batch) -> int:
        """The true first offset: only the inner messages of a compressed set of an old format contain it."""
        return self.decoded(batch).base_offset

    def decoded(self, batch: Batch) -> Batch:
        """The batch; for a compressed set of an old format that can be decoded, with its first offset and its record count."""
        if batch.count is not None:
            return batch
        self.file.need(batch.position, batch.end_position)
        table = self.walk.table_of(batch)
        self._decoding.note_sets(table)
        count = table.at(C.COUNT, 0)
        if count < 0:
            return batch
        return replace(batch, base_offset=table.at(C.BASE_OFFSET, 0), count=count)

    def scanned(self, start: int, end: int) -> None:
        """Note that the walk passed the batches from `start` to `end`."""
        self._notes.note({"step": "scan", "file": self.path, "from": start, "to": end})

    def distrust(self, role: Role, why: str) -> None:
        """Report that an index cannot be used."""
        path = self.paths.get(role, self.path)
        self._notes.report(Finding("index-not-used", path, f"{why}; the segment was scanned instead"))

    def report_damage(self, damage: Damage) -> None:
        """Report a damage span of this segment."""
        self._notes.report(damage_finding(self.path, damage))

    def _entry_problem(self, entry: OffsetIndexEntry, target: int) -> str | None:
        """Why an entry cannot be used, None if a valid batch starts at its position and not above the target."""
        if not 0 <= entry.position < self.file.size_bytes:
            return f"position {entry.position} lies outside the segment of {self.file.size_bytes} bytes"
        batch = self.walk.valid_batch_at(entry.position)
        if batch is None:
            return f"no valid batch starts at position {entry.position}"
        first = self.first_offset_of(batch)
        if first > min(entry.offset, target):
            return f"the batch at position {entry.position} starts at offset {first}, above {min(entry.offset, target)}"
        if batch.last_offset < entry.offset:
            following = self.walk.valid_batch_at(batch.end_position)
            if following is None or not batch.last_offset < self.first_offset_of(following) <= entry.offset:
                return (
                    f"the batch at position {entry.position} ends at offset {batch.last_offset}, and "
                    f"none between it and {entry.offset} follows"
                )
        return None

    def _index(self, role: Role, kind: type[I]) -> I | None:
        if role not in self._indexes:
            path = self.paths.get(role)
            if path is None:
                self._indexes[role] = None
            elif self._notes.is_live:
                # a broker truncates the file when it rolls, and access to the truncated part of a map raises SIGBUS
                self._indexes[role] = None, kind(read_small(path), self.base_offset)
            else:
                file = MappedFile(path, random_access=True)
                self._indexes[role] = file, kind(file.sparse_view, self.base_offset, need=file.need)
        held = self._indexes[role]
        if held is None:
            return None
        assert isinstance(held[1], kind)
        return held[1]


def reaching(offset: int) -> Callable[[Columns], Iterable[int]]:
    """For `BatchWalk.find`: batches whose last offset is not below `offset`."""

    def rows(table: Columns) -> Iterable[int]:
        if highest_offset(table.cells, table.capacity, table.count) < offset:
            return ()
        lasts = table.column(C.LAST_OFFSET)
        return (row for row in range(table.count) if lasts[row] >= offset)

    return rows
