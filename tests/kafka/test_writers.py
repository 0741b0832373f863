"""The writers compared with the real MemoryRecordsBuilder: both produce equal bytes and reject the same input, and everything can be read
back."""

from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kseg.segment import layout as L
from kseg.segment.encoding.batch import encode_batch
from kseg.segment.errors import UsageError
from kseg.segment.model import NewBatch, Record
from tests.kafka.oracle import KafkaRaised, Oracle

pytestmark = pytest.mark.kafka
T0 = 1_700_000_000_000

fields = st.none() | st.binary(max_size=200)
names = st.text(max_size=9).map(str.encode)
times = st.integers(min_value=-1, max_value=2**60)
shared_oracle = settings(
    max_examples=60,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)


@st.composite
def new_batches(draw: st.DrawFn, codecs: tuple[int, ...]) -> NewBatch:
    """Any batch that both can write: offsets, times, contents, producers, and flags of all three formats."""
    magic = draw(st.sampled_from([2, 2, 0, 1]))
    legacy = magic < L.MAGIC_V2
    base = draw(st.integers(min_value=0, max_value=2**61))
    deltas = sorted(draw(st.sets(st.integers(min_value=0, max_value=2**31 - 1), min_size=1, max_size=8)))
    headers = st.just(()) if legacy else st.lists(st.tuples(names, fields), max_size=3).map(tuple)
    records = tuple(
        Record(base + delta, draw(times), draw(fields), draw(fields), draw(headers)) for delta in deltas
    )
    producer = not legacy and draw(st.booleans())
    append_time = magic > L.MAGIC_V0 and draw(st.booleans())
    return NewBatch(
        records=records,
        magic=magic,
        codec=draw(st.sampled_from([codec for codec in codecs if not (legacy and codec == L.ZSTD)])),
        base_offset=base,
        leader_epoch=-1 if legacy else draw(st.integers(min_value=-1, max_value=2**31 - 1)),
        log_append_time=append_time,
        max_timestamp_ms=draw(st.integers(min_value=0, max_value=2**60)) if append_time else None,
        transactional=producer and draw(st.booleans()),
        delete_horizon_ms=None if legacy else draw(st.none() | st.integers(min_value=0, max_value=2**60)),
        producer_id=draw(st.integers(min_value=0, max_value=2**63 - 1)) if producer else -1,
        producer_epoch=draw(st.integers(min_value=0, max_value=2**15 - 1)) if producer else -1,
        base_sequence=draw(st.integers(min_value=0, max_value=2**31 - 1)) if producer else -1,
    )


def order_of(new: NewBatch) -> dict[str, Any]:
    """The oracle request for the same batch."""
    order: dict[str, Any] = {
        "base_offset": new.records[0].offset if new.base_offset is None else new.base_offset,
        "magic": new.magic,
        "codec": L.codec_name(new.codec),
        "timestamp_type": L.LOG_APPEND_TIME if new.log_append_time else L.CREATE_TIME,
        "producer_id": new.producer_id,
        "producer_epoch": new.producer_epoch,
        "base_sequence": new.base_sequence,
        "transactional": new.transactional,
        "control": new.control,
        "leader_epoch": new.leader_epoch,
        "records": [
            {
                "offset": record.offset,
                "timestamp": record.timestamp_ms,
                "key": record.key,
                "value": record.value,
                "headers": [(name.decode(), value) for name, value in record.headers],
            }
            for record in new.records
        ],
    }
    if new.log_append_time:
        order["log_append_time"] = new.max_timestamp_ms
    if new.delete_horizon_ms is not None:
        order["delete_horizon_ms"] = new.delete_horizon_ms
    return order


@pytest.mark.behaviour("F01", "F12", "F14", "F21", "F49", "F50", "F51")
@shared_oracle
@given(new=new_batches(codecs=(L.NONE,)))
def test_uncompressed_batches_equal_memory_records_builder(oracle: Oracle, new: NewBatch) -> None:
    assert encode_batch(new) == oracle.make(order_of(new))


@pytest.mark.behaviour("F30", "F48")
@shared_oracle
@given(new=new_batches(codecs=(L.GZIP, L.SNAPPY, L.LZ4, L.ZSTD)))
def test_kafka_reads_compressed_batches(
    oracle: Oracle, tmp_path_factory: pytest.TempPathFactory, new: NewBatch
) -> None:
    file: Path = tmp_path_factory.mktemp("log") / "00000000000000000000.log"
    file.write_bytes(encode_batch(new))
    head, *lines = oracle.records(file)
    assert head["type"] == "batch"
    assert head["valid"]
    assert [line["type"] for line in lines] == ["record"] * len(new.records)
    assert [
        (
            line["offset"],
            line["key"],
            line["value"],
            [(name.encode(), value) for name, value in line["headers"]],
        )
        for line in lines
    ] == [(record.offset, record.key, record.value, list(record.headers)) for record in new.records]
    expected = [
        new.max_timestamp_ms if new.log_append_time else record.timestamp_ms for record in new.records
    ]
    assert [line["timestamp"] for line in lines] == (expected if new.magic else [-1] * len(lines))


ONE = (Record(0, T0, b"k", b"v"),)
PRODUCER = {"producer_id": 1, "producer_epoch": 0, "base_sequence": 0}


@pytest.mark.behaviour("F29", "F52")
@pytest.mark.parametrize(
    "new",
    [
        NewBatch(records=ONE, transactional=True),
        NewBatch(records=ONE, producer_id=1, base_sequence=0),
        NewBatch(records=ONE, producer_id=1, producer_epoch=0),
        NewBatch(records=ONE, control=True),
        NewBatch(records=(Record(1, T0, None, None), Record(1, T0, None, None))),
        NewBatch(records=(Record(0, T0, None, None), Record(2**31, T0, None, None))),
        NewBatch(records=(Record(0, -2, None, None),)),
        *(NewBatch(records=ONE, magic=magic, transactional=True, **PRODUCER) for magic in (0, 1)),  # type: ignore[arg-type]
        *(NewBatch(records=ONE, magic=magic, **PRODUCER) for magic in (0, 1)),  # type: ignore[arg-type]
        *(NewBatch(records=ONE, magic=magic, control=True) for magic in (0, 1)),
        *(NewBatch(records=ONE, magic=magic, codec=L.ZSTD) for magic in (0, 1)),
        *(NewBatch(records=ONE, magic=magic, delete_horizon_ms=T0) for magic in (0, 1)),
        *(
            NewBatch(records=(Record(0, T0, None, None, headers=((b"h", None),)),), magic=magic)
            for magic in (0, 1)
        ),
    ],
)
def test_input_refused_by_memory_records_builder_is_refused(oracle: Oracle, new: NewBatch) -> None:
    with pytest.raises(KafkaRaised):
        oracle.make(order_of(new))
    with pytest.raises(UsageError):
        encode_batch(new)
