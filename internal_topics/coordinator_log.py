"""The records of one partition of a coordinator's topic, as the coordinator reads them when it loads.

1. Begin at the log start offset, as `PartitionLog` finds it. The batch that contains it is read completely: a fetch returns whole
   batches, and no coordinator looks for the log start inside one.
2. All segments in order, up to the log end (isolation LOG_END; the high watermark does not matter). Missing offsets are
   ordinary: the topics are compacted.
3. Records of aborted transactions are treated like others. The COMMIT and ABORT markers of a transaction are returned in log order;
   other control records, and control batches that compaction has emptied, are skipped.
4. Data that cannot be read becomes a `LogProblem` in its place, and reading continues after it. A coordinator that loads the same partition
   fails there or, since it does not verify checksums, accepts what the damaged bytes say; only an incomplete batch at the end of the log
   does not affect it. A batch with an unknown magic becomes a `LogProblem`, too, but is read here if it is otherwise valid.
5. A batch that claims to end at or beyond the log end without being the last batch is a `LogProblem`, returned after the last record. The
   coordinators of groups and share groups fail when a batch beyond the high watermark ends no higher than an earlier one ("New last written
   offset … must be greater than …"). And every coordinator considers the log read as soon as a chunk that it has read, at most a segment,
   ends beyond the log end.
   Batches of other segments: see `coordinator_reading`.

6. A broker that starts after an unclean shutdown checks the batches of the segments from the recovery point on, and truncates the log at
   the first one that is damaged (LogLoader.recoverLog). What follows that batch is read here all the same, since a repair keeps it.

(Sources: CoordinatorLoaderImpl, SnapshottableCoordinator.updateLastWrittenOffset, TransactionStateManager.loadTransactionMetadata.)
"""

from collections.abc import Iterator
from math import inf
from typing import NamedTuple

from kseg.change.apply.lock import is_locked
from kseg.internal_topics.coordinator_reading import BEYOND_THE_END, CoordinatorReading
from kseg.internal_topics.unchecked_batches import UncheckedRead, unchecked_read
from kseg.segment import header_tables as C
from kseg.segment import layout as L
from kseg.segment.errors import FormatError, UnreadableInput
from kseg.segment.files import MappedFile
from kseg.segment.header_tables import Columns
from kseg.segment.partition.log_dir_state import read_log_dir_state
from kseg.segment.partition.log_segment import LogSegment
from kseg.segment.partition.partition_log import PartitionLog, names_in
from kseg.segment.partition.targets import LogDirTarget, LogTarget, PartitionTarget, resolve_targets
from kseg.segment.scanning.damage import Damage
from kseg.segment.scanning.damage_findings import damage_finding
from kseg.segment.scanning.decode import Chunk, Decoder, record_at
from kseg.segment.scanning.scan import Scanner
from kseg.segment.state.control import ABORT, COMMIT, parse_control_record

# kind of a `LogProblem`: a batch claims the last offset of the last batch in the log; BEYOND_THE_END if it claims one above that
DOUBLED_END = "doubled-end"
UNKNOWN_MAGIC = "unknown-magic"
# kinds of a `LogProblem` that end the load of every coordinator, whatever the damaged bytes say
ENDS_EVERY_LOAD = ("", UNKNOWN_MAGIC, "unreadable", "unreadable-batch")
# kinds of a `Damage`, and one of a `LogProblem`, at which a broker that recovers the log truncates it
_CUT_AT = ("torn-tail", "zero-tail", "zero-filled", "bad-crc", "bad-length", "bad-magic", UNKNOWN_MAGIC)
_NO_PRODUCER = (L.NO_PRODUCER_ID, L.NO_PRODUCER_EPOCH, False)


class CoordinatorRecord(NamedTuple):
    """A record with the bytes of its key and value. producer_id, producer_epoch: -1 without a producer."""

    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    producer_id: int
    producer_epoch: int
    is_transactional: bool


