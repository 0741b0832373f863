"""The partition writer: the same files as a real broker's, the rules for rolling, and what it refuses."""

import struct
from itertools import pairwise
from pathlib import Path

import pytest

from fixtures import healthy
from kseg.change.append.partition_writer import OpenPartition, PartitionWriter, RollRules
from kseg.segment import layout as L
from kseg.segment.encoding.batch import encode_batch
from kseg.segment.errors import Refused, UsageError
from kseg.segment.model import NewBatch, Record
from kseg.segment.new_files import write_new_file
from kseg.segment.state.control import EndTransactionMarker, end_transaction_batch
from tests.support.reference_decoder import entries_of
from tests.support.trees import content_of

T0 = healthy.T0
SMALL = RollRules(segment_bytes=6000, index_interval_bytes=1024)
INTERNAL = RollRules(segment_bytes=104857600)
CAPTURED = [
    "__consumer_offsets-0",
    "__transaction_state-0",
    "fares-0",
    "gates-append-0",
    "gates-append-1",
    "metro-gzip-0",
    "metro-lz4-0",
    "metro-none-0",
    "metro-snappy-0",
    "metro-zstd-0",
    "stations-0",
]


def batch(offset: int, size: int = 0, time: int = T0, **fields: object) -> NewBatch:
    return NewBatch(records=(Record(offset, time, None, b"v" * size),), **fields)  # type: ignore[arg-type]


def size_of(new: NewBatch) -> int:
    return len(encode_batch(new))


def bases_of(directory: Path) -> list[int]:
    return sorted(int(path.stem) for path in directory.glob("*.log"))


class TestRealPartitions:
    @pytest.mark.behaviour("I09", "I12", "I16", "I19", "I21", "P16", "P27", "F53", "F55")
    @pytest.mark.parametrize("name", CAPTURED)
    def test_batches_of_a_broker_give_its_files_byte_for_byte(
        self, name: str, capture_small: Path, tmp_path: Path
    ) -> None:
        """The captured broker wrote the batches in one uninterrupted run and stopped cleanly."""
        real = content_of(capture_small / "before" / name)
        topic_id = real["partition.metadata"].decode().partition("topic_id: ")[2]
        rules = INTERNAL if name.startswith("__") else SMALL
        with PartitionWriter(tmp_path / name, topic_id=topic_id, rules=rules) as writer:
            for file in sorted(real):
                if file.endswith(".log"):
                    for entry in entries_of(real[file]):
                        writer.append(entry)
        assert content_of(tmp_path / name) == real


