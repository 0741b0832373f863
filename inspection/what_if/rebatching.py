"""Adjacent batches joined as a producer with another batch.size and linger.ms would have sent them.

Records that a producer sent in one batch stay in one batch. Consecutive batches of one producer are joined while the first record of the
next one is at most linger.ms younger than the very first, and while there is room by the producer's own estimate (Kafka:
MemoryRecordsBuilder.hasRoomFor): the header, plus the uncompressed size of the records × the recent compression ratio × 1.05. So no batch
shrinks, and one that was sent because the old batch.size was reached grows. Transactional batches join only others of the same
transaction; control batches stay.
"""

from array import array
from collections.abc import Sequence

from kseg.segment import layout as L
from kseg.segment.kernel.encode import encode_records
from kseg.segment.model import Record
from kseg.segment.values import dataclass

_ESTIMATION_FACTOR = 1.05  # CompressionRatioEstimator, COMPRESSION_RATE_ESTIMATION_FACTOR


@dataclass(frozen=True, slots=True)
class SampledBatch:
    """A batch of a sample. content: its records, uncompressed. is_fixed: no setting changes it (control batches, old formats, empty batches,
    and those that cannot be decompressed). records: empty when nothing needs them."""

    size_bytes: int
    codec: int
    content: bytes
    is_fixed: bool
    producer: tuple[int, int, bool]
    records: Sequence[Record] = ()


@dataclass(frozen=True, slots=True)
class JoinedBatch:
    """content: uncompressed records. codec: of the first batch."""

    content: bytes
    codec: int


def joined(
    batches: Sequence[SampledBatch], batch_size: int | None, linger_ms: int | None, ratio: float
) -> list[JoinedBatch]:
    """Join the batches that are not fixed. ratio: compressed to uncompressed bytes, 1 without compression."""
    open_groups: dict[tuple[int, int, bool], list[SampledBatch]] = {}
    done: list[list[SampledBatch]] = []
    for batch in batches:
        if batch.is_fixed:
            group = open_groups.pop(batch.producer, None)  # a marker ends a transaction
            done += [group] if group else []
            continue
        group = open_groups.get(batch.producer)
        if group is not None and _has_room(group, batch, batch_size, linger_ms, ratio):
            group.append(batch)
            continue
        done += [group] if group else []
        open_groups[batch.producer] = [batch]
    return [*map(_join, done), *map(_join, open_groups.values())]


def _has_room(
    group: Sequence[SampledBatch],
    batch: SampledBatch,
    batch_size: int | None,
    linger_ms: int | None,
    ratio: float,
) -> bool:
    waited_ms = batch.records[0].timestamp_ms - group[0].records[0].timestamp_ms
    if linger_ms is not None and not 0 <= waited_ms <= linger_ms:
        return False
    plain = sum(len(each.content) for each in group) + len(batch.content)
    factor = 1.0 if ratio >= 1 else ratio * _ESTIMATION_FACTOR
    return batch_size is None or L.BATCH_HEADER + plain * factor <= batch_size


def _join(group: Sequence[SampledBatch]) -> JoinedBatch:
    if len(group) == 1:
        return JoinedBatch(group[0].content, group[0].codec)
    records = [record for batch in group for record in batch.records]
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
    return JoinedBatch(bytes(plain), group[0].codec)
