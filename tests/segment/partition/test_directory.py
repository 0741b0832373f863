"""The inventory of directories (fact sheet §1; rows F57, F59), for generated and captured trees."""

import os
import shutil
from pathlib import Path

import pytest

from fixtures import healthy
from kseg.segment.errors import UnreadableInput
from kseg.segment.partition.directory import (
    LogDirectory,
    OtherDirectory,
    ParentDirectory,
    PartitionDirectory,
    bytes_in,
    list_partition,
    plain_last_segment,
)
from kseg.segment.partition.names import FileState, PartitionState, Role
from kseg.segment.partition.recognition import is_log_directory, list_directory, list_log_directory

ID = "0123456789abcdef0123456789abcdef"
ZERO = f"{0:020d}"


def make(root: Path, *names: str) -> Path:
    """Create empty files, and directories for names that end with a slash, below root."""
    for name in names:
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if name.endswith("/"):
            path.mkdir(exist_ok=True)
        else:
            path.touch()
    return root


def partition(path: Path | str) -> PartitionDirectory:
    directory = list_directory(str(path))
    assert isinstance(directory, PartitionDirectory)
    return directory


def log_dir(path: Path | str) -> LogDirectory:
    directory = list_directory(str(path))
    assert isinstance(directory, LogDirectory)
    return directory


@pytest.mark.behaviour("F59")
def test_partition_listing_has_segments_and_their_files(tmp_path: Path) -> None:
    names = [f"{base:020d}{suffix}" for base in (200, 0, 100) for suffix in (".log", ".index", ".timeindex")]
    names += [f"{100:020d}.txnindex", f"{100:020d}.snapshot", f"{250:020d}.snapshot", f"{50:020d}.index"]
    names += [
        f"{0:020d}.log.deleted",
        f"{300:020d}.log.cleaned",
        "partition.metadata",
        "leader-epoch-checkpoint",
    ]
    directory = partition(make(tmp_path / "foo-3", *names, "x.log", ".kseg/17/journal", "notes.txt"))
    assert directory.name is not None and directory.name.text == "foo-3"
    assert [segment.base_offset for segment in directory.segments] == [0, 100, 200]
    middle = directory.segments[1]
    assert [os.path.basename(entry.path) for entry in middle.files] == [
        f"{100:020d}{suffix}" for suffix in (".log", ".index", ".timeindex", ".txnindex", ".snapshot")
    ]
    assert directory.segments[0].txn_index is None
    assert [entry.name.base_offset for entry in directory.snapshots] == [100, 250]
    assert [entry.name.name for entry in directory.orphans] == ["x.log", f"{50:020d}.index"]
    assert [entry.name.name for entry in directory.entries] == sorted([*names, "x.log", "notes.txt"])
    states = {entry.name.name: entry.name.state for entry in directory.entries if not entry.name.is_live}
    assert states == {f"{ZERO}.log.deleted": FileState.DELETED, f"{300:020d}.log.cleaned": FileState.CLEANED}
    metadata = directory.entry(Role.PARTITION_METADATA)
    assert metadata is not None and metadata.path == str(tmp_path / "foo-3/partition.metadata")
    assert [(sub.name, sub.partition, sub.problem) for sub in directory.directories] == [
        (".kseg", None, None)
    ]


def test_well_formed_name_wins_over_another_spelling_of_a_segment(tmp_path: Path) -> None:
    directory = partition(make(tmp_path / "foo-0", f"{7:020d}.log", "7.log", "7.index"))
    (segment,) = directory.segments
    assert segment.log.name.is_well_formed and segment.offset_index is not None
    assert [entry.name.name for entry in directory.orphans] == ["7.log"]


def test_listed_file_has_its_size_and_mtime(tmp_path: Path) -> None:
    path = make(tmp_path / "foo-0", f"{ZERO}.log") / f"{ZERO}.log"
    path.write_bytes(b"12345")
    os.utime(path, ns=(0, 1_700_000_000_123_999_999))
    entry = partition(tmp_path / "foo-0").segments[0].log
    assert (entry.size_bytes, entry.mtime_ms, entry.problem) == (5, 1_700_000_000_123, None)


