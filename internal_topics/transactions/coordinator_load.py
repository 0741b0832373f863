"""One partition of `__transaction_state`, as its log has it and as its coordinator loads it.

1. Records in offset order. The newest of each key counts, among those that can be loaded.
2. The coordinator ends its load at the first record that it cannot load, and at a batch that cannot be read; it serves the ids as they
   were before that, and does not know those that come later (observed with 4.3.1).
3. It does not verify checksums. At damaged bytes it ends its load as well, accepts what they say (`unchecked_batches`), or skips the rest
   of the segment; and it ends its load where a chunk that it has read ends with offsets beyond the log end. If it is uncertain which of
   these happens, it is also uncertain whether the records after the damage are loaded. An incomplete batch at the end of the log has no
   effect.

(Kafka: TransactionStateManager.loadTransactionMetadata.)
"""

from array import array
from collections.abc import Iterator, Mapping
from dataclasses import replace

from kseg.internal_topics.coordinator_log import (
    DOUBLED_END,
    ENDS_EVERY_LOAD,
    CoordinatorRecord,
    LogProblem,
    read_coordinator_log,
    taken_over,
)
from kseg.internal_topics.coordinator_reading import BEYOND_THE_END, ENDLESS, PASSED_OVER
from kseg.internal_topics.decoding import decode_key
from kseg.internal_topics.load_findings import TORN_TAIL, Effects, LoadFindings
from kseg.internal_topics.transactions.last_commits import LastCommits
from kseg.internal_topics.transactions.load_check import is_ordinary
from kseg.internal_topics.transactions.transaction_log import (
    DEAD,
    EPOCH_PER_TRANSACTION,
    TRANSACTION_STATE,
    Decisions,
    PassedOver,
    TransactionalId,
    TransactionLog,
    Unloadable,
    load_finding,
    loaded_record,
)
from kseg.segment.errors import FormatError
from kseg.segment.findings import Finding
from kseg.segment.partition.targets import LogTarget

# positions in a value of any version
_VERSION = slice(0, 2)
_PRODUCER_ID = slice(2, 10)
_EPOCH = slice(10, 12)
_EFFECTS = Effects(
    ends="the coordinator stops loading the partition there",
    may_end="the coordinator may stop loading the partition there",
    taken_over="the coordinator does not verify checksums, and accepts what these bytes say",
    unchecked="the coordinator does not verify checksums: it accepts what these bytes say, or stops loading the partition there",
)
# in a value of version 1: the status CompleteCommit with no partitions; then two timestamps, and the tagged fields at position 34
_COMPLETE_COMMIT_WITHOUT_PARTITIONS, _STATUS_AND_PARTITIONS, _TAGS = b"\4\1", slice(16, 18), 34
_STATUS, _PREPARE_COMMIT_OR_ABORT = slice(16, 17), (b"\2", b"\3")  # in a value of any version
_PREVIOUS_ID_TAG, _CLIENT_VERSION_TAG, _MANY = 0, 2, 0x80  # _MANY: set if a varint continues
_PREPARE_COMMIT, _VERSION_1 = b"\2", b"\0\1"
_LAST_EPOCH = 2**15 - 1

Newest = dict[bytes | None, CoordinatorRecord]


def read_transaction_log(target: LogTarget) -> TransactionLog:
    """Read one partition. Of each key only the newest record is decoded, and those that may not be loadable. Raises UnreadableInput."""
    load = _Load(target.path)
    for entry in read_coordinator_log(target):
        if isinstance(entry, CoordinatorRecord):
            load.take(entry)
        elif isinstance(entry, LogProblem):
            load.meet(entry)
    return load.result()


