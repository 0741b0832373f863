"""Writing a batch: the fact sheet's vectors, every batch that real brokers left, and refusals."""

import dataclasses
import struct
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kseg.segment import layout as L
from kseg.segment.codecs.codec import decompress
from kseg.segment.encoding.batch import encode_batch
from kseg.segment.encoding.legacy import encode_message
from kseg.segment.errors import UsageError
from kseg.segment.model import NewBatch, Record
from kseg.segment.state.control import EndTransactionMarker, control_key, end_transaction_batch
from kseg.segment.state.kraft_messages import KRAFT_VERSION, LEADER_CHANGE, SNAPSHOT_FOOTER
from tests.support.encoders import control_batch
from tests.support.reference_decoder import batch_of, entries_of, message_of, records_of

T0 = 1700000000000
LEGACY_KEYS = (b"key1", b"value1"), (b"key2", b"value2")
LIMIT = 1 << 26


def inflate(codec: int, magic: int, data: bytes) -> bytes:
    return bytes(decompress(codec, magic, data, LIMIT))


def crc_of(data: bytes) -> int:
    (crc,) = struct.unpack_from(">I", data, 17 if data[16] == 2 else 12)
    return int(crc)


class TestVectors:
    """Bytes that the real 4.3 classes wrote or accepted (fact sheet §12)."""

    def test_batch_with_null_value_and_null_header_matches_the_vector(self) -> None:
        new = NewBatch(
            records=(
                Record(0, T0, b"a", b"x"),
                Record(1, T0 + 1, b"b", None, headers=((b"h", None),)),
            ),
            leader_epoch=0,
        )
        assert encode_batch(new) == bytes.fromhex(
            "0000000000000000 00000045 00000000 02 a3f18511 0000 00000001 0000018bcfe56800 0000018bcfe56801"
            "ffffffffffffffff ffff ffffffff 00000002 10 00 00 00 02 61 02 78 00 14 00 02 02 02 62 01 02 02 68 01"
        )

    @pytest.mark.behaviour("F13")
    def test_commit_marker_matches_the_vector(self) -> None:
        new = end_transaction_batch(EndTransactionMarker(False, 7, T0), 5, 1, 0, 3)
        assert encode_batch(new) == bytes.fromhex(
            "0000000000000005 00000042 00000003 02 55f2eb49 0030 00000000 0000018bcfe56800 0000018bcfe56800"
            "0000000000000001 0000 ffffffff 00000001 20 00 00 00 08 00000001 0c 000000000007 00"
        )

    @pytest.mark.behaviour("F02")
    def test_empty_batch_of_compaction_matches_the_vector(self) -> None:
        new = NewBatch(
            base_offset=10,
            last_offset=14,
            leader_epoch=2,
            max_timestamp_ms=T0,
            producer_id=9,
            producer_epoch=0,
            base_sequence=0,
        )
        assert encode_batch(new) == bytes.fromhex(
            "000000000000000a 00000031 00000002 02 2c453930 0000 00000004 ffffffffffffffff 0000018bcfe56800"
            "0000000000000009 0000 00000000 00000000"
        )

    @pytest.mark.behaviour("F01")
    @pytest.mark.parametrize(
        ("magic", "codec", "crc"),
        [
            (0, L.NONE, 1978725405),
            (1, L.NONE, 109425508),
            (2, L.NONE, 3851219455),
            (2, L.LZ4, 2745969314),
        ],
    )
    def test_checksums_equal_those_of_kafkas_own_test(self, magic: int, codec: int, crc: int) -> None:
        records = (Record(0, 283843, b"key1", b"value1"), Record(1, 1234, b"key2", b"value2"))
        assert crc_of(encode_batch(NewBatch(records=records, magic=magic, codec=codec))) == crc

    @pytest.mark.behaviour("F01")
    @pytest.mark.parametrize(
        ("magic", "crc", "block"),
        [
            (
                0,
                66944826,
                (
                    "04224d1860401a3900000016000100511875f0f41d0f00e0046b6579310000000676616c75650a0000020011012400301bc3"
                    "a60d00012400b0320000000676616c75653200000000"
                ),
            ),
            (
                1,
                1407303399,
                (
                    "04224d18604082470000001600010062200685b364011000f0050454c3000000046b6579310000000676616c75650a000002"
                    "0000230050200509300509000002002304d22c00b0320000000676616c75653200000000"
                ),
            ),
        ],
    )
    def test_lz4_wrappers_equal_those_of_kafkas_own_test(self, magic: int, crc: int, block: str) -> None:
        """The compressor here differs from lz4-java, so the compressed block is from 4.3.1, and the rest is ours."""
        records = (Record(0, 283843, b"key1", b"value1"), Record(1, 1234, b"key2", b"value2"))
        offset, _, _, attributes, timestamp, key, ours = message_of(
            encode_batch(NewBatch(records=records, magic=magic, codec=L.LZ4))
        )
        assert ours is not None
        theirs = bytes.fromhex(block)
        assert inflate(L.LZ4, magic, ours) == inflate(L.LZ4, magic, theirs)
        time = L.NO_TIMESTAMP if timestamp is None else timestamp
        assert crc_of(encode_message(magic, offset, time, attributes, key, theirs)) == crc

    @pytest.mark.behaviour("F41")
    def test_end_marker_equals_that_of_kafkas_own_test(self) -> None:
        data = encode_batch(end_transaction_batch(EndTransactionMarker(False, 347, T0), 983, 73, 13, 29))
        assert len(data) == 78
        new = batch_of(data, inflate)
        assert (new.control, new.transactional, len(new.records)) == (True, True, 1)
        assert (new.base_offset, new.leader_epoch, new.producer_id, new.producer_epoch) == (983, 29, 73, 13)
        assert new.records[0].value == struct.pack(">hi", 0, 347)


