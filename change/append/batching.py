"""From JSON lines to batches: either with the headers in the input, or with new ones.

1. A `batch` line opens a batch. The record lines that follow belong to it until its count is reached (if the count is null:
   as long as they name the same position). It is written with the fields of the line.
2. Records without a header are collected into a new batch. It ends when it has enough records or bytes, when an offset would
   not fit, or at the next header or control record.
3. A control record without a header is a batch of its own; so is the marker that ends a transaction, one of this run or, if only
   the marker is requested, the one that its producer has open in the log.
4. Offsets are taken from the lines and must be above the log end; a line without an offset, or every line if requested,
   gets the next one. Renumbered batches keep the gaps between their records.

5. A header that was already given, with further records, continues its batch: two dumps of it meet inside a batch.
6. Records at the offsets of --leave-out are left out, and with them a batch of which no record is left, as in a compacted log.

If a filter left further records out of a batch (its count is higher than the number of records that follow), the batch is refused unless
--partial-batches is given: a truncated stream looks the same.
"""

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import replace

from kseg.change.append.json_input import BadLine, BatchLine, Row, batch_line, is_copy, record_line
from kseg.segment import layout as L
from kseg.segment.errors import UsageError
from kseg.segment.model import NewBatch, Record
from kseg.segment.state.control import EndTransactionMarker, end_transaction_batch
from kseg.segment.values import dataclass

DEFAULT_BATCH_BYTES = 16 * 1024  # as Kafka's producer: batch.size
_RECORD_OVERHEAD = 21  # most that a record adds to its key, value and headers (Kafka: MAX_RECORD_OVERHEAD)
_HEADER_OVERHEAD = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchRules:
    """How batches are made.

    For every batch: codec, leader_epoch (None: what the header says, else none and the log's latest), keep_offsets
    (None: where the lines have offsets), partial_batches: accept headers with fewer records than they count, leave_out: the
    offsets of lines that are left out. For batches without a header in the input: magic, batch_records (None: no limit), batch_bytes
    (uncompressed), producer_id, producer_epoch, base_sequence (None: continue the log's state), transactional, end_transaction:
    "commit", "abort" or "open". marker: "commit" or "abort" to write only the marker that ends the producer's open transaction, None
    for lines. now_ms: timestamp of markers, and of records that have none. topic_codec: used for batches without a header in the input if
    codec is None. log_append_time: whether a broker would stamp new records and markers with the time of the append
    (message.timestamp.type).
    """

    now_ms: int
    codec: int | None = None
    leader_epoch: int | None = None
    keep_offsets: bool | None = None
    partial_batches: bool = False
    leave_out: tuple[range, ...] = ()
    magic: int = L.MAGIC_V2
    batch_records: int | None = None
    batch_bytes: int = DEFAULT_BATCH_BYTES
    producer_id: int = L.NO_PRODUCER_ID
    producer_epoch: int | None = None
    base_sequence: int | None = None
    transactional: bool = False
    end_transaction: str = "commit"
    marker: str | None = None
    topic_codec: int = L.NONE
    log_append_time: bool = False

    def __post_init__(self) -> None:
        if (self.transactional or self.marker is not None) and self.producer_id < 0:
            raise UsageError("a transaction needs a producer id")


@dataclass(frozen=True, slots=True)
class Producer:
    """The producer of batches without a header in the input: its id, epoch and next sequence. coordinator_epoch: of its markers."""

    producer_id: int = L.NO_PRODUCER_ID
    epoch: int = L.NO_PRODUCER_EPOCH
    sequence: int = L.NO_SEQUENCE
    coordinator_epoch: int = 0


@dataclass(frozen=True, slots=True)
class MadeBatch:
    """A batch and the number of its first line, 0 for a marker without lines."""

    number: int
    batch: NewBatch


