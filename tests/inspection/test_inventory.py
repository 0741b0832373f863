"""The inventory: every file and its kind, and partitions and data directories as a whole."""

from __future__ import annotations

import json
import shutil
import struct
from pathlib import Path
from typing import Any

import pytest

from fixtures import diseases, healthy, side_diseases
from kseg.segment.errors import UnreadableInput
from kseg.segment.partition.targets import (
    Expansion,
    FileTarget,
    LogDirTarget,
    PartitionTarget,
    resolve_targets,
)
from tests.support.run_commands import Heard, ask, listed
from tests.support.trees import unchanged


@pytest.fixture(scope="module")
def data_directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return healthy.log_dir(tmp_path_factory.mktemp("inventory") / "data")


def partition_row(result: Heard) -> dict[str, Any]:
    (row,) = result.of_type("partition")
    return row


def test_inventory_names_every_file(capture_small: Path) -> None:
    """No file of a real data directory is omitted, and none is unknown."""
    root = capture_small / "data"
    with unchanged(root):
        targets = resolve_targets([str(root)], expand=Expansion.INVENTORY)
        rows = [row for target in targets for row in listed(target).of_type("file")]
    assert sorted(row["file"] for row in rows) == sorted(
        str(path) for path in root.rglob("*") if path.is_file()
    )
    assert {row["kind"] for row in rows} >= {
        "segment",
        "offset index",
        "time index",
        "transaction index",
        "producer snapshot",
    }
    assert [row for row in rows if row["kind"] == "unknown"] == []
    deleted = [row for row in rows if row["state"] == "deleted"]
    assert len(deleted) == len(list(root.rglob("*.deleted")))
    assert all(row["size"] == Path(row["file"]).stat().st_size for row in rows)


def test_inventory_of_a_brokers_partitions(capture_small: Path) -> None:
    root = capture_small / "data"
    for name, end, codec in (
        ("metro-zstd-0", 160, "zstd"),
        ("fares-0", 117, "none"),
        ("stations-0", 300, "none"),
    ):
        row = partition_row(listed(PartitionTarget(str(root / name), str(root))))
        assert (row["log_start_offset"], row["log_end_offset"], row["last_stable_offset"]) == (0, end, end)
        assert (row["high_watermark"], row["codecs"], row["magics"], row["leader_epochs"]) == (
            end,
            [codec],
            [2],
            [0],
        )
        assert (row["missing"], row["open_transactions"], len(row["topic_id"])) == ([], [], 22)
        json.dumps(row)
    zstd = partition_row(listed(PartitionTarget(str(root / "metro-zstd-0"))))
    assert (zstd["earliest_timestamp"], zstd["latest_timestamp"]) == (1_750_000_000_000, 1_750_000_159_000)
    assert (zstd["records"], zstd["first_offset"], zstd["last_offset"]) == (160, 0, 159)


def test_inventory_of_several_old_formats_in_one_log(legacy_small: Path) -> None:
    row = partition_row(listed(PartitionTarget(str(legacy_small / "data/1.1.1/4-compacted/swarm.codecs-0"))))
    assert (row["magics"], row["codecs"]) == ([0, 1, 2], ["none", "gzip", "snappy", "lz4"])
    assert (row["records"], row["missing"]) == (None, ["partition.metadata"])


def test_inventory_names_open_transactions_and_missing_files(data_directory: Path, tmp_path: Path) -> None:
    partition = diseases.copy_of(data_directory / "metro-0", tmp_path / "metro-0")
    log = min(partition.glob("*.log"))
    side_diseases.index_missing(log)
    side_diseases.partition_metadata_missing(partition)
    side_diseases.unknown_file(partition, "notes.txt")
    (partition / "leader-epoch-checkpoint").unlink()
    row = partition_row(listed(PartitionTarget(str(partition)), now_ms=healthy.T0))
    assert sorted(row["missing"]) == [
        log.with_suffix(".index").name,
        "leader-epoch-checkpoint",
        "partition.metadata",
    ]
    assert (row["unknown_files"], row["topic_id"], row["is_future"]) == (["notes.txt"], None, True)
    opened = [
        (transaction["producer_id"], transaction["first_offset"]) for transaction in row["open_transactions"]
    ]
    assert [producer for producer, _ in opened] == [4000, 4001]
    assert (
        row["last_stable_offset"]
        == opened[0][1]
        == ask(partition, "latest", read_committed=True).rows[0]["offset"]
    )


def test_inventory_lists_a_damaged_log_with_a_finding(data_directory: Path, tmp_path: Path) -> None:
    partition = diseases.copy_of(data_directory / "metro-0", tmp_path / "metro-0")
    log = sorted(partition.glob("*.log"))[1]
    span = diseases.batch_spans(log)[3]
    diseases.bad_length_large(log, 3)
    result = listed(PartitionTarget(str(partition)))
    assert [(finding.id, finding.position) for finding in result.findings] == [("bad-length", span[0])]
    before = partition_row(listed(PartitionTarget(str(data_directory / "metro-0"))))
    row = partition_row(result)
    assert (row["batches"], row["log_end_offset"]) == (before["batches"] - 1, before["log_end_offset"])


