"""Data directories on which a broker starts differently because of one of their partitions, or because something is not a regular file.
`start_cases` has the others."""

from __future__ import annotations

import os
import shutil
import struct
from pathlib import Path

from fixtures import side_diseases
from tests.kafka.start_directories import MARKER, METADATA, SUFFIX, Case, registered, unclean_from_the_start

PARTITION_CASES: dict[str, Case] = {}
partition_case = registered(PARTITION_CASES)


@partition_case
def partition_missing(data: Path) -> None:
    shutil.rmtree(data / "metro-gzip-0")


@partition_case
def partition_emptied(data: Path) -> None:
    """As by `rm -r data/metro-gzip-0/*`."""
    for file in (data / "metro-gzip-0").iterdir():
        file.unlink()


@partition_case
def partition_emptied_but_for_its_id(data: Path) -> None:
    for file in (data / "metro-gzip-0").iterdir():
        if file.name != "partition.metadata":
            file.unlink()


@partition_case
def partition_emptied_and_no_meta_properties(data: Path) -> None:
    partition_emptied(data)
    (data / "meta.properties").unlink()


@partition_case
def file_in_place_of_a_partition(data: Path) -> None:
    shutil.rmtree(data / "metro-gzip-0")
    (data / "metro-gzip-0").write_text("not a directory")


@partition_case
def set_aside_and_marked(data: Path) -> None:
    """Partitions that are deleted, stray, moving, without an id, or of a deleted topic, one each."""
    for name, state in (("metro-gzip-0", "delete"), ("metro-lz4-0", "stray"), ("metro-zstd-0", "future")):
        (data / name).rename(data / f"{name}.{SUFFIX}-{state}")
    (data / "fares-0" / "partition.metadata").unlink()
    (data / "stations-0" / "partition.metadata").write_text("version: 0\ntopic_id: CQkJCQkJCQkJCQkJCQkJCQ")


@partition_case
def partition_metadata_foreign(data: Path) -> None:
    side_diseases.partition_metadata_corrupt(data / "fares-0")


@partition_case
def partition_metadata_empty(data: Path) -> None:
    (data / "fares-0" / "partition.metadata").write_bytes(b"")


@partition_case
def leader_epochs_foreign(data: Path) -> None:
    side_diseases.epoch_file_corrupt(data / "fares-0")


@partition_case
def leader_epochs_odd_number(data: Path) -> None:
    (data / "fares-0" / "leader-epoch-checkpoint").write_text("0\n1\nx 0\n")


@partition_case
def aborts_of_another_version(data: Path) -> None:
    side_diseases.txn_index_bad_version(max((data / "fares-0").glob("*.txnindex")))


@partition_case
def aborts_of_another_version_unclean(data: Path) -> None:
    aborts_of_another_version(data)
    unclean_from_the_start(data)


@partition_case
def log_start_beyond_the_end(data: Path) -> None:
    (data / "log-start-offset-checkpoint").write_text("0\n1\nmetro-none 0 500\n")


@partition_case
def odd_file_name(data: Path) -> None:
    (data / "fares-0" / "notes.log").write_text("")


# --- what is no regular file, and whole directories in disorder


def _a_directory(file: Path) -> None:
    file.unlink()
    file.mkdir()


@partition_case
def log_is_a_directory(data: Path) -> None:
    _a_directory(min((data / "metro-none-0").glob("*.log")))


@partition_case
def all_logs_are_directories(data: Path) -> None:
    """The first one is in the way of the log that a broker creates."""
    for log in (data / "metro-none-0").glob("*.log"):
        _a_directory(log)


@partition_case
def last_index_is_a_directory(data: Path) -> None:
    _a_directory(max((data / "metro-none-0").glob("*.index")))


@partition_case
def last_index_of_another_log(data: Path) -> None:
    """As after logs were exchanged: the index entry points to a position where no batch begins, and the log end equals the segment's base
    offset."""
    log = max((data / "metro-none-0").glob("*.log"))
    log.with_suffix(".index").write_bytes(struct.pack(">ii", 15, 7))


@partition_case
def old_index_is_a_directory_unclean(data: Path) -> None:
    """After a clean stop, this index would be mapped only on first use."""
    _a_directory(min((data / "metro-none-0").glob("*.index")))
    unclean_from_the_start(data)


@partition_case
def time_index_is_a_directory(data: Path) -> None:
    _a_directory(min((data / "metro-none-0").glob("*.timeindex")))


@partition_case
def old_index_is_a_directory(data: Path) -> None:
    _a_directory(min((data / "metro-none-0").glob("*.index")))


@partition_case
def leader_epochs_are_a_directory(data: Path) -> None:
    _a_directory(data / "metro-none-0" / "leader-epoch-checkpoint")


@partition_case
def snapshot_at_the_end_is_a_directory(data: Path) -> None:
    _a_directory(max((data / "metro-none-0").glob("*.snapshot")))


@partition_case
def snapshot_at_the_end_is_a_directory_unclean(data: Path) -> None:
    """A broker that recovers the segment before it cannot write the snapshot and truncates the segment to 0 bytes."""
    snapshot_at_the_end_is_a_directory(data)
    (data / MARKER).unlink()


@partition_case
def recovery_points_are_a_directory(data: Path) -> None:
    _a_directory(data / "recovery-point-offset-checkpoint")


@partition_case
def second_is_empty(data: Path) -> Path:
    """A new disk that was not formatted."""
    made = data.parent / "second"
    made.mkdir()
    return made


@partition_case
def checkpoints_foreign_unclean(data: Path) -> None:
    for name in ("recovery-point", "log-start", "replication", "cleaner"):
        (data / f"{name}-offset-checkpoint").write_bytes(b"\x00" * 64)
    (data / MARKER).unlink()


@partition_case
def metadata_snapshot_cut(data: Path) -> None:
    for snapshot in (data / METADATA).glob("*.checkpoint"):
        os.truncate(snapshot, snapshot.stat().st_size // 2)


@partition_case
def partitions_swapped(data: Path) -> None:
    """Two directories that were restored under each other's name."""
    (data / "fares-0").rename(data / "kept")
    (data / "metro-none-0").rename(data / "fares-0")
    (data / "kept").rename(data / "metro-none-0")


@partition_case
def quorum_state_missing(data: Path) -> None:
    (data / METADATA / "quorum-state").unlink()