class TransactionMarker(NamedTuple):
    """The end of a producer's transaction."""

    offset: int
    timestamp_ms: int
    producer_id: int
    producer_epoch: int
    is_commit: bool
    coordinator_epoch: int


class LogProblem(NamedTuple):
    """Why a part of the log cannot be read.

    offset: the first affected one, None when unknown. position: in the file `path`, None if the file as a whole is affected. damage: the
    kind of a `Damage`, BEYOND_THE_END, DOUBLED_END, UNKNOWN_MAGIC, one of
    `coordinator_reading`, or empty for other problems. is_cut: a broker that starts truncates the
    log there, or earlier (rule 6). unchecked: what a coordinator reads from the damaged bytes; None if that is uncertain, or if the start
    of a broker removes them.
    """

    path: str
    offset: int | None
    position: int | None
    message: str
    damage: str = ""
    is_cut: bool = False
    unchecked: UncheckedRead | None = None


def taken_over(problem: LogProblem) -> Iterator[CoordinatorRecord]:
    """The records that a coordinator reads from damaged bytes, as far as that is certain; without their producer."""
    for record in () if problem.unchecked is None else problem.unchecked.records:
        yield CoordinatorRecord(record.offset, record.timestamp_ms, record.key, record.value, -1, -1, False)


def failing(problem: LogProblem) -> LogProblem:
    """The same problem, with the load ending at these bytes, because a coordinator fails on one of their records."""
    return problem._replace(unchecked=UncheckedRead((), True))


class RecordChunk(NamedTuple):
    """Undecoded records of some rows of a batch table; valid until the next chunk is requested."""

    batches: Columns
    chunk: Chunk

    def record(self, at: int) -> CoordinatorRecord:
        records = self.chunk.records
        cells, capacity = records.cells, records.capacity
        key, key_length = cells[C.R_KEY_START * capacity + at], cells[C.R_KEY_LENGTH * capacity + at]
        value, value_length = cells[C.R_VALUE_START * capacity + at], cells[C.R_VALUE_LENGTH * capacity + at]
        view = memoryview(self.chunk.body)
        return CoordinatorRecord(
            cells[C.R_OFFSET * capacity + at],
            cells[C.R_TIMESTAMP * capacity + at],
            view[key : key + key_length].tobytes() if key_length >= 0 <= key else None,
            view[value : value + value_length].tobytes() if value_length >= 0 <= value else None,
            *_producer(self.batches, cells[C.R_BATCH * capacity + at]),
        )

    def every_record(self) -> Iterator[CoordinatorRecord]:
        return _records(self.batches, self.chunk, None)


CoordinatorEntry = CoordinatorRecord | TransactionMarker | LogProblem


def read_coordinator_log(
    directory: str | LogTarget, *, until_ms: int | None = None
) -> Iterator[CoordinatorEntry]:
    """The records and markers of a partition directory (or one segment) of a coordinator's topic, in offset order.

    until_ms: leave out records and markers with a later timestamp. Raises UnreadableInput when the directory cannot be
    listed; a segment that cannot be read is a LogProblem.
    """
    for part in read_coordinator_chunks(directory):
        if isinstance(part, RecordChunk):
            yield from _records(part.batches, part.chunk, until_ms)
        elif until_ms is None or isinstance(part, LogProblem) or part.timestamp_ms <= until_ms:
            yield part


