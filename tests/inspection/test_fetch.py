"""Reads: complete batches, growing and cutting, records as rows, and the frames of Kafka 0.7."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from fixtures import diseases, healthy
from kseg.inspection.fetch import grown_max_bytes
from kseg.inspection.query import ReadQuery
from kseg.segment.kafka07.fetch_response import multi_message_set_send
from tests.support.encoders import message_set_send
from tests.support.run_commands import ask, fetch
from tests.support.trees import unchanged


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return healthy.partition(tmp_path_factory.mktemp("whole") / "metro-0")


def first_log(partition: Path) -> Path:
    return min(partition.glob("*.log"))


class TestBatches:
    @pytest.mark.behaviour("L06")
    def test_fetch_returns_complete_batches_within_the_size(self, whole: Path) -> None:
        spans, data = diseases.batch_spans(first_log(whole)), first_log(whole).read_bytes()
        start, end = spans[0][0], spans[2][0]
        with unchanged(whole):
            for surplus in (0, 1, spans[2][1] - 1):
                assert fetch(whole, 0, end + surplus, raw=True).data == data[start:end]

    @pytest.mark.behaviour("L06")
    def test_fetch_size_is_doubled_until_one_batch_fits(self, whole: Path) -> None:
        spans, data = diseases.batch_spans(first_log(whole)), first_log(whole).read_bytes()
        size = spans[0][1]
        result = fetch(whole, 0, 1)
        (row,) = result.of_type("read")
        assert row["max_bytes"] == 1 << (size - 1).bit_length()
        expected = max(
            position + length for position, length in spans if position + length <= row["max_bytes"]
        )
        assert fetch(whole, 0, 1, raw=True).data == data[:expected]

    def test_fetch_grows_only_up_to_the_limit_and_only_if_enabled(self, whole: Path) -> None:
        spans, data = diseases.batch_spans(first_log(whole)), first_log(whole).read_bytes()
        size = spans[0][1]
        refused = fetch(whole, 0, 1, raw=True, max_message_bytes=size - 1)
        assert (refused.data, [failure.exit_status for failure in refused.failures]) == (b"", [1])
        assert str(size) in refused.failures[0].sentence
        assert fetch(whole, 0, 1, raw=True, max_message_bytes=size).data == data[:size]
        cut = fetch(whole, 0, size + 5, raw=True, grow=False)
        assert cut.data == data[: size + 5]
        rows = fetch(whole, 0, size + 5, grow=False)
        assert rows.of_type("read")[0]["cut"] is True
        assert len(rows.of_type("batch")) == 1

    def test_fetch_ends_with_its_segment(self, whole: Path) -> None:
        assert fetch(whole, 0, 1 << 30, raw=True).data == first_log(whole).read_bytes()

    def test_fetched_rows_equal_those_of_dump(self, whole: Path) -> None:
        result = fetch(whole, 5, 700)
        batches, records = result.of_type("batch"), result.of_type("record")
        (row,) = result.of_type("read")
        assert (row["position"], row["size"]) == (
            batches[0]["position"],
            sum(batch["size"] for batch in batches),
        )
        assert batches[0]["base_offset"] <= 5 <= batches[0]["last_offset"]
        # a fetch returns the complete batch
        assert records[0]["offset"] == batches[0]["base_offset"]
        looked_up = ask(whole, "offset", offset=records[1]["offset"]).rows[0]["record"]
        assert looked_up == records[1]

    @pytest.mark.behaviour("L01", "L03", "L08")
    def test_fetch_at_the_end_is_empty_and_outside_is_an_error(self, whole: Path) -> None:
        end = ask(whole, "latest").rows[0]["offset"]
        empty = fetch(whole, end, 100)
        assert (empty.rows[0]["size"], empty.rows[0]["segment"], empty.failures) == (0, None, [])
        assert fetch(whole, end, 100, raw=True).data == b""
        beyond = fetch(whole, end + 1, 100, raw=True)
        assert [failure.exit_status for failure in beyond.failures] == [1]
        assert f"0 to {end}" in beyond.failures[0].sentence

    def test_fetch_with_invalid_sizes_is_wrong_usage(self, whole: Path) -> None:
        for result in (fetch(whole, -1, 10), fetch(whole, 0, -1), fetch(whole, 0, 1, framing="nonsense")):
            assert [failure.exit_status for failure in result.failures] == [2]

    def test_damage_ends_a_fetch_of_complete_batches(self, whole: Path, tmp_path: Path) -> None:
        log = diseases.copy_of(whole, tmp_path / "metro-0")
        file = first_log(log)
        spans = diseases.batch_spans(file)
        diseases.foreign_bytes(file, 3)
        result = fetch(log, 0, 1 << 20, raw=True)
        assert result.data == file.read_bytes()[: spans[3][0]]
        assert result.kinds == ["foreign-bytes"]
        assert fetch(log, 0, spans[2][0], raw=True).kinds == []

    def test_fetch_size_grows_by_doubling(self) -> None:
        query = ReadQuery(offset=0, max_bytes=3, max_message_bytes=100)
        assert [grown_max_bytes(3, first, query) for first in (1, 3, 4, 7, 50, 96, 97, 100, 101)] == [
            3, 3, 6, 12, 96, 96, 100, 100, None,
        ]  # fmt: skip
        assert grown_max_bytes(500, 400, query) == 500


class TestFrames07:
    def reads(self, ancient_small: Path) -> tuple[list[dict[str, Any]], dict[str, Any]]:
        lines = [json.loads(line) for line in (ancient_small / "reads.jsonl").read_text().splitlines()]
        return lines[:-1], lines[-1]

    def test_message_set_send_equals_what_jafka_sent(self, ancient_small: Path) -> None:
        """reads.jsonl: what Jafka's server sent for these offsets and sizes, including cut messages."""
        log = ancient_small / "taps-0"
        singles, _ = self.reads(ancient_small)
        with unchanged(log):
            for read in singles:
                got = fetch(log, read["offset"], read["max_bytes"], framing="message-set", grow=False)
                assert got.data.hex() == read["message_set_send"]

    def test_multi_message_set_send_equals_what_jafka_sent(self, ancient_small: Path) -> None:
        singles, multi = self.reads(ancient_small)
        parts = [
            fetch(
                ancient_small / "taps-0", read["offset"], read["max_bytes"], framing="multi", grow=False
            ).data
            for read in singles[: multi["multi_of_first"]]
        ]
        assert multi_message_set_send(parts).hex() == multi["multi_message_set_send"]

    def test_growing_fetch_gives_complete_0_7_messages(self, ancient_small: Path) -> None:
        log = ancient_small / "taps-0"
        data = first_kafka07(log).read_bytes()
        assert fetch(log, 0, 300, raw=True).data == data[:264]
        # 10 bytes grow to 320, enough for the compressed set of 289 bytes but not for more
        assert fetch(log, 264, 10, raw=True).data == data[264:553]
        records = fetch(log, 264, 10).of_type("record")
        assert {(record["offset"], record["next_offset"]) for record in records} == {(264, 553)}

    def test_0_7_fetch_at_the_end_is_empty_and_beyond_is_an_error(self, ancient_small: Path) -> None:
        """Log.findRange: the end is a valid offset; beyond it the result is OffsetOutOfRange (error code 1)."""
        log = ancient_small / "taps-0"
        end = ask(log, "latest").rows[0]["offset"]
        assert fetch(log, end, 100, framing="message-set").data == message_set_send(b"")
        beyond = fetch(log, end + 1, 100, framing="message-set")
        assert beyond.data == bytes.fromhex("00000002 0001")
        assert [failure.exit_status for failure in beyond.failures] == [1]

    def test_0_7_frames_match_the_vectors(self) -> None:
        one = message_set_send(b"abcd")
        assert one == b"\x00\x00\x00\x06\x00\x00abcd"
        assert (
            multi_message_set_send([one, message_set_send(b"")])
            == b"\x00\x00\x00\x12\x00\x00" + one + b"\x00\x00\x00\x02\x00\x00"
        )


def first_kafka07(log: Path) -> Path:
    return min(log.glob("*.kafka"))
