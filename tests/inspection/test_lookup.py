"""Lookups: the rows of the acceptance list on constructed logs, Kafka 0.7, and the cost on a large partition."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from fixtures import healthy, side_diseases
from kseg.change.append.partition_writer import PartitionWriter, RollRules
from kseg.segment.model import NewBatch, Record
from kseg.segment.moments import moment
from kseg.segment.sidecar.checkpoint import CheckpointEntry, encode_offset_checkpoint
from kseg.segment.state.control import EndTransactionMarker, end_transaction_batch
from tests.support import sparse_files
from tests.support.run_commands import answer, ask
from tests.support.trees import unchanged

T0 = healthy.T0
EVERY_BATCH = RollRules(segment_bytes=5000, index_interval_bytes=1)


def build_log(
    directory: Path, *batches: NewBatch, rules: RollRules | None = None, rolls: tuple[int, ...] = ()
) -> Path:
    """A partition of these batches. It rolls before each base offset in `rolls`."""
    with PartitionWriter(directory, rules=rules) as writer:
        for new in batches:
            if new.records and new.records[0].offset in rolls:
                writer.roll(new.records[0].offset)
            writer.append(new)
    return directory


def batch(*offsets: int, time: int = T0, **fields: Any) -> NewBatch:
    records = tuple(Record(offset, time + offset, b"k%d" % offset, b"v%d" % offset) for offset in offsets)
    return NewBatch(records=records, **fields)


def place(row: dict[str, Any]) -> tuple[int, int, int]:
    """(segment, first and last offset of the batch)."""
    return int(Path(row["segment"]).stem), row["batch_base_offset"], row["batch_last_offset"]


class TestByOffset:
    @pytest.mark.behaviour("L01", "L02", "L03")
    def test_lookup_in_an_empty_segment_or_below_the_first_record(self, tmp_path: Path) -> None:
        empty = build_log(tmp_path / "empty-0")
        log = build_log(tmp_path / "metro-0", batch(50, 51), batch(52))
        assert answer(empty, "offset", offset=0)["found"] is False
        assert answer(log, "offset", offset=40)["record"]["offset"] == 50
        assert answer(log, "offset", offset=53)["reason"] == "the log ends here: its end offset is 53"

    @pytest.mark.behaviour("L04", "L05")
    def test_lookup_in_a_gap_finds_the_next_batch_across_segments(self, tmp_path: Path) -> None:
        log = build_log(tmp_path / "metro-0", batch(0, 1), batch(5, 6), batch(20, 21), batch(40), rolls=(20,))
        assert place(answer(log, "offset", offset=2)) == (0, 5, 6)
        assert place(answer(log, "offset", offset=7)) == (20, 20, 21)
        assert place(answer(log, "offset", offset=30)) == (20, 40, 40)
        assert answer(log, "offset", offset=7)["offset"] == 20

    @pytest.mark.behaviour("L07")
    def test_lookup_places_records_of_a_compressed_batch_at_its_batch(self, tmp_path: Path) -> None:
        log = build_log(tmp_path / "metro-0", batch(0, 1, codec=1), batch(2, 3, codec=1))
        rows = [answer(log, "offset", offset=offset) for offset in range(4)]
        assert [row["batch_base_offset"] for row in rows] == [0, 0, 2, 2]
        assert [row["record"]["offset"] for row in rows] == [0, 1, 2, 3]

    @pytest.mark.behaviour("L08", "L21")
    def test_lookup_out_of_range_finds_nothing_and_says_why(self, tmp_path: Path) -> None:
        log = build_log(tmp_path / "metro-0", batch(0, 1, 2), batch(3, 4))
        assert "beyond the log end offset 5" in answer(log, "offset", offset=6)["reason"]
        below = answer(log, "offset", offset=0, log_start_offset=1)
        assert (below["found"], below["reason"]) == (False, "offset 0 is below the log start offset 1")
        assert answer(log, "offset", offset=1, log_start_offset=1)["record"]["offset"] == 1

    def test_lookup_in_an_emptied_batch_finds_the_next_record(self, tmp_path: Path) -> None:
        hollow = NewBatch(
            base_offset=4,
            last_offset=7,
            max_timestamp_ms=T0,
            producer_id=9,
            producer_epoch=0,
            base_sequence=0,
        )
        log = build_log(tmp_path / "metro-0", batch(0, 1), hollow, batch(9))
        row = answer(log, "offset", offset=3)
        assert place(row) == (0, 4, 7)
        assert (row["record"]["offset"], row["record"]["position"]) == (9, row["position"] + 61)

    @pytest.mark.behaviour("L22")
    def test_lookup_distinguishes_null_from_empty(self, tmp_path: Path) -> None:
        log = build_log(
            tmp_path / "metro-0", NewBatch(records=(Record(0, T0, None, None), Record(1, T0, b"", b"")))
        )
        record = answer(log, "offset", offset=0)["record"]
        assert (record["key"], record["value"], record["key_encoding"]) == (None, None, None)
        assert answer(log, "offset", offset=1)["record"]["key"] == ""

    def test_lookup_row_has_the_fields_of_the_contract(self, tmp_path: Path) -> None:
        log = build_log(tmp_path / "metro-0", *(batch(at) for at in range(40)), rules=EVERY_BATCH)
        row = answer(log, "offset", offset=30)
        assert list(row)[:14] == [
            "type", "partition", "query", "found", "offset", "timestamp", "leader_epoch", "segment", "position",
            "batch_base_offset", "batch_last_offset", "bytes_read", "path", "record",
        ]  # fmt: skip
        assert (row["type"], row["partition"], row["query"]["kind"]) == ("lookup", "metro-0", "offset")
        assert [step["step"] for step in row["path"]] == ["choose-segment", "offset-index", "open", "scan"]
        assert row["path"][1]["offset"] == 30
        json.dumps(row)

    def test_lookup_in_a_single_file_covers_only_that_file(self, tmp_path: Path) -> None:
        log = build_log(tmp_path / "metro-0", batch(0, 1), batch(20), rolls=(20,))
        with unchanged(log):
            row = answer(log / "00000000000000000020.log", "offset", offset=20)
            earliest = ask(log / "00000000000000000020.log", "earliest").rows[0]
            other = ask(log / "00000000000000000020.index", "offset", offset=20)
        assert (row["found"], row["partition"], earliest["offset"]) == (True, "metro-0", 20)
        assert [failure.exit_status for failure in other.failures] == [3]

    def test_lookup_respects_the_checkpointed_log_start(self, tmp_path: Path) -> None:
        log = build_log(tmp_path / "metro-0", batch(0, 1, 2), batch(3, 4))
        checkpoint = tmp_path / "log-start-offset-checkpoint"
        checkpoint.write_bytes(encode_offset_checkpoint([CheckpointEntry("metro", 0, 2)]))
        assert ask(log, "earliest", log_dir=tmp_path).rows[0]["offset"] == 2
        assert ask(log, "offset", offset=1, log_dir=tmp_path).rows[0]["found"] is False

    def test_lookup_in_a_partition_without_segments(self, tmp_path: Path) -> None:
        (tmp_path / "metro-0").mkdir()
        result = ask(tmp_path / "metro-0", "latest")
        assert (result.kinds, result.rows[0]["found"]) == (["no-segments"], False)

    def test_incomplete_lookup_is_wrong_usage(self, tmp_path: Path) -> None:
        log = build_log(tmp_path / "metro-0", batch(0))
        for result in (ask(log, "offset"), ask(log, "timestamp", timestamp_ms=-5), ask(log, "nonsense")):
            assert [failure.exit_status for failure in result.failures] == [2]
        missing = ask(tmp_path / "gone" / "00000000000000000000.log", "latest")
        assert [failure.exit_status for failure in missing.failures] == [3]


class TestByTime:
    @pytest.mark.behaviour("L10")
    def test_timestamp_lookup_finds_the_first_record_at_or_after(self, tmp_path: Path) -> None:
        """LogSegmentTest.testFindOffsetByTimestamp: offsets 40 to 49, times 400, 410, …, 490."""
        batches = [NewBatch(records=(Record(at, at * 10, None, b"v"),)) for at in range(40, 50)]
        log = build_log(tmp_path / "metro-0", *batches, rules=EVERY_BATCH)
        found = [
            answer(log, "timestamp", timestamp_ms=t)["offset"] for t in (420, 421, 430, 431, 491, 401, 399)
        ]
        assert found == [42, 43, 43, 44, None, 41, 40]

    @pytest.mark.behaviour("L11", "L12")
    @pytest.mark.parametrize("magic", [0, 1, 2])
    def test_timestamp_lookup_gives_the_epoch_in_every_format(self, magic: int, tmp_path: Path) -> None:
        """FileRecordsTest.testSearchForTimestamp: (10, offset 5, epoch 0) and (11, offset 6, epoch 1)."""
        batches = [
            NewBatch(
                records=(Record(5 + at, 10 + at, None, b"v"),),
                magic=magic,
                leader_epoch=at if magic == 2 else -1,
            )
            for at in (0, 1)
        ]
        log = build_log(tmp_path / "metro-0", *batches)
        rows = [answer(log, "timestamp", timestamp_ms=time) for time in (9, 10, 11, 12)]
        found = [(row["timestamp"], row["offset"], row["leader_epoch"]) for row in rows if row["found"]]
        epochs = (0, 0, 1) if magic == 2 else (None, None, None)
        expected = [] if magic == 0 else list(zip((10, 10, 11), (5, 5, 6), epochs, strict=True))
        assert found == expected

    @pytest.mark.behaviour("L13")
    def test_max_timestamp_lookup_finds_a_record_inside_a_batch(self, tmp_path: Path) -> None:
        times = (5, 9, 9, 1)
        inside = NewBatch(
            records=tuple(Record(4 + at, T0 + time, None, b"v") for at, time in enumerate(times)),
            codec=4,
            leader_epoch=3,
        )
        log = build_log(tmp_path / "metro-0", batch(0, time=T0), inside, batch(8, time=T0 - 100))
        row = answer(log, "max-timestamp")
        assert (row["offset"], row["timestamp"], row["leader_epoch"]) == (5, T0 + 9, 3)

    def test_max_timestamp_of_an_emptied_batch_has_no_record(self, tmp_path: Path) -> None:
        hollow = NewBatch(base_offset=2, last_offset=3, max_timestamp_ms=T0 + 9)
        row = answer(build_log(tmp_path / "metro-0", batch(0, 1), hollow), "max-timestamp")
        assert not row["found"]
        assert row["reason"].startswith(f"the greatest timestamp is {moment(T0 + 9)}, but the first batch")

    @pytest.mark.behaviour("L21")
    def test_lookup_finds_nothing_below_the_log_start(self, tmp_path: Path) -> None:
        late = NewBatch(records=(Record(0, T0 + 900, None, b"v"), Record(1, T0 + 1, None, b"v")))
        log = build_log(tmp_path / "metro-0", late, batch(2))
        assert answer(log, "timestamp", timestamp_ms=0, log_start_offset=1)["offset"] == 1
        assert answer(log, "timestamp", timestamp_ms=T0 + 500, log_start_offset=1)["found"] is False
        assert answer(log, "max-timestamp", log_start_offset=1)["offset"] == 2
        nothing = answer(log, "max-timestamp", log_start_offset=3)
        assert (nothing["found"], nothing["reason"]) == (False, "no visible record has a timestamp")

    @pytest.mark.behaviour("L14")
    def test_timestamp_lookup_among_records_without_timestamps(self, tmp_path: Path) -> None:
        plain = [NewBatch(records=(Record(at, -1, None, b"v"),), magic=0) for at in range(3)]
        log = build_log(tmp_path / "metro-0", *plain, batch(5), rolls=(5,))
        row = answer(log, "timestamp", timestamp_ms=T0)
        assert (log / "00000000000000000000.timeindex").stat().st_size == 0
        assert row["found"] is False
        assert "modification time" in row["reason"]


class TestEnds:
    @pytest.mark.behaviour("L13", "L16", "L17", "L18", "L19")
    def test_lookup_by_epoch_uses_the_checkpoint_or_the_batches(self, tmp_path: Path) -> None:
        log = build_log(
            tmp_path / "metro-0",
            batch(10, 11, 12, leader_epoch=0), batch(13, 16, leader_epoch=2), batch(17, 19, leader_epoch=4),
            rolls=(13, 17),
        )  # fmt: skip
        asked = (0, 1, 2, 3, 4, 5)
        expected = [(13, 0), (13, 0), (17, 2), (17, 2), (20, 4), (None, None)]

        def ends() -> tuple[list[tuple[Any, Any]], list[str]]:
            heard = [ask(log, "leader-epoch", leader_epoch=epoch) for epoch in asked]
            rows = [result.rows[0] for result in heard]
            return [(row["offset"], row["leader_epoch"]) for row in rows], heard[0].kinds

        assert ends() == (expected, [])
        side_diseases.epoch_file_corrupt(log)
        assert ends() == (expected, ["leader-epoch-file-corrupt"])
        (log / "leader-epoch-checkpoint").unlink()
        assert ends() == (expected, ["leader-epoch-file-missing"])
        earliest, latest = (ask(log, kind).rows[0] for kind in ("earliest", "latest"))
        assert (earliest["offset"], latest["offset"], latest["leader_epoch"], latest["timestamp"]) == (
            0,
            20,
            4,
            -1,
        )

    @pytest.mark.behaviour("X09")
    def test_committed_lookup_ends_at_the_open_transaction(self, tmp_path: Path) -> None:
        """Data is in segments 1 and 2 and the abort marker in 3, followed by another open transaction."""
        mine: dict[str, Any] = {"transactional": True, "producer_id": 7, "producer_epoch": 0}
        marker = end_transaction_batch(EndTransactionMarker(True, 0, T0), 20, 7, 0, 0)
        other: dict[str, Any] = {"transactional": True, "producer_id": 8, "producer_epoch": 0}
        log = build_log(
            tmp_path / "metro-0",
            batch(0, 1, base_sequence=0, **mine), batch(10, base_sequence=2, **mine), marker, batch(21),
            batch(30, base_sequence=0, **other), batch(31),
            rolls=(10, 20),
        )  # fmt: skip
        with unchanged(log):
            latest = answer(log, "latest", read_committed=True)
            aborted = answer(log, "offset", offset=1, read_committed=True)
            plain = answer(log, "offset", offset=21, read_committed=True)
            behind = answer(log, "offset", offset=31, read_committed=True)
            by_time = answer(log, "timestamp", timestamp_ms=T0 + 31, read_committed=True)
            hidden = answer(log, "key", key=b"k10", read_committed=True)
        assert (latest["offset"], aborted["aborted"], plain["aborted"]) == (30, True, False)
        assert [row["found"] for row in (behind, by_time, hidden)] == [False, False, False]
        assert answer(log, "key", key=b"k10")["offset"] == 10
        for snapshot in log.glob("*.snapshot"):
            side_diseases.snapshot_corrupt(snapshot)
        corrupt = ask(log, "latest", read_committed=True)
        assert corrupt.rows[0]["offset"] == 30
        assert set(corrupt.kinds) == {"snapshot-corrupt"}


class TestByKey:
    def log(self, directory: Path) -> Path:
        batches = [
            NewBatch(
                records=tuple(
                    Record(at * 4 + n, T0, b"a" if n % 2 else b"abc", b"%d" % at) for n in range(4)
                ),
                codec=at % 5,
            )
            for at in range(10)
        ]
        gone = NewBatch(records=(Record(40, T0, b"a", None), Record(41, T0, None, b"a")))
        return build_log(directory, *batches, gone, rolls=(8, 20))

    def test_key_lookup_finds_the_newest_record_with_nulls(self, tmp_path: Path) -> None:
        log = self.log(tmp_path / "metro-0")
        row = answer(log, "key", key=b"a")
        assert (row["offset"], row["record"]["value"]) == (40, None)
        assert answer(log, "key", key=b"abc")["offset"] == 38
        assert {Path(str(step["file"])).name for step in row["path"]} == {"00000000000000000020.log"}

    def test_key_lookup_of_every_version_is_oldest_first(self, tmp_path: Path) -> None:
        log = self.log(tmp_path / "metro-0")
        rows = ask(log, "key", key=b"abc", every_version=True, log_start_offset=3).rows
        assert [row["offset"] for row in rows] == [at * 4 + n for at in range(1, 10) for n in (0, 2)]
        assert [row["bytes_read"] for row in rows] == sorted(row["bytes_read"] for row in rows)

    @pytest.mark.parametrize("key", [b"b", b"", b"ab", b"abcd"])
    def test_key_lookup_of_an_unknown_key_finds_nothing(self, key: bytes, tmp_path: Path) -> None:
        log = self.log(tmp_path / "metro-0")
        assert answer(log, "key", key=key)["found"] is False

    def test_key_lookup_scans_spans_backwards(self, tmp_path: Path) -> None:
        """In a large segment, the newest record is found in the last span without reading the others."""
        value = b"x" * 100_000
        batches = [NewBatch(records=(Record(at, T0, b"k%d" % at, value),)) for at in range(120)]
        log = build_log(tmp_path / "metro-0", *batches)
        late, early = answer(log, "key", key=b"k119"), answer(log, "key", key=b"k0")
        assert (late["offset"], early["offset"]) == (119, 0)
        assert late["bytes_read"] < 7_000_000
        assert early["bytes_read"] > 12_000_000


class TestKafka07:
    def test_every_0_7_message_is_found_at_its_offset(self, ancient_small: Path) -> None:
        log = ancient_small / "taps-0"
        with unchanged(log):
            reads = [json.loads(line) for line in (ancient_small / "reads.jsonl").read_text().splitlines()]
            for offset in sorted({read["offset"] for read in reads if "offset" in read}):
                row = answer(log, "offset", offset=offset)
                assert (row["offset"], row["record"]["offset"]) == (offset, offset)
                assert int(Path(row["segment"]).stem) + row["position"] == offset

    def test_0_7_lookup_inside_a_message_reads_the_next_one(self, ancient_small: Path) -> None:
        row = answer(ancient_small / "taps-0", "offset", offset=300)
        assert row["batch_base_offset"] <= 300 <= row["batch_last_offset"] < row["record"]["offset"]
        assert row["record"]["offset"] == row["batch_last_offset"] + 1

    def test_0_7_lookup_of_ends_and_of_unsupported_queries(self, ancient_small: Path) -> None:
        log = ancient_small / "taps-0"
        end = max(int(file.stem) + file.stat().st_size for file in log.glob("*.kafka"))
        assert answer(log, "latest")["offset"] == end
        assert answer(log, "earliest")["offset"] == 0
        assert answer(log, "offset", offset=end)["found"] is False
        assert [f.exit_status for f in ask(log, "timestamp", timestamp_ms=5).failures] == [2]

    def test_0_7_lookup_skips_damage(self, ancient_small: Path) -> None:
        """A bit is flipped in the message at 760 in the last file (recovered.jsonl), and the next message is found."""
        log = ancient_small / "flip" / "taps-0"
        last = 21760
        result = ask(log, "offset", offset=last + 760)
        (row,) = result.rows
        assert row["found"] is True
        assert row["offset"] == row["record"]["offset"] > last + 760
        assert result.kinds == ["bad-crc"]
        assert (result.findings[0].position, result.findings[0].first_offset) == (760, last + 760)


@pytest.fixture(scope="module")
def tebibyte_shaped(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Fewer than 1,000 segments, but each of full size: the amount that is read must not depend on their number."""
    return sparse_files.build(tmp_path_factory.mktemp("sparse") / "big-0", 40)


class TestBigPartition:
    @pytest.mark.parametrize("offset", [0, 25_500_063, 39_999_999])
    def test_offset_lookup_reads_a_few_batches(self, offset: int, tebibyte_shaped: Path) -> None:
        row = answer(tebibyte_shaped, "offset", offset=offset)
        assert row["record"]["offset"] == row["offset"] >= offset
        assert row["bytes_read"] < 5 * len(sparse_files.batch_bytes(0))
        opened = {step["file"] for step in row["path"] if step["step"] == "open"}
        assert opened == {row["segment"]}

    @pytest.mark.parametrize("offset", [7, 25_000_041, 39_999_985])
    def test_timestamp_lookup_reads_one_entry_a_segment_and_a_few_batches(
        self, offset: int, tebibyte_shaped: Path
    ) -> None:
        row = answer(tebibyte_shaped, "timestamp", timestamp_ms=sparse_files.timestamp_of(offset))
        assert (row["offset"], row["timestamp"]) == (offset, sparse_files.timestamp_of(offset))
        assert row["bytes_read"] < 40 * 12 + 8 * len(sparse_files.batch_bytes(0))
        opened = {step["file"] for step in row["path"] if step["step"] == "open"}
        assert len(opened) <= 2