def read_coordinator_chunks(
    directory: str | LogTarget,
) -> Iterator[RecordChunk | TransactionMarker | LogProblem]:
    """The same with records in chunks, for callers that do not need each record as an object. Raises UnreadableInput as well."""
    if isinstance(directory, str):
        (directory,) = _targets_of(directory)
    # a directory or other non-file in the place of a log is a `LogProblem` of that segment, not an error of the partition
    names = names_in(directory.path) if isinstance(directory, PartitionTarget) else None
    with PartitionLog(directory, names=names) as log:
        start, checked_from = log.start_offset, _checked_from(log)
        ends, reading = _ClaimedEnds(), CoordinatorReading(log)
        is_cut = False
        for segment in log.segments:
            if segment.next_base_offset is not None and segment.next_base_offset <= start:
                continue
            try:
                for part in _segment(segment, reading, ends):
                    if isinstance(part, LogProblem) and segment.base_offset >= checked_from:
                        is_cut |= part.damage in _CUT_AT
                        yield part._replace(is_cut=is_cut, unchecked=None if is_cut else part.unchecked)
                    else:
                        yield part
            except UnreadableInput as error:
                yield LogProblem(segment.path, segment.base_offset, None, str(error))
        yield from ends.problems()


def _checked_from(log: PartitionLog) -> float:
    """The base offset of the first segment that a broker checks when it starts; infinite if it checks none, if it is running, or if this is
    unknown."""
    if log.log_dir is None or log.name is None or not log.segments or is_locked(log.log_dir):
        return inf
    base_offset = log.recovered_from(read_log_dir_state(log.log_dir))
    return inf if base_offset is None else base_offset


class _Claim(NamedTuple):
    """What a batch claims. before: the last offset of the batch before it, -1 for none."""

    last_offset: int
    path: str
    position: int
    before: int


class _ClaimedEnds:
    """The last offsets that batches claim, for rule 5."""

    def __init__(self) -> None:
        self._highest: _Claim | None = None  # of all batches but the last one
        self._last: _Claim | None = None

    def take(self, path: str, table: Columns, first_row: int) -> None:
        """The batches of a table, from a row on."""
        lasts = table.column(C.LAST_OFFSET)[first_row:]
        count = len(lasts)
        if not count:
            return
        former = self._last
        if former is not None:
            self._compare(former)

        def claim(at: int) -> _Claim:
            before = lasts[at - 1] if at else -1 if former is None else former.last_offset
            return _Claim(lasts[at], path, table.at(C.POSITION, first_row + at), before)

        if count > 1:
            self._compare(claim(lasts.tolist().index(max(lasts[:-1]))))
        self._last = claim(count - 1)

    def _compare(self, claim: _Claim) -> None:
        if self._highest is None or claim.last_offset > self._highest.last_offset:
            self._highest = claim

    def problems(self) -> Iterator[LogProblem]:
        """At most one."""
        high, last = self._highest, self._last
        if high is None or last is None or high.last_offset < last.last_offset:
            return
        message = f"the batch at position {high.position} ends at offset {high.last_offset}, but the last batch of the log ends at {last.last_offset}"
        kind = BEYOND_THE_END if high.last_offset > last.last_offset else DOUBLED_END
        yield LogProblem(high.path, high.before + 1, high.position, message, kind)


def _targets_of(path: str) -> list[LogTarget]:
    """A single directory, with the log dir around it. Raises UnreadableInput."""
    found = [target for target in resolve_targets((path,)) if not isinstance(target, LogDirTarget)]
    if len(found) != 1:
        raise UnreadableInput(f"{path} is not a partition directory")
    return found


def _segment(
    segment: LogSegment, reading: CoordinatorReading, ends: _ClaimedEnds
) -> Iterator[RecordChunk | TransactionMarker | LogProblem]:
    with MappedFile(segment.path) as file:
        decoder = Decoder(file.view)
        scanner = Scanner.over(file, segment.base_offset, next_base=segment.following_base)
        reading.enter(segment)
        for block in scanner.blocks():
            if isinstance(block, Damage):
                finding = damage_finding(segment.path, block)
                yield LogProblem(
                    segment.path,
                    finding.first_offset,
                    block.position,
                    finding.message,
                    block.kind,
                    unchecked=unchecked_read(decoder.view, block),
                )
                continue
            first_row = reading.first_row(block)
            ends.take(segment.path, block, first_row)
            yield from _unknown_magic(segment.path, block, first_row)
            for chunk in decoder.chunks(block, first_row):
                if chunk.control:
                    yield from _markers(segment.path, block, chunk)
                elif chunk.records.count:
                    yield RecordChunk(block, chunk)
                if chunk.problem is not None:
                    row = chunk.last_row
                    offset, position = block.at(C.BASE_OFFSET, row), block.at(C.POSITION, row)
                    yield LogProblem(segment.path, offset, position, chunk.problem.sentence)
        for kind, offset, message in reading.leave():
            yield LogProblem(segment.path, offset, None, message, kind)