class TestRolling:
    """Kafka: LogSegment.shouldRoll, LocalLog.roll (fact sheet §6.5)."""

    def test_segment_rolls_before_its_size_limit_is_exceeded(self, tmp_path: Path) -> None:
        size = size_of(batch(0, 100))
        for slack, bases in ((0, [0]), (-1, [0, 1])):
            rules = RollRules(segment_bytes=2 * size + slack)
            with PartitionWriter(tmp_path / str(slack), rules=rules) as writer:
                writer.append(batch(0, 100))
                writer.append(batch(1, 100))
            assert bases_of(tmp_path / str(slack)) == bases

    def test_batch_larger_than_a_segment_gets_its_own_segment(self, tmp_path: Path) -> None:
        with PartitionWriter(tmp_path, rules=RollRules(segment_bytes=100)) as writer:
            for offset in range(3):
                writer.append(batch(offset, 500))
        assert bases_of(tmp_path) == [0, 1, 2]

    @pytest.mark.behaviour("I08")
    def test_offset_beyond_31_bits_starts_a_segment(self, tmp_path: Path) -> None:
        with PartitionWriter(tmp_path) as writer:
            writer.append(batch(0))
            writer.append(batch(L.INT32_MAX))
            writer.append(batch(2**31))
        assert bases_of(tmp_path) == [0, 2**31]

    def test_segment_rolls_by_the_time_of_its_first_batch(self, tmp_path: Path) -> None:
        with PartitionWriter(tmp_path, rules=RollRules(segment_ms=1000)) as writer:
            for offset, time in enumerate((T0, T0 - 5000, T0 + 1000, T0 + 1001)):
                writer.append(batch(offset, time=time))
        assert bases_of(tmp_path) == [0, 3]

    def test_segment_without_timestamps_rolls_by_wall_clock(self) -> None:
        partition = OpenPartition(rules=RollRules(segment_ms=1000), now_ms=50)
        partition.append(batch(0, time=-1), now_ms=50)
        partition.append(batch(1, time=-1), now_ms=1050)
        assert partition.active.base_offset == 0
        partition.append(batch(2, time=-1), now_ms=1051)
        assert partition.active.base_offset == 2

    @pytest.mark.behaviour("I05")
    def test_segment_rolls_with_a_full_index(self, tmp_path: Path) -> None:
        # one of the 3 time index slots is reserved
        rules = RollRules(segment_index_bytes=36, index_interval_bytes=1)
        with PartitionWriter(tmp_path, rules=rules) as writer:
            for offset in range(7):
                writer.append(batch(offset, time=T0 + offset))
        assert bases_of(tmp_path) == [0, 3, 6]
        assert (tmp_path / f"{0:020d}.timeindex").stat().st_size == 24

    def test_new_segment_base_is_the_first_offset_or_the_log_end(self, tmp_path: Path) -> None:
        with PartitionWriter(tmp_path, rules=RollRules(segment_bytes=200)) as writer:
            writer.append(batch(0, 150))
            writer.append(NewBatch(records=(Record(7, T0, None, b"v" * 150),), base_offset=5))
            writer.append(batch(40, 150))
        assert bases_of(tmp_path) == [0, 5, 40]

    @pytest.mark.parametrize("codec", [L.NONE, L.GZIP])
    def test_old_format_set_rolls_without_knowing_its_first_offset(self, tmp_path: Path, codec: int) -> None:
        records = tuple(Record(offset, T0, None, b"v") for offset in (8, 9))
        wrapper = encode_batch(NewBatch(records=records, magic=1, codec=codec))
        with PartitionWriter(tmp_path, rules=RollRules(segment_bytes=100)) as writer:
            writer.append(batch(0))
            writer.append(wrapper)
        assert bases_of(tmp_path) == [0, 1]

    @pytest.mark.behaviour("R11", "P16")
    def test_segment_rolls_on_demand(self, tmp_path: Path) -> None:
        with PartitionWriter(tmp_path) as writer:
            writer.append(batch(0))
            writer.roll()
            # the empty segment stays
            writer.roll()
            writer.append(batch(1))
            writer.roll(at_offset=50)
        assert bases_of(tmp_path) == [0, 1, 50]
        assert (tmp_path / f"{50:020d}.log").read_bytes() == b""
        assert sorted(int(path.stem) for path in tmp_path.glob("*.snapshot")) == [1, 50]


class TestSideFiles:
    def test_empty_partition_has_empty_files_and_no_snapshot(self, tmp_path: Path) -> None:
        PartitionWriter(tmp_path, start_offset=7).close()
        names = [f"{7:020d}{suffix}" for suffix in (".index", ".log", ".timeindex")]
        assert content_of(tmp_path) == dict.fromkeys((*names, "leader-epoch-checkpoint"), b"")

    @pytest.mark.behaviour("I16", "I19")
    def test_aborted_transaction_is_in_the_index_of_its_markers_segment(self, tmp_path: Path) -> None:
        producer = {"transactional": True, "producer_epoch": 0}
        with PartitionWriter(tmp_path) as writer:
            writer.append(batch(0, producer_id=1, base_sequence=0, **producer))
            writer.append(batch(1, producer_id=2, base_sequence=0, **producer))
            writer.roll()
            writer.append(end_transaction_batch(EndTransactionMarker(True, 0, T0), 2, 1, 0, 0))
            writer.append(end_transaction_batch(EndTransactionMarker(False, 0, T0), 3, 2, 0, 0))
        assert not (tmp_path / f"{0:020d}.txnindex").exists()
        entry = (tmp_path / f"{2:020d}.txnindex").read_bytes()
        assert struct.unpack(">hqqqq", entry) == (
            0,
            1,
            0,
            2,
            1,
        )  # the other transaction determined the last stable offset

    def test_old_format_message_clears_the_leader_epochs(self, tmp_path: Path) -> None:
        with PartitionWriter(tmp_path) as writer:
            writer.append(batch(0, leader_epoch=3))
            writer.append(batch(1, magic=1))
            writer.append(batch(2, leader_epoch=5))
        assert (tmp_path / "leader-epoch-checkpoint").read_text() == "0\n1\n5 2\n"

    def test_several_batches_can_be_written_as_one_set(self, tmp_path: Path) -> None:
        batches = [encode_batch(batch(offset, 700)) for offset in range(40)]
        for name, sets in (("one", [b"".join(batches)]), ("many", batches)):
            with PartitionWriter(tmp_path / name) as writer:
                for data in sets:
                    writer.append(data)
        assert content_of(tmp_path / "one") == content_of(tmp_path / "many")

    def test_healthy_partition_has_every_kind_of_batch_and_file(self, tmp_path: Path) -> None:
        healthy.partition(tmp_path / "metro-0")
        bases = bases_of(tmp_path / "metro-0")
        assert len(bases) >= 3
        suffixes = {path.suffix for path in (tmp_path / "metro-0").iterdir()}
        assert suffixes >= {".log", ".index", ".timeindex", ".txnindex", ".snapshot", ".metadata"}
        content = content_of(tmp_path / "metro-0")
        for base, following in pairwise(bases):
            offsets = [
                struct.unpack_from(">q", entry)[0] for entry in entries_of(content[f"{base:020d}.log"])
            ]
            assert base <= offsets[0]
            assert offsets[-1] < following