@pytest.mark.behaviour("F57")
def test_log_directory_listing(tmp_path: Path) -> None:
    make(tmp_path, "meta.properties", "recovery-point-offset-checkpoint", f"foo-0/{ZERO}.log", "bar-1/")
    make(tmp_path, f"foo-1.{ID}-delete/", f"foo-2.{ID}-stray/", f"foo-3.{ID}-future/", "junk/")
    make(tmp_path, "remote-log-index-cache/5_XqZeFaA4SYahW3xVBVhQJQ.index", "x-delete/")
    directory = log_dir(tmp_path)
    names = {sub.partition.text: sub.partition.state for sub in directory.partitions if sub.partition}
    assert names == {
        "bar-1": PartitionState.LIVE,
        "foo-0": PartitionState.LIVE,
        "foo-1": PartitionState.DELETE,
        "foo-2": PartitionState.STRAY,
        "foo-3": PartitionState.FUTURE,
    }
    others = {sub.name: sub.problem for sub in directory.other_directories}
    assert others["remote-log-index-cache"] is None
    assert "not the name of a partition directory" in (others["junk"] or "")
    assert "has the suffix of a renamed partition directory" in (others["x-delete"] or "")
    assert directory.entry(Role.META_PROPERTIES) is not None and directory.entry(Role.LOCK) is None
    assert is_log_directory(str(tmp_path)) and not is_log_directory(str(tmp_path / "foo-0"))
    assert isinstance(list_directory(str(tmp_path / "remote-log-index-cache")), OtherDirectory)


def test_data_directory_may_be_named_like_a_partition(tmp_path: Path) -> None:
    make(tmp_path, "data-1/meta.properties", f"data-1/foo-0/{ZERO}.log", f"data-2/foo-1/{ZERO}.log")
    assert isinstance(list_directory(str(tmp_path / "data-1")), LogDirectory)
    assert isinstance(list_directory(str(tmp_path / "data-2")), LogDirectory)
    parent = list_directory(str(tmp_path))
    assert isinstance(parent, ParentDirectory)
    assert [os.path.basename(child.path) for child in parent.log_directories] == ["data-1", "data-2"]


def test_parent_directory_may_contain_partitions_as_well(tmp_path: Path) -> None:
    make(tmp_path, f"foo-0/{ZERO}.kafka", f"copy/foo-0/{ZERO}.kafka")
    parent = list_directory(str(tmp_path))
    assert isinstance(parent, ParentDirectory)
    assert [child.path for child in parent.log_directories] == [str(tmp_path), str(tmp_path / "copy")]
    assert [sub.name for sub in parent.log_directories[0].partitions] == ["foo-0"]
    assert list_log_directory(str(tmp_path)) == parent.log_directories[0]
    with pytest.raises(UnreadableInput, match="is not a Kafka data directory"):
        list_log_directory(str(tmp_path / "foo-0"))


def test_partition_under_a_foreign_name_is_listed(tmp_path: Path) -> None:
    directory = partition(make(tmp_path / "evidence", f"{ZERO}.log"))
    assert directory.name is None and len(directory.segments) == 1


def test_empty_directories_are_listed(tmp_path: Path) -> None:
    make(tmp_path, "foo-0/", "logs/")
    assert partition(tmp_path / "foo-0").segments == ()
    assert isinstance(list_directory(str(tmp_path / "logs")), OtherDirectory)


def test_unreadable_entries_are_listed_with_their_problem(tmp_path: Path) -> None:
    make(tmp_path, f"foo-0/{ZERO}.log")
    (tmp_path / "foo-0" / f"{ZERO}.index").symlink_to("nowhere")
    os.mkfifo(tmp_path / "foo-0" / f"{ZERO}.timeindex")
    problems = {entry.name.role: entry.problem for entry in partition(tmp_path / "foo-0").entries}
    assert problems[Role.LOG] is None
    assert "No such file" in (problems[Role.OFFSET_INDEX] or "")
    assert "not a regular file" in (problems[Role.TIME_INDEX] or "")
    gone = list_partition(str(tmp_path / "bar-1"))
    assert gone.name is not None and gone.name.text == "bar-1"
    assert str(tmp_path / "bar-1") in (gone.problem or "")
    for path in (tmp_path / "bar-1", tmp_path / "foo-0" / f"{ZERO}.log"):
        with pytest.raises(UnreadableInput, match=str(path)):
            list_directory(str(path))