def _unknown_magic(path: str, table: Columns, first_row: int) -> Iterator[LogProblem]:
    """The problem of the first batch of a table whose magic no version of Kafka reads (CorruptRecordException: Invalid magic found in
    record). It is returned before the records of the table, even those that precede it in the log."""
    magics = table.column(C.MAGIC)[first_row:]
    if not len(magics) or max(magics) <= L.MAGIC_V2:
        return
    row = first_row + next(at for at, magic in enumerate(magics) if magic > L.MAGIC_V2)
    position = table.at(C.POSITION, row)
    message = f"the batch at position {position} has magic {table.at(C.MAGIC, row)}"
    yield LogProblem(path, table.at(C.BASE_OFFSET, row), position, message, UNKNOWN_MAGIC)


def _records(table: Columns, chunk: Chunk, until_ms: int | None) -> Iterator[CoordinatorRecord]:
    """Selects by columns; reads only the producer of a batch."""
    view, records = memoryview(chunk.body), chunk.records
    fields = (
        C.R_BATCH,
        C.R_OFFSET,
        C.R_TIMESTAMP,
        C.R_KEY_START,
        C.R_KEY_LENGTH,
        C.R_VALUE_START,
        C.R_VALUE_LENGTH,
    )
    last, producer = -1, (L.NO_PRODUCER_ID, L.NO_PRODUCER_EPOCH, False)
    for batch, offset, timestamp_ms, key, key_length, value, value_length in zip(
        *(records.column(field) for field in fields), strict=True
    ):
        if until_ms is not None and timestamp_ms > until_ms:
            continue
        if batch != last:
            last, producer = batch, _producer(table, batch)
        yield CoordinatorRecord(
            offset,
            timestamp_ms,
            view[key : key + key_length].tobytes() if key_length >= 0 <= key else None,
            view[value : value + value_length].tobytes() if value_length >= 0 <= value else None,
            *producer,
        )


def _producer(table: Columns, row: int) -> tuple[int, int, bool]:
    cells, capacity = table.cells, table.capacity
    if cells[C.MAGIC * capacity + row] < L.MAGIC_V2:
        return _NO_PRODUCER
    producer_id = cells[C.PRODUCER_ID * capacity + row]
    is_transactional = bool(cells[C.ATTRIBUTES * capacity + row] & L.TRANSACTIONAL_BIT)
    if producer_id == L.NO_PRODUCER_ID and not is_transactional:
        return _NO_PRODUCER
    return producer_id, cells[C.PRODUCER_EPOCH * capacity + row], is_transactional


def _markers(path: str, table: Columns, chunk: Chunk) -> Iterator[TransactionMarker | LogProblem]:
    for at in range(chunk.records.count):
        record = record_at(chunk, at)
        try:
            control = parse_control_record(record.key, record.value)
        except FormatError as error:
            yield LogProblem(path, record.offset, table.at(C.POSITION, chunk.first_row), str(error))
            continue
        if control.kind in (ABORT, COMMIT):
            producer_id, epoch, _ = _producer(table, chunk.first_row)
            coordinator_epoch = control.fields["coordinatorEpoch"]
            assert isinstance(coordinator_epoch, int)
            yield TransactionMarker(
                record.offset,
                record.timestamp_ms,
                producer_id,
                epoch,
                control.kind == COMMIT,
                coordinator_epoch,
            )
