"""Lookups and reads compared with the answers of the real UnifiedLog on the same directory."""

from __future__ import annotations

import os
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from fixtures import diseases, healthy
from kseg.change.append.partition_writer import PartitionWriter, RollRules
from kseg.recovery.verify.options import VerifyOptions
from kseg.recovery.verify.verify import verify
from kseg.segment import layout as L
from kseg.segment.model import NewBatch, Record
from kseg.segment.partition.partition_log import PartitionLog
from kseg.segment.partition.remote_span import RemoteSpan
from kseg.segment.partition.targets import FileTarget, PartitionTarget
from tests.cli.test_list_remote import log_dir
from tests.internal_topics.coordinator_logs import batch, write_segment
from tests.internal_topics.metadata_logs import T0
from tests.kafka.oracle import Oracle
from tests.kafka.retentions import OddCalmLog, random_retention
from tests.support.run_commands import ask, fetch, heard
from tests.support.trees import copy_tree, unchanged

pytestmark = pytest.mark.kafka

TIERED = {"remote.storage.enable": "true"}
SPECIAL = {-1: "latest", -2: "earliest", -3: "max-timestamp", -4: "earliest-local"}
# of topics with tiered storage; a broker answers -1 if there is none
OF_TIERED = {-4: "earliest-local", -5: "latest-tiered", -6: "earliest-pending-upload"}
LEGACY_STATES = (
    "0.9.0.1/2-compacted",
    "0.10.2.2/1-format-0.9.0.1",
    "0.10.2.2/3-compacted",
    "1.1.1/3-format-1.1",
    "1.1.1/4-compacted",
)
# v0 messages whose time index has real timestamps (written by a 0.10.2 broker): the broker's answer is wrong, ours is not
LYING_TIME_INDEX = ("0.10.2.2/3-compacted", "swarm.codecs-0")


def records_of(oracle: Oracle, directory: Path) -> list[dict[str, Any]]:
    lines = [line for log in sorted(directory.glob("*.log")) for line in oracle.records(log)]
    return [line for line in lines if line["type"] == "record"]


def questions(records: list[dict[str, Any]], seed: int, start: int = 0) -> list[dict[str, Any]]:
    """Steps for the oracle: times around those of the records; offsets of records, between them and after them; epochs."""
    chance = random.Random(seed)
    known = sorted({record["timestamp"] for record in records if (record["timestamp"] or -1) >= 0})
    around = [time + by for time in chance.sample(known, min(10, len(known))) for by in (-1, 0, 1)]
    times = [time for time in (0, 1, 4_000_000_000_000, *around) if 0 <= time <= L.INT64_MAX]
    end = max([start, *(record["offset"] for record in records)]) + 3
    offsets = {start, end - 2, end - 1, *chance.sample(range(start, end), min(end - start, 30))}
    return [
        *({"what": "offset_by_timestamp", "timestamp": time} for time in (*times, *SPECIAL)),
        *({"what": "epoch_end", "epoch": epoch} for epoch in range(7)),
        *({"what": "read", "offset": offset, "max_bytes": 1} for offset in sorted(offsets)),
    ]


def expected(step: dict[str, Any], line: dict[str, Any]) -> tuple[object, ...]:
    if not line.get("found") or (step["what"] == "read" and not line["data"]):
        return (False,)
    if step["what"] == "read":
        return True, line["segment"], line["position"]
    return True, line["offset"], line["leader_epoch"], line.get("timestamp")


def ours(directory: Path, step: dict[str, Any], **fields: Any) -> tuple[object, ...]:
    if step["what"] == "read":
        (row,) = ask(directory, "offset", offset=step["offset"], **fields).rows
        return (True, int(Path(row["segment"]).stem), row["position"]) if row["found"] else (False,)
    if step["what"] == "epoch_end":
        (row,) = ask(directory, "leader-epoch", leader_epoch=step["epoch"], **fields).rows
    elif step["timestamp"] < 0:
        (row,) = ask(directory, SPECIAL[step["timestamp"]], **fields).rows
    else:
        (row,) = ask(directory, "timestamp", timestamp_ms=step["timestamp"], **fields).rows
    return (True, row["offset"], row["leader_epoch"], row["timestamp"]) if row["found"] else (False,)


