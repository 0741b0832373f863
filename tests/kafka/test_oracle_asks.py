"""The oracle's other requests, each on data for which the answer is known from the captures or by construction."""

from __future__ import annotations

import json
from base64 import b64decode
from pathlib import Path
from typing import Any

import pytest

from tests.kafka.oracle import KafkaRaised, Oracle
from tests.support.trees import unchanged

pytestmark = pytest.mark.kafka

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
FIRST_MS = 1_750_000_000_000  # record n of the metro topics was written with FIRST_MS + 1000 n


def test_oracle_reads_old_logs_like_their_own_version(oracle: Oracle, legacy_small: Path) -> None:
    for topic in ("comb.gzip-0", "comb.lz4-0", "comb.snappy-0", "swarm.codecs-0", "odd.times-0", "up.lz4-0"):
        state = legacy_small / "data/1.1.1/4-compacted"
        lines = (legacy_small / f"records/1.1.1/4-compacted/{topic}.jsonl").read_text().splitlines()
        expected = [json.loads(line) for line in lines]
        asked = [r for file in sorted((state / topic).glob("*.log")) for r in oracle.records(file)]
        got = [(r["offset"], r["key"], r["value"]) for r in asked if r["type"] == "record"]
        assert got == [
            (e["offset"], *(None if e[k] is None else b64decode(e[k]) for k in ("key", "value")))
            for e in expected
        ]


def test_oracle_records_end_with_an_error_line_at_damage(oracle: Oracle, tmp_path: Path) -> None:
    batch = oracle.make({"codec": "gzip", "records": [{"timestamp": 1, "value": b"x" * 50}]})
    file = tmp_path / "00000000000000000000.log"
    file.write_bytes(batch + batch[:61] + bytes(len(batch) - 61))
    lines = oracle.records(file)
    assert [line["type"] for line in lines] == ["batch", "record", "batch", "error"]
    assert lines[-1]["position"] == len(batch)


def test_oracle_reads_indexes_and_leader_epochs(oracle: Oracle, capture_small: Path) -> None:
    partition = capture_small / "data/metro-none-0"
    with unchanged(partition):
        offsets = oracle.offset_index(partition / "00000000000000000000.index", [0, 35, 58])
        assert offsets["entries"] == [[35, 1700], [59, 3527]]
        assert offsets["found"] == [[0, 0], [35, 1700], [35, 1700]]
        times = oracle.time_index(partition / "00000000000000000000.timeindex", [FIRST_MS + 36_000])
        assert times["found"] == [[FIRST_MS + 35_000, 35]]
        epochs = oracle.epochs(partition / "leader-epoch-checkpoint", [0, 9], 160)
        assert epochs["found"][0] == [0, 160]


def test_oracle_searches_a_segment_by_offset_and_time(oracle: Oracle, capture_small: Path) -> None:
    partition = capture_small / "data/metro-zstd-0"
    asks = [{"what": "offset", "offset": 7}, {"what": "timestamp", "timestamp": FIRST_MS + 7_000}]
    with unchanged(partition):
        by_scan = oracle.search(partition / "00000000000000000000.log", asks)
        by_index = oracle.segment(partition, 0, [*asks, {"what": "read", "offset": 7, "max_bytes": 20}])
    assert by_scan == by_index[:2]
    assert (by_scan[0]["offset"], by_scan[1]["offset"], by_scan[1]["timestamp"]) == (0, 7, FIRST_MS + 7_000)
    assert by_index[2]["cut"] and len(by_index[2]["data"]) == 20


def test_oracle_partition_answers_offsets_epochs_and_state(oracle: Oracle, capture_small: Path) -> None:
    partition = capture_small / "data/metro-lz4-0"
    steps: list[dict[str, Any]] = [{"what": "epoch_end", "epoch": 0}]
    steps += [{"what": "offset_by_timestamp", "timestamp": t} for t in (-1, -2, -3, FIRST_MS + 99_001)]
    with unchanged(partition):
        answer = oracle.partition(partition, steps, clean=True)
    assert [line["offset"] for line in answer.found] == [160, 160, 0, 159, 100]
    assert (answer.loaded["log_start_offset"], answer.loaded["last_stable_offset"]) == (0, 160)


def test_oracle_recovery_truncates_a_torn_tail(oracle: Oracle, capture_small: Path) -> None:
    copy = oracle.copy(capture_small / "data/metro-gzip-0")
    last = max(copy.glob("*.log"))
    batches = oracle.records(last, deep=False)
    last.write_bytes(last.read_bytes()[:-3])
    answer = oracle.partition(copy, now=FIRST_MS)
    assert answer.loaded["log_end_offset"] == batches[-1]["base_offset"]
    assert (answer.directory / last.name).stat().st_size == batches[-1]["position"]