def capture_files(root: Path, *suffixes: str) -> list[Path]:
    return [path for path in sorted(root.rglob("*")) if path.suffix in suffixes and path.stat().st_size]


class TestRealBatches:
    """Each batch of a real broker, decoded and written again."""

    def test_uncompressed_batches_are_encoded_as_by_the_broker(self, capture_small: Path) -> None:
        seen = 0
        for path in capture_files(capture_small / "data", ".log", ".checkpoint"):
            if b"\n" in path.read_bytes()[:2]:
                # a text checkpoint, not a metadata snapshot
                continue
            for entry in entries_of(path.read_bytes()):
                if entry[22] & L.CODEC_MASK == L.NONE:
                    seen += 1
                    assert encode_batch(batch_of(entry, inflate)) == entry, path
        assert seen > 200

    def test_compressed_batches_have_the_brokers_content_and_header(self, capture_small: Path) -> None:
        codecs = set()
        for path in capture_files(capture_small / "data", ".log"):
            for entry in entries_of(path.read_bytes()):
                if entry[22] & L.CODEC_MASK == L.NONE:
                    continue
                new = batch_of(entry, inflate)
                codecs.add(new.codec)
                written = encode_batch(new)
                assert batch_of(written, inflate) == new
                assert written[21:61] == entry[21:61]
        assert codecs == {L.GZIP, L.SNAPPY, L.LZ4, L.ZSTD}