def differences(
    oracle: Oracle, directory: Path, seed: int, start: int = 0, **fields: Any
) -> Iterator[tuple[dict[str, Any], tuple[object, ...], tuple[object, ...]]]:
    """Each question to which the real log and kseg give different answers."""
    with unchanged(directory):
        steps = questions(records_of(oracle, directory), seed, start)
        answer = oracle.partition(directory, steps, clean=True, now=0, log_start_offset=start)
        assert len(answer.found) == len(steps)
        for step, line in zip(steps, answer.found, strict=True):
            if (found := ours(directory, step, **fields)) != (wanted := expected(step, line)):
                yield step, wanted, found


@pytest.mark.behaviour("L04", "L05", "L07", "L08", "L13", "L16", "V15")
@pytest.mark.parametrize("use_index", [True, False])
@pytest.mark.parametrize("run", ["data", "before"])
def test_lookups_in_captured_directories_equal_unified_log(
    run: str, use_index: bool, oracle: Oracle, capture_small: Path
) -> None:
    partitions = [path for path in sorted((capture_small / run).iterdir()) if list(path.glob("*.log"))]
    found = {
        path.name: list(differences(oracle, path, seed, use_index=use_index))
        for seed, path in enumerate(partitions)
    }
    assert found == {path.name: [] for path in partitions}


@pytest.mark.behaviour("L04", "L05", "L07", "L11", "L14", "L22")
@pytest.mark.parametrize("state", LEGACY_STATES)
def test_lookups_in_directories_of_old_brokers_equal_unified_log(
    state: str, oracle: Oracle, legacy_small: Path
) -> None:
    partitions = [
        path for path in sorted((legacy_small / "data" / state).iterdir()) if list(path.glob("*.log"))
    ]
    found = {
        path.name: list(differences(oracle, path, seed))
        for seed, path in enumerate(partitions)
        if (state, path.name) != LYING_TIME_INDEX
    }
    assert found == {name: [] for name in found}


def test_wrong_time_index_is_overruled(oracle: Oracle, legacy_small: Path) -> None:
    """A broker trusts the first segment's time index and finds nothing there, although the records have the time."""
    state, name = LYING_TIME_INDEX
    directory = legacy_small / "data" / state / name
    for _, wanted, found in differences(oracle, directory, 1):
        assert wanted == (False,)
        assert found[0] is True
    result = ask(directory, "timestamp", timestamp_ms=0)
    first = next(r for r in records_of(oracle, directory) if (r["timestamp"] or -1) >= 0)
    assert (result.rows[0]["offset"], result.rows[0]["timestamp"]) == (first["offset"], first["timestamp"])
    assert "index-not-used" in result.kinds


@pytest.mark.evidence("time-index")
def test_an_empty_time_index_hides_later_segments(
    oracle: Oracle, capture_small: Path, tmp_path: Path
) -> None:
    """The cleaner of 0.11 leaves an empty time index. After a clean stop, a broker trusts it and takes the modification time of the file as
    the largest timestamp, so it searches this segment for every time, although its records are older. That is why the file gets a warning
    although the log is valid."""
    directory = copy_tree(capture_small / "data" / "metro-none-0", tmp_path / "metro-none-0")
    (directory / f"{0:020d}.timeindex").write_bytes(b"")
    beyond = [record for record in records_of(oracle, directory) if record["offset"] >= 72]
    step = {"what": "offset_by_timestamp", "timestamp": beyond[0]["timestamp"]}
    (line,) = oracle.partition(directory, [step], clean=True, now=0).found
    assert expected(step, line) == (False,)
    assert ours(directory, step)[1] == 72
    found = heard(verify(PartitionTarget(str(directory)), VerifyOptions(now_ms=0)))
    assert "time-index-incomplete" in found.kinds
    (line,) = oracle.partition(directory, [step], clean=False, now=0).found
    assert expected(step, line) == ours(directory, step), "recovery rebuilds it"


