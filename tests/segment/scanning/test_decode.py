"""From batches to records: valid ones are read as Kafka reads them; invalid ones get a code and do not affect the others."""

from __future__ import annotations

import struct
import tracemalloc
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kseg.segment import header_tables as C
from kseg.segment import layout as L
from kseg.segment.encoding.batch import encode_batch
from kseg.segment.header_tables import Columns
from kseg.segment.kernel import record_walk as R
from kseg.segment.model import NewBatch, Record
from kseg.segment.scanning.batches import batch_at, scan
from kseg.segment.scanning.decode import Decoder, Problem, record_at
from kseg.segment.scanning.scan import Scanner
from tests.support import raw_batches, reference_reader
from tests.support.raw_batches import CASES, T0, Case, message, record, sealed, wrapper


def decoded(
    data: bytes, capacity: int = 8192, limit_bytes: int = 2**28
) -> tuple[list[Record], list[Problem]]:
    """All records and problems of a file whose batches are all valid."""
    decoder = Decoder(data, capacity, limit_bytes)
    records, problems = [], []
    for block in Scanner(data).blocks():
        assert isinstance(block, Columns), block
        for chunk in decoder.chunks(block):
            records += [record_at(chunk, at) for at in range(chunk.records.count)]
            assert list(chunk.records.column(C.R_BATCH)) == sorted(chunk.records.column(C.R_BATCH))
            if chunk.problem is not None:
                assert chunk.problem.row == chunk.last_row
                problems.append(chunk.problem)
    return records, problems


def marked(case: Case) -> object:
    return pytest.param(case, id=case.name, marks=[pytest.mark.behaviour(*case.rows)] if case.rows else [])


def as_expected(records: list[Record]) -> tuple[raw_batches.Expected, ...]:
    return tuple(
        (
            r.offset,
            r.timestamp_ms,
            r.sequence,
            r.key,
            r.value,
            tuple((name.decode(), value) for name, value in r.headers),
        )
        for r in records
    )


@pytest.mark.parametrize("case", [marked(case) for case in CASES])
class TestCases:
    def test_case_is_decoded_alone(self, case: Case) -> None:
        records, problems = decoded(case.data)
        assert as_expected(records) == case.records
        assert [problem.code for problem in problems] == ([] if case.error == R.OK else [case.error])
        assert all(problem.sentence for problem in problems)

    def test_case_is_decoded_between_others_in_tiny_tables(self, case: Case) -> None:
        """An invalid batch does not affect its neighbours, even if a table becomes full in the middle."""
        around = sealed(record() + record(1), 2)
        for capacity in (1, 2, 3):
            records, problems = decoded(around + case.data + around + case.data + around, capacity)
            two = (raw_batches.plain(1000), raw_batches.plain(1001))
            assert as_expected(records) == two + case.records + two + case.records + two
            assert len(problems) == (0 if case.error == R.OK else 2)


@pytest.mark.behaviour("F08")
@pytest.mark.parametrize("codec", range(len(L.CODEC_NAMES)))
@pytest.mark.parametrize(("change", "error"), [(1, R.TOO_FEW_RECORDS), (-1, R.BYTES_LEFT_OVER)])
def test_wrong_record_count_is_an_error_in_every_codec(codec: int, change: int, error: int) -> None:
    records = tuple(Record(row, T0, b"k", b"v" * 50) for row in range(5))
    data = bytearray(encode_batch(NewBatch(records=records, codec=codec)))
    data[57:61] = struct.pack(">i", 5 + change)
    found, problems = decoded(_resealed(data))
    assert [problem.code for problem in problems] == [error]
    assert [r.offset for r in found] == list(range(min(5, 5 + change)))


def _resealed(data: bytearray) -> bytes:
    from kseg.segment.crc import crc32c

    data[17:21] = crc32c(data[21:]).to_bytes(4, "big")
    return bytes(data)


@pytest.mark.behaviour("F01")
def test_batches_match_the_vectors() -> None:
    data = bytes.fromhex(
        "0000000000000000 00000045 00000000 02 a3f18511 0000 00000001 0000018bcfe56800 0000018bcfe56801"
        "ffffffffffffffff ffff ffffffff 00000002 10 00 00 00 02 61 02 78 00 14 00 02 02 02 62 01 02 02 68 01"
    )
    records, problems = decoded(data)
    assert problems == []
    assert records == [Record(0, T0, b"a", b"x"), Record(1, T0 + 1, b"b", None, ((b"h", None),))]
    (found,) = scan(data)
    assert (found.crc_valid, found.crc, found.size_bytes) == (True, 2750514449, 81)  # type: ignore[union-attr]