class TestFields:
    @pytest.mark.behaviour("F03", "F15")
    def test_batch_without_a_producer_has_minus_one_in_all_three_fields(self) -> None:
        data = encode_batch(NewBatch(records=(Record(5, 1, b"k", b"v"),)))
        assert struct.unpack_from(">qhi", data, 43) == (-1, -1, -1)

    @pytest.mark.behaviour("F14")
    def test_null_and_empty_fields_are_encoded_differently(self) -> None:
        records = (
            Record(0, T0, None, None),
            Record(1, T0, b"", b"", headers=((b"", None), (b"", b""), (b"twice", b"1"), (b"twice", b"2"))),
            Record(2, T0, None, b"v"),
            Record(3, T0, b"k", None),
        )
        data = encode_batch(NewBatch(records=records))
        assert records_of(data[61:], 4, 0, T0) == records

    @pytest.mark.behaviour("F49")
    def test_create_time_batch_has_the_maximum_timestamp_of_its_records(self) -> None:
        times = (0, 2, 1)
        data = encode_batch(NewBatch(records=tuple(Record(i, t, None, b"v") for i, t in enumerate(times))))
        assert struct.unpack_from(">qq", data, 27) == (0, 2)

    @pytest.mark.behaviour("F12", "F50")
    def test_log_append_time_is_the_maximum_timestamp_and_deltas_stay(self) -> None:
        records = (Record(0, T0, None, b"v"), Record(1, T0 + 7, None, b"v"))
        data = encode_batch(NewBatch(records=records, log_append_time=True, max_timestamp_ms=99))
        assert data[22] == L.TIMESTAMP_TYPE_BIT
        assert struct.unpack_from(">qq", data, 27) == (T0, 99)
        assert records_of(data[61:], 2, 0, T0) == records

    @pytest.mark.behaviour("F51")
    def test_delete_horizon_replaces_the_base_timestamp(self) -> None:
        records = (Record(3, T0, b"k", None), Record(4, T0 - 500, b"k", None))
        data = encode_batch(NewBatch(records=records, delete_horizon_ms=T0 + 86_400_000))
        assert data[22] == L.DELETE_HORIZON_BIT
        assert struct.unpack_from(">qq", data, 27) == (T0 + 86_400_000, T0)
        assert records_of(data[61:], 2, 3, T0 + 86_400_000) == records

    @pytest.mark.behaviour("F10", "F11")
    def test_checksum_does_not_cover_base_offset_and_leader_epoch(self) -> None:
        new = NewBatch(records=(Record(5, T0, b"k", b"v"),), leader_epoch=1)
        moved = dataclasses.replace(new, records=(Record(905, T0, b"k", b"v"),), leader_epoch=77)
        assert encode_batch(new)[17:] == encode_batch(moved)[17:]

    def test_batch_offsets_around_the_records_are_kept(self) -> None:
        records = (Record(12, T0, b"k", b"v"), Record(17, T0, b"k", b"v"))
        data = encode_batch(NewBatch(records=records, base_offset=10, last_offset=20))
        assert struct.unpack_from(">q", data)[0] == 10
        assert struct.unpack_from(">i", data, 23)[0] == 10
        assert records_of(data[61:], 2, 10, T0) == records

    @pytest.mark.behaviour("F02")
    @pytest.mark.parametrize("transactional", [False, True])
    @pytest.mark.parametrize("control", [False, True])
    def test_empty_batch_may_have_any_producer_and_flags(self, transactional: bool, control: bool) -> None:
        data = encode_batch(
            NewBatch(
                base_offset=370,
                last_offset=390,
                leader_epoch=15,
                max_timestamp_ms=T0,
                log_append_time=True,
                producer_id=23423,
                producer_epoch=145,
                base_sequence=983,
                transactional=transactional,
                control=control,
            )
        )
        new = batch_of(data, inflate)
        assert len(data) == 61
        assert (new.transactional, new.control, new.records) == (transactional, control, ())
        assert (new.base_offset, new.last_offset, new.leader_epoch) == (370, 390, 15)
        assert (new.producer_id, new.producer_epoch, new.base_sequence) == (23423, 145, 983)

    @pytest.mark.behaviour("F42")
    def test_leader_change_records_share_a_control_batch_without_producer(self) -> None:
        new = control_batch(
            [
                (LEADER_CHANGE, {"version": 0, "leaderId": 1, "voters": [], "grantingVoters": []}),
                (KRAFT_VERSION, {"version": 0, "kRaftVersion": 1}),
            ],
            offset=8,
            timestamp_ms=T0,
            leader_epoch=4,
        )
        data = encode_batch(new)
        assert data[22] == L.CONTROL_BIT
        assert [record.key for record in records_of(data[61:], 2, 8, T0)] == [b"\0\0\0\2", b"\0\0\0\5"]
        assert struct.unpack_from(">i", data, 12)[0] == 4


ONE = (Record(0, T0, b"k", b"v"),)
MARKER = end_transaction_batch(EndTransactionMarker(True, 1, T0), 0, 5, 0, 0)