@pytest.mark.evidence("file-name")
@pytest.mark.behaviour("L12", "L13", "L15", "L16", "L18", "L21", "V15")
@pytest.mark.parametrize("start", [0, 1, 100, 131, 250])
@pytest.mark.parametrize("build_log", [healthy.partition, healthy.mixed_partition])
def test_lookups_in_a_log_with_every_feature_equal_unified_log(
    build_log: Any, start: int, oracle: Oracle, tmp_path: Path
) -> None:
    """All codecs, formats, epochs, gaps and emptied batches, with log starts at segment boundaries and inside segments."""
    directory = build_log(tmp_path / "metro-0")
    found = list(differences(oracle, directory, start, start, log_start_offset=start))
    if start and build_log is healthy.partition:
        # a broker's maximum may be below its own log start, where nobody could read it
        found = [entry for entry in found if entry[0] != {"what": "offset_by_timestamp", "timestamp": -3}]
    assert found == []


@pytest.mark.evidence("log-start")
@pytest.mark.parametrize("name", ["metro-zstd-0", "stations-0", "fares-0", "gates-append-0"])
@pytest.mark.parametrize("beyond", [1, 700])
def test_lookups_in_a_log_that_ends_below_its_start_equal_unified_log(
    name: str, beyond: int, oracle: Oracle, capture_small: Path
) -> None:
    """A broker deletes the complete log and begins an empty one at the log start. kseg used to report the end and epochs of the batches."""
    directory = capture_small / "data" / name
    start = max(record["offset"] for record in records_of(oracle, directory)) + 1 + beyond
    assert list(differences(oracle, directory, 1, start, log_start_offset=start)) == []
    loaded = oracle.partition(directory, clean=True, now=0, log_start_offset=start).loaded
    (latest,) = ask(directory, "latest", log_start_offset=start, read_committed=True).rows
    assert latest["offset"] == loaded["last_stable_offset"] == loaded["log_end_offset"] == start


@pytest.mark.parametrize("offsets", [(5, 6), (8, 9), (9, 10), (10, 3), (12, 13)], ids=str)
def test_end_of_a_log_with_older_batches_in_its_last_segment_equals_unified_log(
    oracle: Oracle, tmp_path: Path, offsets: tuple[int, ...]
) -> None:
    """Offsets of the batches in the segment from offset 10 on, over which another one was copied. If all of them end below it, the log ends
    at 10; kseg used to report the end of the last batch."""
    directory = tmp_path / "metro-0"
    for base, found in ((0, range(10)), (10, offsets)):
        path = write_segment(directory, *(batch(offset, (b"k", b"v")) for offset in found), base_offset=base)
        for suffix in (".index", ".timeindex"):
            path.with_suffix(suffix).touch()
    loaded = oracle.partition(directory, clean=True, now=0).loaded
    (latest,) = ask(directory, "latest").rows
    assert latest["offset"] == loaded["log_end_offset"]


@pytest.mark.parametrize(("start", "is_tiered"), [(10, True), (10, False), (70, False), (0, False)])
def test_start_and_epochs_of_a_log_that_starts_below_its_segments_equal_unified_log(
    oracle: Oracle, tmp_path: Path, start: int, is_tiered: bool
) -> None:
    """The epochs are those of the complete log, also without tiered storage: a load drops epochs below the log start of the checkpoint, not
    those below the first segment."""
    log_dir(tmp_path)
    ends: list[dict[str, Any]] = [{"what": "epoch_end", "epoch": epoch} for epoch in (0, 1)]
    steps = [*ends, {"what": "offset_by_timestamp", "timestamp": -2}]
    directory = tmp_path / "orders-0"
    remote = {str(directory): (RemoteSpan(10, 119, T0),)} if is_tiered else {}
    tiered: dict[str, Any] = {"tiered": True, "config": TIERED} if is_tiered else {}
    answer = oracle.partition(directory, steps, clean=True, now=0, log_start_offset=start, **tiered)
    assert answer.loaded["log_start_offset"] == (10 if is_tiered else 100)
    for step, line in zip(steps, answer.found, strict=True):
        assert ours(directory, step, remote=remote, log_start_offset=start)[:3] == expected(step, line)[:3]