def test_captured_log_directory_is_listed(capture_small: Path) -> None:
    directory = log_dir(capture_small / "data")
    assert len(directory.partitions) == 12 and directory.other_directories == ()
    assert {entry.name.role for entry in directory.entries} == {
        Role.CLEAN_SHUTDOWN,
        Role.BOOTSTRAP_SNAPSHOT,
        Role.CLEANER_OFFSETS,
        Role.LOG_START_OFFSETS,
        Role.META_PROPERTIES,
        Role.RECOVERY_POINTS,
        Role.HIGH_WATERMARKS,
    }
    stations = partition(capture_small / "data/stations-0")
    assert [segment.base_offset for segment in stations.segments] == [0, 72, 136, 208, 280]
    assert [entry.name.base_offset for entry in stations.snapshots] == [72, 136, 208, 280, 300]
    assert sum(entry.name.state is FileState.DELETED for entry in stations.entries) == 12
    assert stations.orphans == ()
    metadata = partition(capture_small / "data/__cluster_metadata-0")
    snapshot = metadata.entry(Role.METADATA_SNAPSHOT)
    assert snapshot is not None and (snapshot.name.base_offset, snapshot.name.epoch) == (69, 1)
    assert metadata.name is not None and metadata.name.is_metadata_log


def test_no_captured_file_is_unknown(capture_small: Path, legacy_small: Path) -> None:
    trees = [capture_small / "before", capture_small / "data", *(legacy_small / "data").glob("[01].*/*")]
    assert len(trees) == 9
    for tree in trees:
        directory = log_dir(tree)
        entries = [*directory.entries]
        for sub in directory.partitions:
            listed = list_partition(sub.path)
            assert listed.segments or listed.kafka07_files
            entries += listed.entries
        assert [entry.path for entry in entries if entry.problem or not entry.name.is_well_formed] == []


def test_captured_kafka_0_7_log_is_listed(ancient_small: Path) -> None:
    directory = partition(ancient_small / "taps-0")
    offsets = [entry.name.base_offset or 0 for entry in directory.kafka07_files]
    assert len(offsets) == 8 and directory.segments == () and offsets == sorted(offsets)
    # the numbers in 0.7 names are byte positions: each file starts where the previous one ends
    sizes = [entry.size_bytes for entry in directory.kafka07_files]
    assert all(
        offset + size == following
        for offset, size, following in zip(offsets, sizes, offsets[1:], strict=False)
    )


def test_plain_last_segment_equals_that_of_the_listing(tmp_path: Path) -> None:
    directory = healthy.partition(tmp_path / "metro-0")
    listed, reported = list_partition(str(directory)).segments[-1], plain_last_segment(str(directory))
    assert reported is not None
    assert reported.base_offset == listed.base_offset
    assert reported.log.path == listed.log.path
    assert reported.offset_index is not None
    assert listed.offset_index is not None
    assert reported.offset_index.path == listed.offset_index.path
    assert reported.time_index is not None
    assert listed.time_index is not None
    assert reported.time_index.path == listed.time_index.path


@pytest.mark.parametrize(
    "oddity", ["spelling", "no time index", "a link", "a directory", "nothing", "no offset"]
)
def test_unusual_last_segment_is_left_to_the_listing(oddity: str, tmp_path: Path) -> None:
    directory = healthy.partition(tmp_path / "metro-0")
    last = list_partition(str(directory)).segments[-1]
    log, times = Path(last.log.path), Path(last.time_index.path if last.time_index else "")
    match oddity:
        case "spelling":
            (directory / "1000.log").write_bytes(b"")
        case "no time index":
            times.unlink()
        case "a link":
            log.rename(tmp_path / "log")
            log.symlink_to(tmp_path / "log")
        case "a directory":
            times.unlink()
            times.mkdir()
        case "nothing":
            shutil.rmtree(directory)
        case "no offset":
            for path in (last.log.path, times, log.with_suffix(".index")):
                Path(path).rename(directory / f"{'9' * 20}{Path(path).suffix}")
    assert plain_last_segment(str(directory)) is None


def test_bytes_in_a_directory_equal_those_of_the_listing(tmp_path: Path) -> None:
    directory = healthy.partition(tmp_path / "metro-0")
    (directory / "nowhere").symlink_to("missing")
    (directory / "linked").symlink_to(directory / "partition.metadata")
    (directory / ".kseg").mkdir()
    assert bytes_in(str(directory)) == sum(
        entry.size_bytes for entry in list_partition(str(directory)).entries
    )
    assert bytes_in(str(tmp_path / "nowhere")) == 0