class TestRefusals:
    def test_offsets_below_the_log_end_are_refused(self, tmp_path: Path) -> None:
        writer = PartitionWriter(tmp_path, start_offset=5)
        for offset, accepted in ((4, False), (5, True), (5, False), (9, True), (6, False)):
            if accepted:
                writer.append(batch(offset))
            else:
                with pytest.raises(UsageError, match="below the log end"):
                    writer.append(batch(offset))
        assert writer.next_offset == 10

    @pytest.mark.parametrize("change", ["torn", "crc", "empty", "foreign"])
    def test_bytes_that_are_not_valid_batches_are_refused(self, tmp_path: Path, change: str) -> None:
        good = encode_batch(batch(0, 50))
        data = {
            "torn": good[:-1],
            "crc": good[:-1] + b"\xff",
            "empty": b"",
            "foreign": good + b"x" * 40,
        }[change]
        with pytest.raises(UsageError):
            PartitionWriter(tmp_path).append(data)

    def test_data_outside_its_producers_open_transaction_is_refused(self, tmp_path: Path) -> None:
        writer = PartitionWriter(tmp_path)
        producer = {"producer_id": 1, "producer_epoch": 0}
        writer.append(batch(0, transactional=True, base_sequence=0, **producer))
        with pytest.raises(UsageError, match="transaction open"):
            writer.append(batch(1, base_sequence=1, **producer))

    def test_set_spanning_more_than_a_segment_is_refused(self, tmp_path: Path) -> None:
        wide = encode_batch(batch(0)) + encode_batch(batch(2**31))
        with pytest.raises(UsageError, match="does not fit"):
            PartitionWriter(tmp_path).append(wide)

    def test_impossible_segment_sizes_are_refused(self) -> None:
        for size in (0, 2**31):
            with pytest.raises(UsageError):
                RollRules(segment_bytes=size)

    def test_partition_writer_overwrites_no_files(self, tmp_path: Path) -> None:
        healthy.partition(tmp_path / "metro-0")
        before = content_of(tmp_path / "metro-0")
        with pytest.raises(Refused, match="File exists"):
            healthy.partition(tmp_path / "metro-0")
        assert content_of(tmp_path / "metro-0") == before

    def test_interrupted_writer_leaves_a_log_without_side_files(self, tmp_path: Path) -> None:
        with pytest.raises(ZeroDivisionError), PartitionWriter(tmp_path) as writer:
            writer.append(batch(0))
            raise ZeroDivisionError
        assert content_of(tmp_path) == {f"{0:020d}.log": encode_batch(batch(0))}


class TestNewFiles:
    def test_new_file_has_its_chunks_in_order(self, tmp_path: Path) -> None:
        path = tmp_path / "new"
        assert write_new_file(path, [b"ab", memoryview(b"cd"), b""], mode=0o600) == 4
        assert path.read_bytes() == b"abcd"
        assert path.stat().st_mode & 0o777 == 0o600

    def test_new_file_is_refused_if_the_name_exists_even_as_a_dangling_link(self, tmp_path: Path) -> None:
        (tmp_path / "taken").write_bytes(b"mine")
        (tmp_path / "link").symlink_to(tmp_path / "nowhere")
        for name in ("taken", "link"):
            with pytest.raises(Refused):
                write_new_file(tmp_path / name, b"x")
        assert (tmp_path / "taken").read_bytes() == b"mine"
        assert not (tmp_path / "nowhere").exists()

    def test_new_file_is_removed_if_its_chunks_fail(self, tmp_path: Path) -> None:
        def chunks() -> object:
            yield b"half"
            raise ZeroDivisionError

        with pytest.raises(ZeroDivisionError):
            write_new_file(tmp_path / "new", chunks())  # type: ignore[arg-type]
        assert list(tmp_path.iterdir()) == []