class _Load:
    """The load of one partition, record by record."""

    def __init__(self, path: str) -> None:
        self._newest: Newest = {}
        self._at_the_end: Newest | None = None  # the newest records where the load stopped
        self._end: int | None = None  # the offset at which the load stops
        self._doubt: int | None = None  # the offset at which the load may stop
        self._offset = -1  # of the last record
        self._former_keys: dict[int, bytes] = {}
        self._committed: dict[int, array[int]] = {}
        self._decided: dict[int, Decisions] = {}
        self._commits: dict[int, LastCommits] = {}
        self._path = path
        self._found = LoadFindings(path, _EFFECTS)
        self._records = 0

    def take(self, record: CoordinatorRecord) -> None:
        self._records += 1
        if record.key is not None and record.value is not None:
            producer_id = int.from_bytes(record.value[_PRODUCER_ID], "big", signed=True)
            self._former_keys[producer_id] = record.key
            if record.value[_STATUS] in _PREPARE_COMMIT_OR_ABORT:
                self._decide(producer_id, record, record.value)
            committed = _committed(record.value, producer_id)
            if committed is not None:
                self._committed.setdefault(committed[0], array("h")).append(committed[1])
        self._take(record)

    def _decide(self, producer_id: int, record: CoordinatorRecord, value: bytes) -> None:
        """Note a record in a Prepare state."""
        decisions = self._decided.get(producer_id)
        if decisions is None:
            commits = self._commits[producer_id] = LastCommits()
            decisions = self._decided[producer_id] = Decisions(record, commits)
        decisions.last = record
        if value[_STATUS] == _PREPARE_COMMIT and value[_VERSION] == _VERSION_1:
            self._commits[producer_id].add(record)

    def _take(self, record: CoordinatorRecord) -> None:
        """A record, or what damaged bytes say."""
        self._offset = record.offset
        if self._end is not None and record.offset >= self._end:
            self._stop()
        if not is_ordinary(record.key, record.value):
            try:
                loaded_record(record)
            except (Unloadable, PassedOver) as error:
                self._found.record(load_finding(self._path, record.offset, error))
                if isinstance(error, Unloadable):
                    self._stop()
                return
        self._newest[record.key] = record

    def meet(self, problem: LogProblem) -> None:
        """What cannot be read, before the next record; a batch of unknown magic also before records that precede it."""
        if problem.damage == DOUBLED_END:  # this coordinator does not check that offsets increase
            return
        self._found.damage(problem, self._records)
        if problem.damage in (TORN_TAIL, PASSED_OVER):
            return
        offset = self._offset + 1 if problem.offset is None else problem.offset
        read = problem.unchecked
        if read is not None:
            for record in taken_over(problem):
                self._take(record)
            if read.ends:
                self._stop()
        elif problem.damage in (*ENDS_EVERY_LOAD, ENDLESS):
            self._end = offset if self._end is None else self._end
        elif problem.damage == BEYOND_THE_END:
            self._doubt = offset - 1 if self._doubt is None else min(self._doubt, offset - 1)
        else:
            self._doubt = offset if self._doubt is None else self._doubt

    def _stop(self) -> None:
        if self._at_the_end is None:
            self._at_the_end = dict(self._newest)

    def result(self) -> TransactionLog:
        """After the last record."""
        ids = dict(self._ids(self._newest))
        loaded = ids if self._at_the_end is None else dict(self._ids(self._at_the_end))
        former = dict(_names_of(self._former_keys))
        return TransactionLog(ids, loaded, former, self._committed, self._decided, self._findings())

    def _findings(self) -> tuple[Finding, ...]:
        return *self._found.of_damage(self._records), *self._found.of_records()

    def _ids(self, records: Newest) -> Iterator[tuple[str, TransactionalId]]:
        """The ids that exist by the newest record of each key."""
        for key, record in records.items():
            name, known = loaded_record(record)
            if known is None or known.state == DEAD:
                continue
            if self._at_the_end is not None and self._at_the_end.get(key) is not record:
                known = replace(known, is_loaded=False)
            elif self._doubt is not None and record.offset > self._doubt:
                known = replace(known, is_loaded=None)
            yield name, known


def _committed(value: bytes, producer_id: int) -> tuple[int, int] | None:
    """(producer id, epoch of the marker) if a value is the record of a committed transaction of the second protocol, as a coordinator
    writes it. A transaction that exhausts the epochs of its producer id is completed with the next id and epoch 0 (observed with 4.3.1)."""
    if value[_STATUS_AND_PARTITIONS] != _COMPLETE_COMMIT_WITHOUT_PARTITIONS or value[_VERSION] != _VERSION_1:
        return None
    at, end, previous_id, is_of_second = _TAGS + 1, len(value), producer_id, False
    while at + 1 < end:
        tag, length = value[at], value[at + 1]
        if tag >= _MANY or length >= _MANY:
            return None
        content = int.from_bytes(value[at + 2 : at + 2 + length], "big", signed=True)
        if tag == _PREVIOUS_ID_TAG:
            previous_id = content
        is_of_second |= tag == _CLIENT_VERSION_TAG and content == EPOCH_PER_TRANSACTION
        at += 2 + length
    if not is_of_second:
        return None
    epoch = int.from_bytes(value[_EPOCH], "big", signed=True)
    return (
        (previous_id, _LAST_EPOCH)
        if not epoch and previous_id not in (-1, producer_id)
        else (producer_id, epoch)
    )


def _names_of(keys: Mapping[int, bytes]) -> Iterator[tuple[int, str]]:
    for producer_id, key in keys.items():
        try:
            yield producer_id, decode_key(TRANSACTION_STATE, key).values["transactionalId"]
        except FormatError:
            continue
