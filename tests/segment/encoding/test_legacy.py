"""Writing messages of magic 0 and 1: vectors, every message that old brokers left, both offset rules, refusals."""

import dataclasses
import struct
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kseg.segment import layout as L
from kseg.segment.codecs.codec import decompress
from kseg.segment.encoding.legacy import encode_legacy, encode_message
from kseg.segment.errors import UsageError
from kseg.segment.model import NewBatch, Record
from tests.support.reference_decoder import entries_of, message_of

T0 = 1500000000000
LIMIT = 1 << 26
Message = tuple[int, int, int, int, int | None, bytes | None, bytes | None]


def inner_messages(wrapper: bytes) -> list[Message]:
    _, _, magic, attributes, _, key, block = message_of(wrapper)
    assert key is None
    assert block is not None
    inner = bytes(decompress(attributes & L.CODEC_MASK, magic, block, LIMIT))
    return [message_of(entry) for entry in entries_of(inner)]


def three(magic: int, codec: int, **fields: object) -> NewBatch:
    records = tuple(Record(498 + i, T0 + time, b"k%d" % i, b"v") for i, time in enumerate((5, 9, 7)))
    return NewBatch(records=records, magic=magic, codec=codec, **fields)  # type: ignore[arg-type]


class TestVectors:
    """Bytes that the real classes accept (fact sheet §12)."""

    def test_magic_0_message_matches_the_vector(self) -> None:
        data = encode_legacy(NewBatch(records=(Record(7, T0, b"k", b"v"),), magic=0))
        assert data == bytes.fromhex("0000000000000007 00000010 1fecd70a 00 00 00000001 6b 00000001 76")

    def test_magic_1_message_matches_the_vector(self) -> None:
        data = encode_legacy(NewBatch(records=(Record(7, T0, b"k", b"v"),), magic=1))
        assert data == bytes.fromhex(
            "0000000000000007 00000018 bf070c1c 01 00 0000015d3ef79800 00000001 6b 00000001 76"
        )


class TestRealMessages:
    def test_messages_are_encoded_as_by_the_old_brokers(self, legacy_small: Path) -> None:
        seen = set()
        for path in sorted((legacy_small / "data").rglob("*.log")):
            for entry in entries_of(path.read_bytes()):
                if entry[16] < L.MAGIC_V2:
                    offset, crc, magic, attributes, timestamp, key, value = message_of(entry)
                    time = -1 if timestamp is None else timestamp
                    assert encode_message(magic, offset, time, attributes, key, value) == entry
                    assert struct.unpack_from(">I", entry, 12)[0] == crc
                    seen.add((magic, attributes & L.CODEC_MASK))
        assert seen == {(magic, codec) for magic in (0, 1) for codec in (L.NONE, L.GZIP, L.SNAPPY, L.LZ4)}

    def test_wrappers_have_the_inner_messages_of_the_old_brokers(self, legacy_small: Path) -> None:
        seen = set()
        for path in sorted((legacy_small / "data").rglob("*.log")):
            for entry in entries_of(path.read_bytes()):
                codec = entry[17] & L.CODEC_MASK
                if entry[16] >= L.MAGIC_V2 or not codec:
                    continue
                offset, _, magic, attributes, timestamp, _, _ = message_of(entry)
                inner = inner_messages(entry)
                shift = offset - inner[-1][0]
                new = NewBatch(
                    records=tuple(
                        Record(m[0] + shift, -1 if m[4] is None else m[4], m[5], m[6]) for m in inner
                    ),
                    magic=magic,
                    codec=codec,
                    base_offset=shift if magic == 1 else None,
                    log_append_time=bool(attributes & L.TIMESTAMP_TYPE_BIT),
                    max_timestamp_ms=timestamp,
                )
                written = encode_legacy(new)
                assert inner_messages(written) == inner
                assert message_of(written)[2:6] == (magic, attributes, timestamp, None)
                assert message_of(written)[0] == offset
                seen.add((magic, codec))
        assert seen == {(magic, codec) for magic in (0, 1) for codec in (L.GZIP, L.SNAPPY, L.LZ4)}


class TestOffsets:
    @pytest.mark.parametrize("codec", [L.GZIP, L.SNAPPY, L.LZ4])
    def test_magic_0_wrapper_has_absolute_inner_offsets(self, codec: int) -> None:
        data = encode_legacy(three(0, codec))
        assert message_of(data)[0] == 500
        assert [message[0] for message in inner_messages(data)] == [498, 499, 500]

    @pytest.mark.behaviour("F25")
    @pytest.mark.parametrize("codec", [L.GZIP, L.SNAPPY, L.LZ4])
    def test_magic_1_wrapper_has_relative_inner_offsets(self, codec: int) -> None:
        data = encode_legacy(three(1, codec))
        assert message_of(data)[0] == 500
        assert [message[0] for message in inner_messages(data)] == [0, 1, 2]

    def test_uncompressed_messages_are_separate_entries(self) -> None:
        for magic in (0, 1):
            entries = entries_of(encode_legacy(three(magic, L.NONE)))
            assert [message_of(entry)[0] for entry in entries] == [498, 499, 500]


