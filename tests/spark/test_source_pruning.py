"""Offsets and timestamps in a query exclude segments before they are opened."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from kseg.segment import files, opening, probe
from kseg.segment.errors import UsageError
from kseg.segment.layout import TRANSACTIONAL_BIT
from kseg.segment.partition.bounds import Bounds
from kseg.spark.source.splits import DataLoss
from tests.support.raw_batches import T0, record, sealed
from tests.support.scan_helpers import batch
from tests.support.source_tasks import BATCHES, SEGMENTS, bases, pieces


@pytest.fixture
def timed(tmp_path: Path) -> Path:
    """A partition of ten segments with time indexes, in which timestamps increase by a second from record to record."""
    directory = tmp_path / "timed-0"
    directory.mkdir()
    for segment in range(SEGMENTS):
        base = segment * BATCHES
        name = directory / f"{base:020d}"
        stamps = [T0 + 1000 * (base + n) for n in range(BATCHES)]
        name.with_suffix(".log").write_bytes(
            b"".join(
                sealed(
                    record(0, value=b"v" * 900), 1, base_offset=base + n, base_timestamp=at, max_timestamp=at
                )
                for n, at in enumerate(stamps)
            )
        )
        last = stamps[-1].to_bytes(8, "big") + (BATCHES - 1).to_bytes(4, "big")
        name.with_suffix(".timeindex").write_bytes(last)
        size = name.with_suffix(".log").stat().st_size // BATCHES
        entries = [n.to_bytes(4, "big") + (n * size).to_bytes(4, "big") for n in range(5, BATCHES, 5)]
        name.with_suffix(".index").write_bytes(b"".join(entries))
    return directory


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of the files that were opened."""
    names: list[str] = []

    def note(name: str) -> int:
        names.append(os.path.basename(name))
        return opening.opened(name)

    for module in (files, probe):
        monkeypatch.setattr(module, "opened", note)
    return names


def test_offset_range_opens_only_its_segments(timed: Path, opened: list[str]) -> None:
    found = pieces(timed, fromOffset="250", toOffset="555")
    assert bases(found) == [2, 3, 4, 5]
    assert {name for name in opened if name.endswith(".log")} == {f"{200:020d}.log", f"{500:020d}.log"}
    assert found[0].start > 0 and found[-1].stop is not None
    assert all((piece.start, piece.stop) == (0, None) for piece in found[1:-1])


def test_time_range_prunes_segments_by_the_ends_of_time_indexes(timed: Path, opened: list[str]) -> None:
    found = pieces(timed, fromTimestamp=str(T0 + 1000 * 730))
    assert bases(found) == [7, 8, 9]
    assert not [name for name in opened if name.endswith(".log")]


def test_incomplete_time_index_prunes_nothing(timed: Path) -> None:
    index = timed / f"{200:020d}.timeindex"
    entry = bytearray(index.read_bytes())
    entry[-1] -= 1
    index.write_bytes(entry)
    assert bases(pieces(timed, fromTimestamp=str(T0 + 1000 * 730))) == [2, 7, 8, 9]


def test_use_indexes_false_reads_no_index(timed: Path, opened: list[str]) -> None:
    found = pieces(timed, fromTimestamp=str(T0 + 1000 * 730), useIndexes="false")
    assert bases(found) == list(range(SEGMENTS))
    assert not [name for name in opened if name.endswith("index")]


def test_starting_timestamp_becomes_an_offset(timed: Path) -> None:
    (first, *_) = pieces(timed, startingTimestamp=str(T0 + 1000 * 512 - 1))
    assert first.bounds == Bounds(512)
    (first, *_) = pieces(timed, startingOffsetsByTimestamp=json.dumps({"timed": {"0": T0 + 1000 * 512}}))
    assert first.bounds == Bounds(512)
    (last,) = pieces(timed, endingTimestamp=str(T0 + 1000 * 7))
    assert last.bounds == Bounds(to_offset=7)
    (last,) = pieces(timed, endingOffsetsByTimestamp=json.dumps({"timed": {"0": T0 + 1000 * 7 - 999}}))
    assert last.bounds == Bounds(to_offset=7)
    assert pieces(timed, endingTimestamp=str(T0 * 2))[-1].bounds == Bounds()
    with pytest.raises(UsageError, match="partitions read: timed-0; partitions named: timed-1"):
        pieces(timed, endingOffsetsByTimestamp=json.dumps({"timed": {"1": T0}}))


def test_starting_timestamp_beyond_all_records_follows_the_strategy(timed: Path) -> None:
    late = str(T0 * 2)
    with pytest.raises(UsageError, match="no record of timed-0 has a timestamp at or after"):
        pieces(timed, startingTimestamp=late)
    assert not pieces(timed, startingTimestamp=late, startingOffsetsByTimestampStrategy="latest")