@pytest.mark.behaviour("F52")
class TestRefusals:
    """What Kafka never writes is refused before any byte is written."""

    @pytest.mark.parametrize(
        "new",
        [
            NewBatch(records=ONE, transactional=True),
            NewBatch(records=ONE, producer_id=5, base_sequence=0),
            NewBatch(records=ONE, producer_id=5, producer_epoch=0),
            dataclasses.replace(MARKER, control=False),
            dataclasses.replace(MARKER, transactional=False),
            NewBatch(records=ONE, control=True),
            NewBatch(records=(Record(0, T0, None, b""),), control=True),
            NewBatch(records=(Record(0, T0, b"\0\0\0\7", b""),), control=True),
            dataclasses.replace(MARKER, codec=L.GZIP),
        ],
        ids=[
            "transactional-without-producer",
            "producer-without-epoch",
            "producer-without-sequence",
            "marker-in-data-batch",
            "marker-outside-transaction",
            "control-without-control-key",
            "control-with-null-key",
            "control-of-unknown-type",
            "compressed-control",
        ],
    )
    def test_invalid_producers_and_markers_are_refused(self, new: NewBatch) -> None:
        with pytest.raises(UsageError):
            encode_batch(new)

    @pytest.mark.parametrize(
        "new",
        [
            NewBatch(),
            NewBatch(base_offset=3),
            NewBatch(base_offset=3, last_offset=2),
            NewBatch(base_offset=-1, last_offset=2),
            NewBatch(base_offset=0, last_offset=2**31),
            NewBatch(records=(Record(0, T0, None, None), Record(2**31, T0, None, None))),
            NewBatch(records=(Record(4, T0, None, None), Record(4, T0, None, None))),
            NewBatch(records=(Record(4, T0, None, None), Record(3, T0, None, None))),
            NewBatch(records=ONE, base_offset=1),
            NewBatch(records=(Record(9, T0, None, None),), last_offset=8),
            NewBatch(records=(Record(2**63, T0, None, None),)),
            NewBatch(records=(Record(0, -2, None, None),)),
            NewBatch(records=(Record(0, -1, None, None), Record(1, 2**63 - 1, None, None))),
            NewBatch(records=ONE, log_append_time=True),
            NewBatch(records=ONE, delete_horizon_ms=-1),
            NewBatch(base_offset=0, last_offset=0, delete_horizon_ms=T0),
            NewBatch(base_offset=0, last_offset=0, codec=L.GZIP),
            NewBatch(records=ONE, magic=3),
            NewBatch(records=ONE, codec=5),
            NewBatch(records=ONE, leader_epoch=2**31),
            NewBatch(records=ONE, producer_id=1, producer_epoch=2**15, base_sequence=0),
            NewBatch(records=ONE, producer_id=1, producer_epoch=0, base_sequence=-2),
        ],
    )
    def test_invalid_offsets_and_out_of_range_fields_are_refused(self, new: NewBatch) -> None:
        with pytest.raises(UsageError):
            encode_batch(new)

    def test_user_key_that_looks_like_a_markers_is_accepted(self) -> None:
        new = NewBatch(records=(Record(0, T0, control_key(SNAPSHOT_FOOTER), b"v"),))
        assert batch_of(encode_batch(new), inflate).records == new.records


fields = st.none() | st.binary(max_size=300)
headers = st.lists(st.tuples(st.binary(max_size=9), fields), max_size=3).map(tuple)
times = st.integers(min_value=0, max_value=2**62)


@st.composite
def new_batches(draw: st.DrawFn) -> NewBatch:
    """Any batch that kseg may write."""
    base = draw(st.integers(min_value=0, max_value=2**62))
    offsets = sorted(draw(st.sets(st.integers(min_value=0, max_value=2**31 - 2), min_size=1, max_size=12)))
    records = tuple(
        Record(base + offset, draw(times), draw(fields), draw(fields), draw(headers)) for offset in offsets
    )
    producer = draw(st.booleans())
    append_time = draw(st.booleans())
    return NewBatch(
        records=records,
        codec=draw(st.sampled_from(range(5))),
        base_offset=base,
        last_offset=base + offsets[-1] + draw(st.integers(min_value=0, max_value=1)),
        leader_epoch=draw(st.integers(min_value=-1, max_value=2**31 - 1)),
        log_append_time=append_time,
        transactional=producer and draw(st.booleans()),
        delete_horizon_ms=draw(st.none() | times),
        max_timestamp_ms=draw(times) if append_time else max(record.timestamp_ms for record in records),
        producer_id=draw(st.integers(min_value=0, max_value=2**63 - 1)) if producer else -1,
        producer_epoch=draw(st.integers(min_value=0, max_value=2**15 - 1)) if producer else -1,
        base_sequence=draw(st.integers(min_value=0, max_value=2**31 - 1)) if producer else -1,
    )


@given(new_batches())
def test_encoded_batch_reads_back(new: NewBatch) -> None:
    data = encode_batch(new)
    assert struct.unpack_from(">i", data, 8)[0] == len(data) - 12
    assert batch_of(data, inflate) == new


@pytest.mark.behaviour("F30", "F48")
@pytest.mark.parametrize("magic", [0, 1])
@pytest.mark.parametrize("codec", [L.GZIP, L.SNAPPY, L.LZ4])
def test_encode_batch_writes_old_formats(magic: int, codec: int) -> None:
    records = tuple(Record(40 + i, T0 + i, key, value) for i, (key, value) in enumerate(LEGACY_KEYS))
    _, _, seen, attributes, _, key, block = message_of(
        encode_batch(NewBatch(records=records, magic=magic, codec=codec))
    )
    assert (seen, attributes, key) == (magic, codec, None)
    assert block is not None
    inner = [message_of(entry) for entry in entries_of(inflate(codec, magic, block))]
    assert [(message[5], message[6]) for message in inner] == list(LEGACY_KEYS)