class TestTimes:
    @pytest.mark.behaviour("F21")
    def test_magic_0_wrapper_has_no_timestamp(self) -> None:
        assert message_of(encode_legacy(three(0, L.GZIP)))[4] is None

    @pytest.mark.behaviour("F28")
    def test_create_time_wrapper_has_the_maximum_timestamp(self) -> None:
        data = encode_legacy(three(1, L.GZIP))
        assert message_of(data)[4] == T0 + 9
        assert [message[4] for message in inner_messages(data)] == [T0 + 5, T0 + 9, T0 + 7]

    @pytest.mark.behaviour("F28")
    def test_log_append_time_marks_the_wrapper_only(self) -> None:
        data = encode_legacy(three(1, L.GZIP, log_append_time=True, max_timestamp_ms=T0 + 1000))
        assert message_of(data)[3:5] == (L.GZIP | L.TIMESTAMP_TYPE_BIT, T0 + 1000)
        assert [message[3:5] for message in inner_messages(data)] == [(0, T0 + t) for t in (5, 9, 7)]

    def test_log_append_time_marks_each_plain_message(self) -> None:
        data = encode_legacy(three(1, L.NONE, log_append_time=True, max_timestamp_ms=T0 + 1000))
        assert {message_of(entry)[3:5] for entry in entries_of(data)} == {(L.TIMESTAMP_TYPE_BIT, T0 + 1000)}


@pytest.mark.behaviour("F43")
@pytest.mark.parametrize(("magic", "header_checksum"), [(0, 0x1A), (1, 0x82)])
def test_lz4_frame_header_depends_on_the_magic(magic: int, header_checksum: int) -> None:
    block = message_of(encode_legacy(three(magic, L.LZ4)))[6]
    assert block is not None
    assert block[:7] == bytes.fromhex("04224d18 6040") + bytes([header_checksum])


ONE = (Record(0, T0, b"k", b"v"),)


@pytest.mark.behaviour("F29", "F52")
@pytest.mark.parametrize("magic", [0, 1])
@pytest.mark.parametrize(
    "new",
    [
        NewBatch(records=ONE, transactional=True, producer_id=1, producer_epoch=0, base_sequence=0),
        NewBatch(records=ONE, producer_id=1, producer_epoch=0, base_sequence=0),
        NewBatch(records=ONE, control=True),
        NewBatch(records=ONE, codec=L.ZSTD),
        NewBatch(records=ONE, codec=5),
        NewBatch(records=ONE, delete_horizon_ms=T0),
        NewBatch(records=ONE, leader_epoch=0),
        NewBatch(records=(Record(0, T0, None, None, headers=((b"h", None),)),)),
        NewBatch(records=()),
        NewBatch(records=ONE, last_offset=1),
        NewBatch(records=ONE, base_offset=1),
        NewBatch(records=(Record(1, T0, None, None), Record(1, T0, None, None))),
        NewBatch(records=(Record(0, T0, None, None), Record(2**31, T0, None, None))),
        NewBatch(records=(Record(0, -2, None, None),)),
        NewBatch(records=ONE, log_append_time=True),
    ],
)
def test_values_the_old_formats_cannot_express_are_refused(magic: int, new: NewBatch) -> None:
    with pytest.raises(UsageError):
        encode_legacy(dataclasses.replace(new, magic=magic))


fields = st.none() | st.binary(max_size=300)


@pytest.mark.behaviour("F21", "F48")
@given(
    magic=st.sampled_from([0, 1]),
    codec=st.sampled_from([L.NONE, L.GZIP, L.SNAPPY, L.LZ4]),
    base=st.integers(min_value=0, max_value=2**62),
    deltas=st.sets(st.integers(min_value=0, max_value=2**31 - 1), min_size=1, max_size=9).map(sorted),
    content=st.lists(st.tuples(fields, fields), min_size=9, max_size=9),
)
def test_encoded_old_format_reads_back(
    magic: int,
    codec: int,
    base: int,
    deltas: list[int],
    content: list[tuple[bytes | None, bytes | None]],
) -> None:
    records = tuple(
        Record(base + delta, T0 + delta, *pair) for delta, pair in zip(deltas, content, strict=False)
    )
    data = encode_legacy(NewBatch(records=records, magic=magic, codec=codec))
    if codec:
        wrapper_offset, messages = message_of(data)[0], inner_messages(data)
        shift = wrapper_offset - messages[-1][0]
    else:
        messages, shift = [message_of(entry) for entry in entries_of(data)], 0
    assert [(m[0] + shift, m[5], m[6]) for m in messages] == [(r.offset, r.key, r.value) for r in records]
    assert [m[4] for m in messages] == [r.timestamp_ms if magic else None for r in records]
