"""Handmade coordinator topics: keys and values encoded by their schemas, batches with producers and markers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from kseg.internal_topics import schemas
from kseg.segment.encoding.batch import encode_batch
from kseg.segment.model import NewBatch, Record
from kseg.segment.state.control import EndTransactionMarker, end_transaction_batch
from tests.internal_topics.metadata_logs import encoded

T0 = 1_795_250_580_883


def key(topic: str, type_id: int, /, **values: Any) -> bytes:
    """The key of a coordinator's record."""
    message = schemas.message(topic, "key", type_id)
    assert message is not None
    return type_id.to_bytes(2, "big") + encoded(message, values, 0)


def value(topic: str, type_id: int, version: int, /, **values: Any) -> bytes:
    """The value for a key of this type; fields that are not given have their defaults."""
    message = schemas.message(topic, "value", type_id)
    assert message is not None
    return version.to_bytes(2, "big") + encoded(message, values, version)


def batch(
    offset: int,
    *records: tuple[bytes | None, bytes | None],
    at_ms: int = T0,
    leader_epoch: int = 0,
    **more: Any,
) -> bytes:
    """A batch of records from `offset` and `at_ms` on, a millisecond apart. more: fields of `NewBatch`."""
    made = tuple(Record(offset + at, at_ms + at, *pair) for at, pair in enumerate(records))
    return encode_batch(NewBatch(records=made, leader_epoch=leader_epoch, **more))


def data_batch(
    offset: int,
    producer_id: int,
    epoch: int,
    *,
    count: int = 1,
    sequence: int = 0,
    at_ms: int = T0,
    **more: Any,
) -> bytes:
    """A batch of a transactional producer, with values that do not matter."""
    options = {"transactional": True, **more}
    records = [(None, b"value %d" % (offset + at)) for at in range(count)]
    return batch(
        offset,
        *records,
        at_ms=at_ms,
        producer_id=producer_id,
        producer_epoch=epoch,
        base_sequence=sequence,
        **options,
    )


def marker(
    offset: int,
    producer_id: int,
    epoch: int,
    *,
    is_abort: bool = False,
    coordinator_epoch: int = 0,
    at_ms: int = T0,
) -> bytes:
    """The marker that ends a transaction."""
    end = EndTransactionMarker(is_abort, coordinator_epoch, at_ms)
    return encode_batch(end_transaction_batch(end, offset, producer_id, epoch, 0))


def write_segment(directory: Path, *batches: bytes, base_offset: int = 0) -> Path:
    """Write a segment of these batches; returns its path."""
    directory.mkdir(parents=True, exist_ok=True)
    path = directory / f"{base_offset:020}.log"
    path.write_bytes(b"".join(batches))
    return path