def test_oracle_crash_leaves_indexes_preallocated(oracle: Oracle, capture_small: Path) -> None:
    answer = oracle.partition(
        capture_small / "data/metro-none-0", close="handlers", config={"segment.index.bytes": "4096"}
    )
    assert max(answer.directory.glob("*.index")).stat().st_size == 4096


def test_oracle_cleaner_repeats_the_cleaning_of_the_capture(oracle: Oracle, capture_small: Path) -> None:
    cleaned = capture_small / "data/stations-0"
    logs = sorted(cleaned.glob("*.log"))
    horizons = {b["delete_horizon_ms"] for log in logs for b in oracle.records(log, deep=False)} - {None}
    assert len(horizons) == 1
    now = horizons.pop() - 86_400_000
    config = {"cleanup.policy": "compact", "internal.segment.bytes": "6000", "index.interval.bytes": "1024"}
    answer = oracle.partition(
        capture_small / "before/stations-0", [{"what": "clean"}], clean=True, now=now, config=config
    )
    assert answer.found[0]["next_dirty_offset"] == 280
    for log in logs:
        assert (answer.directory / log.name).read_bytes() == log.read_bytes(), log.name


def test_oracle_steps_change_a_copy(oracle: Oracle, capture_small: Path) -> None:
    batch = oracle.make({"codec": "zstd", "records": [{"timestamp": FIRST_MS, "key": b"k", "value": None}]})
    steps: list[dict[str, Any]] = [{"what": "append", "batches": batch}]
    steps += [{"what": "roll"}, {"what": "retain"}, {"what": "state"}]
    with unchanged(capture_small / "data/metro-none-0"):
        answer = oracle.partition(
            capture_small / "data/metro-none-0",
            steps,
            now=FIRST_MS,
            config={"retention.bytes": "1"},
            clean=True,
        )
    assert answer.found[0]["first_offset"] == 160
    assert answer.found[1]["base_offset"] == 161
    # The last segment with data is kept: without it, less than the limit of one byte would be left.
    assert [s["base_offset"] for s in answer.found[3]["segments"]] == [144, 161]
    assert (answer.directory / "00000000000000000000.log.deleted").exists()


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("magic", [0, 1, 2])
def test_oracle_codecs_round_trip(oracle: Oracle, codec: str, magic: int) -> None:
    data = b"ring stop " * 1000
    packed = oracle.compress(data, codec, magic)
    assert oracle.decompress(packed, codec, magic) == data
    # for v0, Kafka has always computed the header checksum over the wrong bytes
    if codec == "lz4":
        assert packed[4:7].hex() == ("60401a" if magic == 0 else "604082")


def test_oracle_makes_the_requested_batches(oracle: Oracle, tmp_path: Path) -> None:
    headers = [("h", None), ("h", b"x")]
    data = oracle.make(
        {"base_offset": 5, "codec": "zstd", "records": [{"timestamp": 7, "value": b"v", "headers": headers}]},
        {
            "base_offset": 7,
            "transactional": True,
            "control": True,
            "producer_id": 3,
            "producer_epoch": 1,
            "records": [{"marker": "COMMIT", "coordinator_epoch": 4, "timestamp": 9}],
        },
        {"empty": True, "base_offset": 8, "last_offset": 12, "producer_id": 9, "base_sequence": 3},
        {"magic": 0, "base_offset": 13, "records": [{"key": b"a", "value": b"b"}]},
    )
    file = tmp_path / "00000000000000000005.log"
    file.write_bytes(data)
    lines = oracle.records(file)
    batches = [line for line in lines if line["type"] == "batch"]
    assert [(b["base_offset"], b["last_offset"], b["count"]) for b in batches] == [
        (5, 5, 1),
        (7, 7, 1),
        (8, 12, 0),
        (13, 13, None),
    ]
    assert lines[1]["headers"] == headers
    assert all(b["valid"] for b in batches)


def test_oracle_raises_what_kafka_throws(oracle: Oracle) -> None:
    with pytest.raises(KafkaRaised) as refused:
        oracle.make({"magic": 1, "codec": "zstd", "records": []})
    assert refused.value.name == "java.lang.IllegalArgumentException"
    assert refused.value.message == "ZStandard compression is not supported for magic 1"
