"""The record encoder: one test class for the compiled module and for its interpreted source."""

from array import array
from types import ModuleType

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kseg.segment.kernel import encode
from tests.support.interpreted_kernels import variants
from tests.support.reference_decoder import number, records_of

INT64 = st.integers(min_value=-(2**63), max_value=2**63 - 1)


KERNELS = variants(encode)


def varint(kernel: ModuleType, value: int) -> bytes:
    out = bytearray()
    kernel.put_varint(out, value)
    return bytes(out)


@pytest.mark.parametrize("kernel", KERNELS)
class TestEncode:
    @pytest.mark.parametrize(
        ("value", "written"),
        [
            (0, "00"),
            (-1, "01"),
            (1, "02"),
            (300, "d804"),
            (2147483647, "feffffff0f"),
            (-2147483648, "ffffffff0f"),
            (2**63 - 1, "feffffffffffffffff01"),
            (-(2**63), "ffffffffffffffffff01"),
        ],
    )
    def test_varint_matches_the_vectors(self, kernel: ModuleType, value: int, written: str) -> None:
        assert varint(kernel, value).hex() == written

    @given(value=INT64)
    def test_varint_round_trips_with_its_computed_size(self, kernel: ModuleType, value: int) -> None:
        data = varint(kernel, value)
        assert number(data, 0) == (value, len(data))
        assert kernel.varint_size(value) == len(data)

    @pytest.mark.behaviour("F14")
    def test_records_with_headers_nulls_and_empty_fields_round_trip(self, kernel: ModuleType) -> None:
        headers = [(), ((b"h", None), (b"", b"")), ((b"n" * 200, b"v" * 9000),)]
        keys, values = [None, b"", b"k" * 70], [b"", None, b"v" * 70000]
        offsets, times = array("q", [7, 9, 2**31]), array("q", [100, 90, 2**40])
        out = bytearray(b"before")
        added = kernel.encode_records(offsets, times, 7, 95, keys, values, headers, out)
        assert out[:6] == b"before"
        assert added == len(out) - 6
        records = records_of(bytes(out[6:]), 3, 7, 95)
        assert [record.offset for record in records] == list(offsets)
        assert [record.timestamp_ms for record in records] == list(times)
        assert [record.key for record in records] == keys
        assert [record.value for record in records] == values
        assert [record.headers for record in records] == headers

    def test_missing_headers_are_encoded_like_empty_ones(self, kernel: ModuleType) -> None:
        offsets, times = array("q", [0, 1]), array("q", [5, 6])
        bare, empty = bytearray(), bytearray()
        kernel.encode_records(offsets, times, 0, 5, [b"a", None], [None, b"b"], None, bare)
        kernel.encode_records(offsets, times, 0, 5, [b"a", None], [None, b"b"], [(), ()], empty)
        assert bare == empty

    def test_too_short_sequence_is_an_index_error(self, kernel: ModuleType) -> None:
        two = array("q", [0, 1])
        with pytest.raises(IndexError):
            kernel.encode_records(two, two, 0, 0, [b"a"], [b"b", b"c"], None, bytearray())