def test_inventory_of_a_data_directory(data_directory: Path) -> None:
    with unchanged(data_directory):
        result = listed(LogDirTarget(str(data_directory)))
    (row,) = result.of_type("log-dir")
    assert (row["version"], row["node_id"], row["cluster_id"]) == (1, 1, "Mz9XvQe1R0mU7bTq2LkP5w")
    assert (row["clean_shutdown"], row["partitions"], row["topics"], row["missing"]) == (True, 3, 2, [])
    assert row["bytes"] == sum(path.stat().st_size for path in data_directory.rglob("*") if path.is_file())
    assert row["checkpoints"]["replication-offset-checkpoint"] == 3
    assert {file["kind"] for file in result.of_type("file")} >= {
        "clean shutdown marker",
        "data directory identity",
    }


def test_inventory_of_a_data_directory_with_unknown_and_corrupt_files(
    data_directory: Path, tmp_path: Path
) -> None:
    copy = diseases.copy_of(data_directory, tmp_path / "data")
    (copy / "meta.properties").write_bytes(b"version=9\n")
    (copy / "holidays").mkdir()
    (copy / "photo.jpg").write_bytes(b"\xff\xd8")
    side_diseases.checkpoint_corrupt(copy / "replication-offset-checkpoint")
    result = listed(LogDirTarget(str(copy)))
    (row,) = result.of_type("log-dir")
    assert (row["missing"], row["unknown_files"]) == (["a readable meta.properties"], ["photo.jpg"])
    assert row["checkpoints"]["replication-offset-checkpoint"] is None
    (directory,) = result.of_type("directory")
    assert (Path(directory["file"]).name, directory["problem"] is not None) == ("holidays", True)


def test_link_beside_its_partition_is_not_counted(capture_small: Path, tmp_path: Path) -> None:
    """The heading used to count the link, and its bytes twice. The link has no row of its own."""
    data = Path(shutil.copytree(capture_small / "data", tmp_path / "data"))
    before = listed(LogDirTarget(str(data))).of_type("log-dir")
    (data / "metro-none-7").symlink_to("metro-none-0")
    assert listed(LogDirTarget(str(data))).of_type("log-dir") == before
    (data / "gates-append-1").rename(tmp_path / "elsewhere")
    (data / "gates-append-1").symlink_to(tmp_path / "elsewhere")
    assert listed(LogDirTarget(str(data))).of_type("log-dir") == before


def test_inventory_of_single_and_missing_files(data_directory: Path) -> None:
    log = min((data_directory / "metro-0").glob("*.log"))
    (row,) = listed(FileTarget(str(log))).rows
    assert (row["kind"], row["state"], row["base_offset"], row["problem"]) == ("segment", "live", 0, None)
    (unknown,) = listed(FileTarget(str(Path(__file__)))).rows
    assert (unknown["kind"], unknown["problem"]) == ("unknown", "none of Kafka's files")
    for target in (FileTarget("/nowhere"), PartitionTarget("/nowhere-0"), LogDirTarget("/nowhere")):
        with pytest.raises(UnreadableInput, match="cannot read /nowhere"):
            listed(target)


def test_inventory_of_a_kafka_0_7_log(ancient_small: Path, tmp_path: Path) -> None:
    log = ancient_small / "taps-0"
    row = partition_row(listed(PartitionTarget(str(log))))
    sizes = [path.stat().st_size for path in log.glob("*.kafka")]
    assert (row["segments"], row["log_bytes"], row["log_end_offset"]) == (len(sizes), sum(sizes), sum(sizes))
    copy = diseases.copy_of(log, tmp_path / "taps-0")
    sorted(copy.glob("*.kafka"))[2].unlink()
    assert listed(PartitionTarget(str(copy))).kinds == ["ancient-gap"]


@pytest.mark.parametrize("bit", [0, 15, 26, 31])
def test_damaged_record_count_is_limited_by_the_offsets(
    bit: int, capture_small: Path, tmp_path: Path
) -> None:
    """`--count` reads headers without verifying checksums, so a flipped bit would add up to two billion records."""
    directory = tmp_path / "metro-none-0"
    shutil.copytree(capture_small / "data" / "metro-none-0", directory)
    sound = partition_row(listed(PartitionTarget(str(directory), str(tmp_path))))
    log = next(path for path in sorted(directory.glob("*.log")) if path.stat().st_size)
    data = bytearray(log.read_bytes())
    (count,) = struct.unpack_from(">I", data, 57)
    struct.pack_into(">I", data, 57, count ^ 1 << bit)
    log.write_bytes(data)
    found = partition_row(listed(PartitionTarget(str(directory), str(tmp_path))))
    least = sound["records"] - count
    assert found["records"] is None if bit == 31 else least <= found["records"] <= sound["records"]