@pytest.mark.behaviour("F02")
def test_empty_batch_matches_the_vector() -> None:
    data = bytes.fromhex(
        "000000000000000a 00000031 00000002 02 2c453930 0000 00000004 ffffffffffffffff 0000018bcfe56800"
        "0000000000000009 0000 00000000 00000000"
    )
    assert decoded(data) == ([], [])
    block = next(Scanner(data).blocks())
    assert isinstance(block, Columns)
    batch = batch_at(block, 0)
    assert (batch.count, batch.last_offset, batch.last_sequence, batch.crc) == (0, 14, 4, 742734128)


@pytest.mark.behaviour("F21")
@pytest.mark.parametrize(
    ("data", "crc", "timestamp"),
    [
        ("0000000000000007 00000010 1fecd70a 00 00 00000001 6b 00000001 76", 535615242, -1),
        (
            "0000000000000007 00000018 bf070c1c 01 00 0000015d3ef79800 00000001 6b 00000001 76",
            3204910108,
            1500000000000,
        ),
    ],
)
def test_old_format_messages_match_the_vectors(data: str, crc: int, timestamp: int) -> None:
    records, problems = decoded(bytes.fromhex(data))
    assert problems == []
    assert records == [Record(7, timestamp, b"k", b"v", crc=crc, crc_valid=True)]


@pytest.mark.behaviour("F05", "F06")
def test_sequence_arithmetic_wraps_and_is_reversible() -> None:
    top = L.INT32_MAX
    assert L.increment_sequence(top - 5, 10) == 4
    assert L.increment_sequence(top, 1) == 0
    assert L.decrement_sequence(4, 10) == top - 5
    for sequence in (0, 1, 5, top - 1, top):
        for step in (0, 1, 7, top - 1, top):
            there = L.increment_sequence(sequence, step)
            assert 0 <= there <= top
            assert L.decrement_sequence(there, step) == sequence


def test_inner_checksums_are_verified_individually() -> None:
    inner = bytearray(raw_batches.three(1, 0, 1, 2))
    inner[-1] ^= 1
    records, problems = decoded(wrapper(500, bytes(inner)))
    assert problems == []
    assert [record.crc_valid for record in records] == [True, True, False]


@pytest.mark.behaviour("F24")
def test_value_longer_than_its_message_is_reported_and_the_rest_is_read() -> None:
    """Kafka fails only when the value is read."""
    broken = message(1, b"k", b"v", raw=struct.pack(">i", 1) + b"k" + struct.pack(">i", 99) + b"v")
    data = wrapper(500, raw_batches.three(1, 0) + broken + raw_batches.three(1, 2))
    records, problems = decoded(data)
    assert [problem.code for problem in problems] == [R.VALUE_BEYOND_MESSAGE]
    assert [(record.offset, record.value) for record in records] == [(498, b"v"), (499, None), (500, b"v")]
    plain_records, plain_problems = decoded(broken)
    assert [problem.code for problem in plain_problems] == [R.VALUE_BEYOND_MESSAGE]
    assert [record.key for record in plain_records] == [b"k"]


@pytest.mark.parametrize("magic", [0, 1])
@pytest.mark.parametrize("key_length", [2, 50, 2**31 - 1, -(2**31)])
def test_key_longer_than_its_message_is_an_error(magic: int, key_length: int) -> None:
    data = message(1, None, None, magic=magic, raw=struct.pack(">i", key_length) + b"k" * 4)
    _, problems = decoded(data)
    # below zero the key is null, and the next four bytes are the length of the value
    expected = R.VALUE_BEYOND_MESSAGE if key_length < 0 else R.MESSAGE_TOO_SHORT
    assert [problem.code for problem in problems] == [expected]


