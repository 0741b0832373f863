"""Lookups of a key: however the log is divided, searched and narrowed, the answer is that of a search through every record."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest

from kseg.change.append.partition_writer import PartitionWriter, RollRules
from kseg.inspection.lookup import by_key
from kseg.segment.model import NewBatch, Record
from kseg.segment.partition.bounds import Bounds
from kseg.segment.state.control import EndTransactionMarker, end_transaction_batch
from tests.support.run_commands import Heard, answer, ask

T0 = 1_700_000_000_000
RULES = RollRules(segment_bytes=60_000, index_interval_bytes=512)
KEYS = (b"hot", b"warm", b"cold", None)


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Several segments with batches of every codec, and markers between them. Timestamps do not increase strictly."""
    chance = random.Random(20)
    directory = tmp_path_factory.mktemp("keys") / "metro-0"
    with PartitionWriter(directory, rules=RULES) as writer:
        for number in range(300):
            first = writer.next_offset
            records = tuple(
                Record(
                    offset,
                    T0 + 10 * first + chance.randrange(40),
                    chance.choices(KEYS, (20, 5, 1, 10))[0],
                    b"%d" % chance.getrandbits(600),
                )
                for offset in range(first, first + 6)
            )
            writer.append(
                NewBatch(
                    records=records,
                    codec=number % 5,
                    transactional=True,
                    producer_id=7,
                    producer_epoch=0,
                    base_sequence=6 * number,
                )
            )
            if number % 7 == 6:
                marker = EndTransactionMarker(number % 2 == 0, 0, T0)
                writer.append(end_transaction_batch(marker, writer.next_offset, 7, 0, 0))
    assert len(list(directory.glob("*.log"))) > 3
    return directory