def test_missing_offsets_are_refused_or_skipped(timed: Path) -> None:
    start = json.dumps({"timed": {"0": 990}})
    assert pieces(timed, startingOffsets=start)[0].bounds == Bounds(990)
    beyond = json.dumps({"timed": {"0": 1001}})
    with pytest.raises(
        DataLoss, match="startingOffsets of timed-0 is 1001, but the log ranges from 0 to 1000"
    ):
        pieces(timed, startingOffsets=beyond)
    with pytest.raises(DataLoss, match="endingOffsets of timed-0 is 1001"):
        pieces(timed, endingOffsets=beyond)
    assert pieces(timed, endingOffsets=beyond, failOnDataLoss="false")


@pytest.mark.parametrize(
    ("given", "start", "end"),
    [
        ({"startingOffsets": 1001}, 1001, 1000),
        ({"startingTimestamp": T0 + 1000 * 512, "endingOffsets": 511}, 512, 511),
        ({"startingOffsets": 512, "endingTimestamp": T0 + 1000 * 511}, 512, 511),
        ({"startingTimestamp": T0 + 1000 * 512, "endingTimestamp": T0 + 1000 * 511}, 512, 511),
        ({"startingTimestamp": T0 * 2, "endingOffsets": 999}, 1000, 999),
    ],
)
def test_start_offset_beyond_the_end_is_refused(
    timed: Path, given: dict[str, int], start: int, end: int
) -> None:
    """Spark's source refuses these with RESOLVED_START_OFFSET_GREATER_THAN_END_OFFSET, whatever failOnDataLoss is. Equal start and end read
    nothing."""

    def shaped(by: int) -> dict[str, str]:
        return {
            name: json.dumps({"timed": {"0": number + by}}) if name.endswith("Offsets") else str(number)
            for name, number in given.items()
        }

    always = {"failOnDataLoss": "false", "startingOffsetsByTimestampStrategy": "latest"}
    with pytest.raises(UsageError, match=f"timed-0 starts at offset {start}, after its end {end}"):
        pieces(timed, **always, **shaped(0))
    if "startingOffsets" in given:
        assert {each.bounds.from_offset for each in pieces(timed, **always, **shaped(-1))} <= {end}
    elif "endingOffsets" in given:
        assert not pieces(timed, **always, **shaped(1))


def test_last_stable_offset_is_the_end_of_committed_data(tmp_path: Path) -> None:
    directory = tmp_path / "open-0"
    directory.mkdir()
    transactions_around = sealed(
        record(0), 1, base_offset=2, attributes=TRANSACTIONAL_BIT, producer=(7, 0, 0)
    )
    (directory / f"{0:020d}.log").write_bytes(batch(0, 2) + transactions_around + batch(3, 1))
    at_end = {"startingOffsets": json.dumps({"open": {"0": 4}}), "failOnDataLoss": "false"}
    assert {each.bounds.from_offset for each in pieces(directory, **at_end)} == {4}
    committed = {"isolation.level": "read_committed"}
    with pytest.raises(UsageError, match="open-0 starts at offset 4, after its end 2"):
        pieces(directory, **at_end, **committed)
    # undecided records that are requested by number are lost for a reader of committed data (Spark: KAFKA_DATA_LOSS)
    to_end = {"endingOffsets": json.dumps({"open": {"0": 3}})}
    assert pieces(directory, **to_end)
    with pytest.raises(DataLoss, match="endingOffsets of open-0 is 3, but the log ranges from 0 to 2"):
        pieces(directory, **to_end, **committed)
    assert pieces(directory, **to_end, **committed, failOnDataLoss="false")


def test_checkpointed_log_start_is_the_earliest_offset(timed: Path) -> None:
    log_dir = timed.parent
    (log_dir / "meta.properties").write_text("version=1\n")
    (log_dir / "log-start-offset-checkpoint").write_text("0\n1\ntimed 0 430\n")
    (first, *_) = pieces(log_dir)
    assert first.bounds == Bounds(430) and first.base_offset == 400
    (first, *_) = pieces(log_dir, includeDeleted="true")
    assert first.bounds == Bounds() and first.base_offset == 0
    with pytest.raises(DataLoss, match="ranges from 430"):
        pieces(log_dir, startingOffsets=json.dumps({"timed": {"0": 10}}))


def test_offsets_must_name_every_partition(timed: Path) -> None:
    with pytest.raises(UsageError, match="partitions read: timed-0; partitions named: other-0"):
        pieces(timed, startingOffsets=json.dumps({"other": {"0": 1}}))


def test_offset_range_prunes_by_segment_names_alone(timed: Path, opened: list[str]) -> None:
    found = pieces(timed, fromOffset="300", toOffset="500")
    assert bases(found) == [3, 4]
    assert not [name for name in opened if name.endswith(".log")]