@pytest.mark.parametrize("end", [0, 50, 100, 120, 124])
@pytest.mark.parametrize(("start", "is_tiered"), [(10, True), (100, True), (120, True), (120, False)])
def test_ends_of_tiered_storage_equal_unified_log(
    oracle: Oracle, tmp_path: Path, start: int, end: int, is_tiered: bool
) -> None:
    """start: of the log, whose first local segment begins at 100. end: of what is in remote storage."""
    log_dir(tmp_path)
    directory = tmp_path / "orders-0"
    steps = [{"what": "offset_by_timestamp", "timestamp": which} for which in OF_TIERED]
    uploaded = {"what": "remote_end_offset", "offset": end}
    tiered: dict[str, Any] = {"tiered": True, "config": TIERED} if is_tiered else {}
    answer = oracle.partition(
        directory, [uploaded, *steps], clean=True, now=0, log_start_offset=start, **tiered
    )
    ends = {str(directory): end} if is_tiered else {}
    for kind, line in zip(OF_TIERED.values(), answer.found[1:], strict=True):
        (row,) = ask(directory, kind, log_start_offset=start, remote_ends=ends).rows
        wanted = (line["offset"], line["leader_epoch"]) if line["found"] and line["offset"] >= 0 else None
        assert ((row["offset"], row["leader_epoch"]) if row["found"] else None) == wanted, kind
        assert row["found"] or ("no tiered storage" in row["reason"]) is not is_tiered