@pytest.mark.parametrize("count", [10**6, 2**31 - 1])
@pytest.mark.parametrize("codec", [L.NONE, L.GZIP])
def test_huge_record_count_takes_neither_time_nor_memory(count: int, codec: int) -> None:
    body = record() * 3
    data = sealed(raw_batches.gzip(body) if codec else body, count, attributes=codec)
    decoder = Decoder(data, 64)
    block = next(Scanner(data).blocks())
    assert isinstance(block, Columns)
    tracemalloc.start()
    try:
        chunks = [(chunk.records.count, chunk.problem) for chunk in decoder.chunks(block)]
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert sum(found for found, _ in chunks) == 3
    assert chunks[-1][1] is not None and chunks[-1][1].code == R.TOO_FEW_RECORDS
    assert peak < 300_000


def test_huge_header_count_is_refused_at_once() -> None:
    body = raw_batches.sized(raw_batches.fields_of(headers=raw_batches.varint(2**31 - 1) + bytes(40)))
    assert [problem.code for problem in decoded(sealed(body, 1))[1]] == [R.BAD_HEADER_COUNT]


@pytest.mark.parametrize("magic", [1, 2])
def test_decompression_is_bounded(magic: int) -> None:
    large = bytes(3_000_000)
    if magic == 2:
        data = sealed(raw_batches.gzip(record(value=large)), 1, attributes=L.GZIP)
    else:
        data = wrapper(0, message(0, None, large))
    records, problems = decoded(data, limit_bytes=2_000_000)
    assert records == []
    assert [problem.code for problem in problems] == [None]
    assert decoded(data)[1] == []


@pytest.mark.behaviour("F07")
@pytest.mark.parametrize("size", [14, 30, 48])
def test_batch_smaller_than_its_header_raises_no_index_error(size: int) -> None:
    """This holds even if its checksum is valid."""
    data = sealed(record(), 1)
    small = data[:8] + struct.pack(">i", size) + data[12 : 12 + size]
    pieces = list(scan(small + data))
    assert sum(1 for piece in pieces if getattr(piece, "crc_valid", False)) == 1


@given(
    st.binary(max_size=300),
    st.integers(-2, 12),
    st.sampled_from([0, 8, 16, 64, 72]),
    st.sampled_from([1, 2, 7]),
)
def test_any_body_is_decoded_without_an_exception(
    body: bytes, count: int, attributes: int, capacity: int
) -> None:
    data = sealed(body, count, attributes=attributes)
    records, problems = decoded(data, capacity)
    again, problems_again = decoded(data)
    assert (records, problems) == (again, problems_again)
    assert len(records) <= max(0, count)
    assert problems or len(records) == max(0, count)


@given(st.binary(max_size=300), st.integers(0, 2**40), st.sampled_from([0, 1]))
def test_any_message_set_is_decoded_without_an_exception(content: bytes, offset: int, magic: int) -> None:
    for data in (
        wrapper(offset, content, magic=magic),
        message(offset, None, None, magic=magic, raw=content),
    ):
        if len(data) >= 26:
            assert decoded(data, 1) == decoded(data)


@given(st.data())
def test_damaged_bodies_never_raise(draws: st.DataObject) -> None:
    case = draws.draw(st.sampled_from([case for case in CASES if case.data[16] == 2]))
    body = bytearray(case.data[61:])
    for _ in range(draws.draw(st.integers(0, 4))):
        if body:
            body[draws.draw(st.integers(0, len(body) - 1))] = draws.draw(st.integers(0, 255))
    count = struct.unpack_from(">i", case.data, 57)[0]
    data = sealed(bytes(body), count)
    assert decoded(data, 1) == decoded(data)


def test_records_of_the_capture_equal_an_independent_reader(capture_small: Path) -> None:
    """Compared with an independent reader."""
    seen = 0
    for log in (capture_small / "data").rglob("*.log"):
        data = log.read_bytes()
        decoder = Decoder(data, 100)
        for block in Scanner(data, int(log.stem)).blocks():
            assert isinstance(block, Columns)
            for row in range(block.count):
                batch = batch_at(block, row)
                if batch.codec:
                    continue
                found = [
                    record_at(chunk, at)
                    for chunk in decoder.chunks(block, row, row + 1)
                    for at in range(chunk.records.count)
                ]
                expected = reference_reader.records(batch, data)
                assert [(r.offset, r.timestamp_ms, r.key, r.value) for r in found] == [
                    (r.offset, r.timestamp_ms, r.key, r.value) for r in expected
                ]
                seen += len(found)
    assert seen > 100
