"""The records of a log in the batches that a producer with another batch.size and linger.ms would have sent.

Records of one producer are put into a batch one after the other, as the Java producer does (Kafka: RecordAccumulator.append,
MemoryRecordsBuilder.hasRoomFor):

- A batch takes its first record whatever its size, and a further one if the estimated bytes so far plus the record's
  uncompressed size are at most batch.size. It is full once the estimate reaches batch.size.
- The estimate is the header plus the uncompressed bytes; with compression, the latter × the ratio that the producer has estimated
  when the batch begins × 1.05.
- The ratio is updated from each batch that is sent (CompressionRatioEstimator): a lower one decreases it by at most 0.005, a higher one
  increases it by at least 0.05. So it stays above the true ratio, and batches stay below batch.size. The batch after a full one begins
  before the full one is sent.
- A batch is sent when its first record has waited for linger.ms. Records that were sent in one batch arrived together, so
  only the first record of each counts.

Transactional batches join only others of the same transaction; control batches stay. If a log has several producers without an
id, they count as one.
"""

from array import array
from collections.abc import Iterator, Sequence

from kseg.segment import layout as L
from kseg.segment.kernel.encode import encode_records
from kseg.segment.model import Record
from kseg.segment.values import dataclass

_ESTIMATION_FACTOR = 1.05  # Kafka: COMPRESSION_RATE_ESTIMATION_FACTOR
_IMPROVING_STEP, _DETERIORATING_STEP = 0.005, 0.05


@dataclass(frozen=True, slots=True)
class SampledBatch:
    """A batch of a sample. content: its records, uncompressed. is_fixed: no setting changes it (control batches, old formats, empty
    batches, and those that cannot be decompressed). records: empty when nothing needs them."""

    size_bytes: int
    codec: int
    content: bytes
    is_fixed: bool
    producer: tuple[int, int, bool]
    records: Sequence[Record] = ()


@dataclass(frozen=True, slots=True)
class JoinedBatch:
    """content: uncompressed records. codec: that of its first record."""

    content: bytes
    codec: int


class RatioEstimator:
    """A producer's estimate of compressed to uncompressed bytes. ratio: the initial one; None without compression."""

    def __init__(self, ratio: float | None) -> None:
        self.ratio = ratio

    def learn(self, observed: float) -> None:
        """Update the estimate from a batch that was closed."""
        if self.ratio is None:
            return
        if observed > self.ratio:
            self.ratio = max(self.ratio + _DETERIORATING_STEP, observed)
        elif observed < self.ratio:
            self.ratio = max(self.ratio - _IMPROVING_STEP, observed)


class _OpenBatch:
    """The records of a batch that is being filled. waits_from_ms: the timestamp of its first record. factor: of its estimate."""

    def __init__(self, batch: SampledBatch, first: int, factor: float) -> None:
        self.codec = batch.codec
        self.waits_from_ms = batch.records[first].timestamp_ms
        self.records: list[Record] = []
        self.plain_bytes = 0
        self._factor = factor
        self._whole: SampledBatch | None = batch if first == 0 else None

    @property
    def _estimate(self) -> int:
        return L.BATCH_HEADER + int(self.plain_bytes * self._factor)

    def take(self, record: Record, batch_size: int | None) -> bool:
        """Add a record, if there is room for it."""
        first_ms = self.records[0].timestamp_ms if self.records else record.timestamp_ms
        size = _size_of(record, len(self.records), record.timestamp_ms - first_ms)
        if self.records and batch_size is not None:
            estimate = self._estimate
            if estimate >= batch_size or estimate + size > batch_size:
                return False
        self.records.append(record)
        self.plain_bytes += size
        return True

    def closed(self) -> JoinedBatch:
        whole = self._whole
        if whole is not None and len(whole.records) == len(self.records):
            return JoinedBatch(whole.content, whole.codec)
        return JoinedBatch(_encoded(self.records), self.codec)


def joined(
    batches: Sequence[SampledBatch],
    batch_size: int | None,
    linger_ms: int | None,
    estimator: RatioEstimator,
) -> Iterator[JoinedBatch]:
    """The batches that replace those that are not fixed, each when it is closed. The caller updates the estimator with each before it takes
    the next."""
    open_batches: dict[tuple[int, int, bool], _OpenBatch] = {}
    for batch in batches:
        current = open_batches.pop(batch.producer, None)
        if current is not None and (batch.is_fixed or _has_waited(current, batch, linger_ms)):
            yield current.closed()  # a marker ends a transaction
            current = None
        if batch.is_fixed:
            continue
        for at, record in enumerate(batch.records):
            if current is None or not current.take(record, batch_size):
                ratio = estimator.ratio
                factor = 1.0 if ratio is None else ratio * _ESTIMATION_FACTOR
                full, current = current, _OpenBatch(batch, at, factor)
                current.take(record, batch_size)
                if full is not None:
                    yield full.closed()
        if current is not None:
            open_batches[batch.producer] = current
    for current in open_batches.values():
        yield current.closed()


def _has_waited(current: _OpenBatch, batch: SampledBatch, linger_ms: int | None) -> bool:
    waited_ms = batch.records[0].timestamp_ms - current.waits_from_ms
    return linger_ms is not None and not 0 <= waited_ms <= linger_ms


def _size_of(record: Record, offset_delta: int, time_delta: int) -> int:
    """Size of a record in a batch (Kafka: DefaultRecord.sizeInBytes)."""
    size = 1 + _varint_size(time_delta) + _varint_size(offset_delta) + _varint_size(len(record.headers))
    for field in (record.key, record.value, *(part for header in record.headers for part in header)):
        size += 1 if field is None else _varint_size(len(field)) + len(field)
    return _varint_size(size) + size


def _varint_size(value: int) -> int:
    zigzag = value << 1 if value >= 0 else (-value << 1) - 1
    return 1 if zigzag < 128 else (zigzag.bit_length() + 6) // 7


def _encoded(records: Sequence[Record]) -> bytes:
    plain = bytearray()
    encode_records(
        array("q", range(len(records))),
        array("q", [record.timestamp_ms for record in records]),
        0,
        records[0].timestamp_ms,
        [record.key for record in records],
        [record.value for record in records],
        [record.headers for record in records] if any(record.headers for record in records) else None,
        plain,
    )
    return bytes(plain)