def random_batches(chance: random.Random) -> Iterator[NewBatch]:
    offset = 0
    for _ in range(chance.randrange(1, 60)):
        offset += chance.choice((0, 0, 0, 1, 5, 300))
        count = chance.randrange(1, 9)
        step = chance.choice((1, 1, 2))
        records = tuple(
            Record(
                offset + at * step,
                max(0, healthy.T0 + offset * 10 + chance.randrange(-400, 400))
                if chance.random() < 0.95
                else -1,
                None if chance.random() < 0.2 else b"key-%d" % chance.randrange(9),
                None if chance.random() < 0.2 else b"v" * chance.randrange(120),
            )
            for at in range(count)
        )
        yield NewBatch(records=records, codec=chance.randrange(5), leader_epoch=offset // 200)
        offset = records[-1].offset + 1


@pytest.mark.behaviour("L06", "L10", "L12", "L17", "L18")
@pytest.mark.parametrize("seed", range(12))
def test_lookups_in_random_partitions_equal_unified_log(seed: int, oracle: Oracle, tmp_path: Path) -> None:
    chance = random.Random(seed)
    rules = RollRules(
        segment_bytes=chance.choice((900, 2500, 20000)), index_interval_bytes=chance.choice((1, 300, 4096))
    )
    with PartitionWriter(tmp_path / "metro-0", rules=rules) as writer:
        for new in random_batches(chance):
            writer.append(new)
    assert list(differences(oracle, tmp_path / "metro-0", seed)) == []


@pytest.mark.behaviour("L06", "L07", "L08")
@pytest.mark.parametrize("name", ["metro-zstd-0", "metro-none-0", "stations-0", "fares-0"])
def test_read_returns_the_bytes_of_a_fetch(name: str, oracle: Oracle, capture_small: Path) -> None:
    """Without growing, the bytes are exactly those of a fetch; otherwise they are complete batches, at least one."""
    directory = capture_small / "data" / name
    steps: list[dict[str, Any]] = [
        {"what": "read", "offset": offset, "max_bytes": size, "min_one": min_one}
        for offset in range(0, 300, 7)
        for size in (0, 1, 100, 1000, 3000, 1 << 20)
        for min_one in (False, True)
    ]
    with unchanged(directory):
        answer = oracle.partition(directory, steps, clean=True, now=0)
        for step, line in zip(steps, answer.found, strict=True):
            got = fetch(directory, step["offset"], step["max_bytes"], raw=True, grow=step["min_one"])
            if "exception" in line:
                assert [failure.exit_status for failure in got.failures] == [1]
            elif not step["min_one"]:
                assert got.data == line["data"]
            else:
                assert is_whole(got.data)
                assert got.data.startswith(line["data"][: whole_bytes(line["data"])])
                assert bool(got.data) == bool(line["data"])


def whole_bytes(data: bytes) -> int:
    """The length up to the end of the last complete batch."""
    end = 0
    while end + L.ENTRY_OVERHEAD <= len(data):
        size = L.ENTRY_OVERHEAD + int.from_bytes(data[end + 8 : end + 12])
        if end + size > len(data):
            break
        end += size
    return end


def is_whole(data: bytes) -> bool:
    return whole_bytes(data) == len(data)


@pytest.mark.behaviour("L09")
def test_search_starts_at_the_given_position(oracle: Oracle, tmp_path: Path) -> None:
    """FileRecordsTest.testSearch: batches at offsets 0, 1, 2 and 50, with a search for each offset from each position."""
    with PartitionWriter(tmp_path / "metro-0") as writer:
        for offset in (0, 1, 2, 50):
            writer.append(NewBatch(records=(Record(offset, healthy.T0, None, b"value %d" % offset),)))
    (file,) = (tmp_path / "metro-0").glob("*.log")
    positions = [position for position, _ in diseases.batch_spans(file)]
    asks: list[dict[str, Any]] = [
        {"what": "offset", "offset": offset, "position": position}
        for offset in (0, 1, 3, 50, 51)
        for position in positions
    ]
    with PartitionLog(FileTarget(str(file))) as log:
        (segment,) = log.segments
        for wish, line in zip(asks, oracle.search(file, asks), strict=True):
            batch = next(segment.reaching(wish["offset"], wish["position"]), None)
            found = None if batch is None else (batch.base_offset, batch.position, batch.size_bytes)
            assert found == ((line["offset"], line["position"], line["size"]) if line["found"] else None)


def _differences_of_a_random_log(
    oracle: Oracle, seed: int, place: Path
) -> list[tuple[dict[str, Any], tuple[object, ...], tuple[object, ...]]]:
    """Compare a log that the real classes have loaded and closed, mostly with a log start inside it."""
    case = random_retention(seed, place, oracle, OddCalmLog if seed % 2 else None)
    if case.has_lies or case.recovery_point is not None:
        # a load would rebuild its indexes
        return []
    start = case.log_start_offset
    found = differences(oracle, case.partition, seed, start, log_start_offset=start)
    # the maximum below the log start, as above
    return [entry for entry in found if not start or entry[0].get("timestamp") != -3]


def test_lookups_in_random_logs_equal_unified_log(oracle: Oracle, tmp_path: Path) -> None:
    """The number of logs is KSEG_LOOKUPS, the first seed KSEG_LOOKUPS_SEED."""
    first = int(os.environ.get("KSEG_LOOKUPS_SEED", "1"))
    for seed in range(first, first + int(os.environ.get("KSEG_LOOKUPS", "12"))):
        (tmp_path / str(seed)).mkdir()
        assert _differences_of_a_random_log(oracle, seed, tmp_path / str(seed)) == [], seed


@pytest.mark.parametrize("seed", [93, 108, 1842979, 1860166])
def test_lookups_in_logs_that_once_differed_equal_unified_log(
    seed: int, oracle: Oracle, tmp_path: Path
) -> None:
    """Seeds in which the first segment that reaches the time has such records only below the log start, where a broker stops; and in which
    the first batch with the greatest timestamp was emptied by a cleaner, or is of version 0 and no batch has a timestamp, and a broker
    checks no other batch."""
    assert _differences_of_a_random_log(oracle, seed, tmp_path) == []