class Batcher:
    """Makes batches from lines. next_offset: the log end offset. leader_epoch: of batches without a header in the input.

    ignored: number of lines that are not used, by type. left_out: number of damaged batches in the input, which are skipped. restamped:
    number of timestamps in the lines of new records that the time of the append has replaced.
    """

    def __init__(self, rules: BatchRules, next_offset: int, leader_epoch: int, producer: Producer) -> None:
        self.rules = rules
        self.next_offset = next_offset
        self.ignored: Counter[str] = Counter()
        self.left_out = 0
        self.restamped = 0
        self._leader_epoch = leader_epoch
        self._producer = producer
        self._header: BatchLine | None = None
        self._damaged: BatchLine | None = None  # a damaged batch, whose records are left out
        self._records: list[Record] = []
        self._number = 0  # line number at which the open batch begins
        self._bytes = 0
        self._are_copies = True  # the records of the open batch are lines of a dump or an export
        self._in_transaction = rules.marker is not None

    def batches(self, rows: Iterable[tuple[int, Row]]) -> Iterator[MadeBatch]:
        """The batches of all lines. Raises BadLine."""
        for number, row in rows:
            kind = row.get("type", "record")
            if kind == "record":
                yield from self._take_record(row, number)
            elif kind == "batch":
                header = batch_line(row, number)
                if self._header is not None and self._is_continued(self._header, header):
                    self._header = replace(self._header, source=header.source)
                    continue
                yield from self._close()
                self._open(header)
            else:
                self.ignored[str(kind)] += 1
        yield from self._close()
        yield from self._end_transaction(self.rules.marker or self.rules.end_transaction)

    # --- headers

    def _open(self, header: BatchLine) -> None:
        self._damaged = None if header.is_valid else header
        if header.is_valid:
            self._header, self._number = header, header.number
        else:
            self.left_out += 1

    def _is_continued(self, header: BatchLine, following: BatchLine) -> bool:
        """Whether the line that follows has the header of the same batch, of which some records have come."""
        if header.count is None or not 0 < len(self._records) < header.count:
            return False
        return replace(following, number=header.number, source=header.source) == header

    def _belongs(self, row: Row, header: BatchLine) -> bool:
        if header.count is not None:
            return len(self._records) < header.count
        return "position" not in row or (row.get("file"), row["position"]) == header.source

    def _close_header(self, header: BatchLine) -> Iterator[MadeBatch]:
        records, self._header, self._records = tuple(self._records), None, []
        if not header.is_of_log:
            self.ignored["batch of a snapshot"] += 1
            return
        count = len(records) if header.count is None else header.count
        kept = records
        if self.rules.leave_out:
            kept = tuple(each for each in records if not self._is_left_out(each.offset))
            if len(kept) < len(records):
                self.ignored["record"] += len(records) - len(kept)
        if not records and (count or None in (header.count, header.base_offset, header.last_offset)):
            raise BadLine(header.number, "its batch is not followed by records (dump with --deep-iteration)")
        if len(records) < count and not self.rules.partial_batches:
            why = f"its batch has {count} records, {len(records)} follow (--partial-batches accepts that)"
            raise BadLine(header.number, why)
        if kept or not records:
            yield self._made(header.number, self._renumbered(self._from_header(header, kept)))

    def _is_left_out(self, offset: object) -> bool:
        return any(offset in each for each in self.rules.leave_out)

    def _from_header(self, header: BatchLine, records: tuple[Record, ...]) -> NewBatch:
        rules = self.rules
        codec = header.codec if rules.codec is None else rules.codec
        leader_epoch = header.leader_epoch if rules.leader_epoch is None else rules.leader_epoch
        if header.magic < L.MAGIC_V2:
            leader_epoch = L.NO_LEADER_EPOCH
        elif leader_epoch is None:
            leader_epoch = self._leader_epoch
        # without some of its records, a batch has the maximum timestamp of the others, as after compaction
        is_less = bool(records) and header.count is not None and len(records) < header.count
        return NewBatch(
            records=records,
            magic=header.magic,
            codec=L.NONE if header.control or not records else codec,
            base_offset=header.base_offset,
            last_offset=header.last_offset,
            leader_epoch=leader_epoch,
            log_append_time=header.log_append_time,
            transactional=header.transactional,
            control=header.control,
            delete_horizon_ms=header.delete_horizon_ms,
            max_timestamp_ms=None if is_less and not header.log_append_time else header.max_timestamp_ms,
            producer_id=header.producer_id,
            producer_epoch=header.producer_epoch,
            base_sequence=header.base_sequence,
            is_copy=True,
        )

    def _renumbered(self, new: NewBatch) -> NewBatch:
        """The batch with its own offsets, or moved to the log end."""
        if self.rules.keep_offsets is not False:
            return new
        first = new.records[0].offset if new.base_offset is None else new.base_offset
        shift = self.next_offset - first
        return replace(
            new,
            records=tuple(replace(record, offset=record.offset + shift) for record in new.records),
            base_offset=None if new.base_offset is None else new.base_offset + shift,
            last_offset=None if new.last_offset is None else new.last_offset + shift,
        )

    # --- records

    def _take_record(self, row: Row, number: int) -> Iterator[MadeBatch]:
        if self._damaged is not None:
            if (row.get("file"), row.get("position")) == self._damaged.source:
                return
            self._damaged = None
        header = self._header
        if header is not None:
            if self._belongs(row, header):
                following = self._records[-1].offset + 1 if self._records else header.base_offset
                offset = self.next_offset if following is None else following
                self._records.append(record_line(row, number, offset, self.rules.now_ms))
                return
            yield from self._close()
        if self._is_left_out(row.get("offset")):
            self.ignored["record"] += 1
            return
        following = self._records[-1].offset + 1 if self._records else self.next_offset
        keep_offset = self.rules.keep_offsets is not False and "next_offset" not in row
        record = record_line(row, number, following, self.rules.now_ms, keep_offset=keep_offset)
        if record.offset < following:
            why = f"its offset {record.offset} is not above {following - 1} (--no-keep-offsets renumbers)"
            raise BadLine(number, why)
        if "control" in row:
            yield from self._close()
            yield self._marker(record, number)
            return
        size_bytes = record_bytes(record)
        if self._records and self._is_full(record, size_bytes):
            yield from self._close()
        if not self._records:
            self._number, self._bytes, self._are_copies = number, L.BATCH_HEADER, True
        self._are_copies &= is_copy(row)
        self._records.append(record)
        self._bytes += size_bytes

    def _is_full(self, record: Record, size_bytes: int) -> bool:
        rules = self.rules
        return (
            self._bytes + size_bytes > rules.batch_bytes
            or (rules.batch_records is not None and len(self._records) >= rules.batch_records)
            or record.offset - self._records[0].offset > L.INT32_MAX
        )

    def _close(self) -> Iterator[MadeBatch]:
        """Finish the open batch, if there is one."""
        if self._header is not None:
            yield from self._close_header(self._header)
        elif self._records:
            records, self._records = tuple(self._records), []
            made = self._made(self._number, self._our_batch(records))
            self._in_transaction = self.rules.transactional
            yield made

    def _our_batch(self, records: tuple[Record, ...]) -> NewBatch:
        rules, producer = self.rules, self._producer
        is_new = rules.magic >= L.MAGIC_V2
        if producer.producer_id >= 0:
            span = records[-1].offset - records[0].offset + 1
            self._producer = replace(producer, sequence=L.increment_sequence(producer.sequence, span))
        is_stamped = rules.log_append_time and rules.magic > L.MAGIC_V0 and not self._are_copies
        if is_stamped:
            self.restamped += sum(record.timestamp_ms != rules.now_ms for record in records)
            records = tuple(replace(record, timestamp_ms=rules.now_ms) for record in records)
        return NewBatch(
            records=records,
            magic=rules.magic,
            codec=rules.topic_codec if rules.codec is None else rules.codec,
            log_append_time=is_stamped,
            max_timestamp_ms=rules.now_ms if is_stamped else None,
            leader_epoch=self._leader_epoch if is_new else L.NO_LEADER_EPOCH,
            transactional=rules.transactional,
            producer_id=producer.producer_id,
            producer_epoch=producer.epoch,
            base_sequence=producer.sequence,
            is_copy=self._are_copies,
        )

    # --- control records

    def _marker(self, record: Record, number: int) -> MadeBatch:
        producer = self._producer
        new = NewBatch(
            records=(record,),
            control=True,
            transactional=producer.producer_id >= 0,
            leader_epoch=self._leader_epoch,
            producer_id=producer.producer_id,
            producer_epoch=producer.epoch,
        )
        self._in_transaction = False
        return self._made(number, new)

    def _end_transaction(self, how: str) -> Iterator[MadeBatch]:
        if not self._in_transaction or how == "open":
            return
        producer = self._producer
        marker = EndTransactionMarker(how == "abort", producer.coordinator_epoch, self.rules.now_ms)
        new = end_transaction_batch(
            marker, self.next_offset, producer.producer_id, producer.epoch, self._leader_epoch
        )
        if self.rules.log_append_time:
            new = replace(new, log_append_time=True, max_timestamp_ms=self.rules.now_ms)
        self._in_transaction = False
        yield self._made(self._number, new)

    def _made(self, number: int, new: NewBatch) -> MadeBatch:
        self.next_offset = 1 + (new.records[-1].offset if new.last_offset is None else new.last_offset)
        return MadeBatch(number, new)


def record_bytes(record: Record) -> int:
    """The most that a record takes in an uncompressed batch, as Kafka's producer estimates it."""
    size_bytes = _RECORD_OVERHEAD
    if record.key is not None:
        size_bytes += len(record.key)
    if record.value is not None:
        size_bytes += len(record.value)
    for name, value in record.headers:
        size_bytes += _HEADER_OVERHEAD + len(name) + len(value or b"")
    return size_bytes
