"""Handmade batches, valid and damaged, decoded by the real iterators: kseg returns the same records, and errors for the same batches."""

from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kseg.segment.header_tables import Columns
from kseg.segment.java.java_output import decode_utf8
from kseg.segment.kernel import record_walk as R
from kseg.segment.scanning.decode import Decoder, record_at
from kseg.segment.scanning.scan import Scanner
from tests.kafka.oracle import Oracle
from tests.support.raw_batches import CASES, Case, sealed

pytestmark = pytest.mark.kafka
shared_oracle = settings(
    max_examples=150,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)


def asked(oracle: Oracle, data: bytes, place: Path) -> tuple[list[tuple[Any, ...]], bool]:
    """The records that the real iterators return before they end, and whether they end with an exception."""
    place.write_bytes(data)
    lines = oracle.records(place)
    records = [
        (*(line[name] for name in ("offset", "timestamp", "sequence", "key", "value", "headers")),)
        for line in lines
        if line["type"] == "record"
    ]
    return records, any(line["type"] == "error" for line in lines)


def ours(data: bytes) -> tuple[list[tuple[Any, ...]], bool]:
    records, failed = [], False
    decoder = Decoder(data)
    for block in Scanner(data).blocks():
        assert isinstance(block, Columns)
        for chunk in decoder.chunks(block):
            failed |= chunk.problem is not None
            for at in range(chunk.records.count):
                r = record_at(chunk, at)
                headers = [(decode_utf8(name), value) for name, value in r.headers]
                records.append((r.offset, r.timestamp_ms, r.sequence, r.key, r.value, headers))
    return records, failed


@pytest.mark.behaviour("F08", "F16", "F17", "F18", "F19", "F20", "F24", "F25", "F26", "F27", "F28")
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_batches_are_decoded_or_rejected_like_kafka(case: Case, oracle: Oracle, tmp_path: Path) -> None:
    theirs, failed = asked(oracle, case.data, tmp_path / "00000000000000000000.log")
    assert failed == (case.error != R.OK)
    expected = [(*rest, list(headers)) for *rest, headers in case.records]
    if case.data[16] == 2:
        assert agree(expected, theirs, failed)
    # Kafka decompresses a wrapper completely before it returns the first message
    else:
        assert theirs == ([] if failed else expected)


def agree(ours: list[tuple[Any, ...]], theirs: list[tuple[Any, ...]], failed: bool) -> bool:
    """Kafka does not return the last record if bytes remain after it; kseg returns it and reports the bytes."""
    return ours == theirs or (failed and ours[:-1] == theirs)


@shared_oracle
@given(draws=st.data())
def test_damaged_batch_bodies_are_decoded_or_rejected_like_kafka(
    draws: st.DataObject, oracle: Oracle, tmp_path: Path
) -> None:
    case = draws.draw(st.sampled_from([case for case in CASES if case.data[16] == 2]))
    body = bytearray(case.data[61:])
    for _ in range(draws.draw(st.integers(1, 3))):
        if body:
            body[draws.draw(st.integers(0, len(body) - 1))] = draws.draw(st.integers(0, 255))
    data = sealed(bytes(body), int.from_bytes(case.data[57:61], "big", signed=True))
    theirs, failed = asked(oracle, data, tmp_path / "00000000000000000000.log")
    records, refused = ours(data)
    assert refused == failed
    assert agree(records, theirs, failed)