@pytest.fixture(params=["as it is", "small spans"])
def division(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    if request.param == "small spans":
        monkeypatch.setattr(by_key, "FIRST_SPAN_BYTES", 1500)
        monkeypatch.setattr(by_key, "SPAN_BYTES", 6000)
        monkeypatch.setattr(by_key, "SERIAL_BYTES", 20_000)
        monkeypatch.setattr(by_key, "WAVE_BYTES", 50_000)
    return str(request.param)


def every_record(log: Path) -> list[dict[str, Any]]:
    """The row of every record, from lookups of each key with all versions and without the index."""
    found = ask(log, "key", key=b"hot", every_version=True, use_index=False).rows
    found += ask(log, "key", key=b"warm", every_version=True, use_index=False).rows
    return sorted((row["record"] for row in found), key=lambda record: int(record["offset"]))


def offsets(heard: Heard) -> list[int]:
    assert (heard.findings, heard.failures) == ([], [])
    return [row["offset"] for row in heard.rows if row["found"]]


BOUNDS = [
    Bounds(),
    Bounds(from_offset=700),
    Bounds(to_offset=700),
    Bounds(from_offset=500, to_offset=507),
    Bounds(from_ms=T0 + 9000),
    Bounds(to_ms=T0 + 9000),
    Bounds(from_offset=300, from_ms=T0 + 6000, to_ms=T0 + 12_000),
    Bounds(from_offset=100_000),
    Bounds(from_offset=9, to_offset=9),
    Bounds(from_ms=T0 + 1_000_000),
]


@pytest.mark.parametrize("bounds", BOUNDS, ids=str)
def test_key_lookup_bounds_exclude_only_records_outside(log: Path, division: str, bounds: Bounds) -> None:
    expected = [
        record["offset"]
        for record in every_record(log)
        if record["key"] == "warm"
        and bounds.from_offset <= record["offset"] < bounds.to_offset
        and bounds.from_ms <= record["timestamp"] < bounds.to_ms
    ]
    for use_index in (True, False):
        asked: dict[str, Any] = {"key": b"warm", "bounds": bounds, "use_index": use_index}
        assert offsets(ask(log, "key", every_version=True, **asked)) == expected
        assert offsets(ask(log, "key", **asked)) == expected[-1:]


@pytest.mark.slow
@pytest.mark.parametrize("every_version", [True, False])
@pytest.mark.parametrize("key", [b"hot", b"cold", b"nobody's"])
@pytest.mark.parametrize("read_committed", [True, False])
def test_key_lookup_by_workers_gives_the_same_rows(
    log: Path, division: str, key: bytes, every_version: bool, read_committed: bool
) -> None:
    """This includes the number of bytes read and how the record was found."""
    asked: dict[str, Any] = {"key": key, "every_version": every_version, "read_committed": read_committed}
    alone, together = ask(log, "key", **asked), ask(log, "key", jobs=2, **asked)
    assert alone.failures == []
    assert together == alone


def test_key_lookup_bounds_reduce_the_bytes_read(log: Path) -> None:
    whole = answer(log, "key", key=b"nobody's")["bytes_read"]
    late = answer(log, "key", key=b"nobody's", bounds=Bounds(from_ms=T0 + 15_000))["bytes_read"]
    few = answer(log, "key", key=b"nobody's", bounds=Bounds(from_offset=900, to_offset=910))["bytes_read"]
    assert late < whole / 2
    assert few < whole / 2


def test_key_lookup_by_workers_reports_damage_once(
    log: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    copy = tmp_path / "metro-0"
    copy.mkdir()
    for file in log.iterdir():
        (copy / file.name).write_bytes(file.read_bytes())
    damaged = sorted(copy.glob("*.log"))[1]
    data = bytearray(damaged.read_bytes())
    data[20_000] ^= 1
    damaged.write_bytes(data)
    monkeypatch.setattr(by_key, "FIRST_SPAN_BYTES", 1500)
    monkeypatch.setattr(by_key, "SPAN_BYTES", 6000)
    monkeypatch.setattr(by_key, "SERIAL_BYTES", 1)
    alone = ask(copy, "key", key=b"hot", every_version=True)
    together = ask(copy, "key", key=b"hot", every_version=True, jobs=2)
    assert alone.kinds == ["bad-crc"]
    assert together == alone


def test_log_deleted_during_a_key_lookup_is_a_failure(
    log: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    copy = tmp_path / "metro-0"
    copy.mkdir()
    for file in log.iterdir():
        (copy / file.name).write_bytes(file.read_bytes())
    gone = min(copy.glob("*.log"))
    gone.unlink()
    gone.mkdir()
    monkeypatch.setattr(by_key, "SERIAL_BYTES", 1)
    for jobs in (1, 2):
        heard = ask(copy, "key", key=b"nobody's", jobs=jobs)
        assert [failure.exit_status for failure in heard.failures] == [3]
        assert gone.name in heard.failures[0].sentence


class TestPartitioner:
    def dirs(self, root: Path) -> list[Path]:
        """Three partitions that all contain the key `metro`, although Kafka's hash assigns it to one of them only."""
        record = Record(0, T0, b"metro", b"v")
        for number in range(3):
            with PartitionWriter(root / f"metro-{number}") as writer:
                writer.append(NewBatch(records=(record,)))
        return [root / f"metro-{number}" for number in range(3)]

    def test_key_lookup_by_partitioner_opens_only_the_keys_partition(self, tmp_path: Path) -> None:
        # from Kafka's UtilsTest
        murmur2_of_21 = -973932308
        rows = [answer(path, "key", key=b"21", partition_counts={"metro": 3}) for path in self.dirs(tmp_path)]
        assert ["searched" not in row for row in rows] == [
            (murmur2_of_21 & 0x7FFFFFFF) % 3 == n for n in range(3)
        ]
        assert {row["bytes_read"] for row in rows if "searched" in row} == {0}
        assert all("not searched" in row["reason"] for row in rows if "searched" in row)

    def test_key_lookup_without_a_valid_partition_count_searches_all(self, tmp_path: Path) -> None:
        for path in self.dirs(tmp_path):
            assert answer(path, "key", key=b"metro", partition_counts={"other": 3})["found"] is True
        assert (
            answer(tmp_path / "metro-2", "key", key=b"metro", partition_counts={"metro": 1})["found"] is True
        )
