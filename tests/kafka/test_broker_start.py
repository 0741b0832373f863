"""The forecast of `verify` equals what a real 4.3.1 broker does: whether it starts and what prevents it; which partitions it truncates and
where, renames as stray, does not serve, or creates again. Each case has its own directory, and damage of all kinds is distributed over many
partitions of a few directories."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from fixtures import side_diseases as side
from fixtures.diseases import LOG_DISEASES
from kseg.change.apply.lock import locked
from kseg.internal_topics.metadata.metadata_image import MIGRATING, UNASSIGNED
from kseg.internal_topics.metadata.metadata_log import read_metadata_log
from tests.kafka.broker import Broker
from tests.kafka.conftest import require_kafka
from tests.kafka.killed import Killed
from tests.kafka.start_cases import CASES
from tests.kafka.start_directories import MARKER, second
from tests.kafka.starting import Foretold, assert_as_foretold, foretold, observed, observed_apart
from tests.support.trees import copy_tree

pytestmark = pytest.mark.kafka

ALL = os.environ.get("KSEG_BROKER_STARTS") == "all"
IN_THE_GATE = (
    "partition_twice",
    "disk_replaced",
    "last_index_of_another_log",
    "meta.properties-of-tomorrow",
    "set_aside_and_marked",
    "partition_emptied",
    "metadata_snapshot_torn_at_the_log_end",
    "metadata_snapshot_of_a_newer_epoch",
    "quorum-state-null-voters",
    "quorum-state-vote-below-none",
)
PARTITIONS = 65

Damage = Callable[[Path], object]


@pytest.mark.evidence("broker-start", "bootstrap-metadata")
@pytest.mark.parametrize("name", CASES if ALL else IN_THE_GATE)
def test_forecast_of_a_start_matches_the_broker(name: str, capture_small: Path, tmp_path: Path) -> None:
    require_kafka()
    data = _copied(capture_small, tmp_path)
    more = CASES[name](data)
    _compare([data] if more is None else [data, more], tmp_path)


def _copied(capture_small: Path, root: Path) -> Path:
    """Copy one level deeper than `root`, because verify would take the metadata log of the same node in another test's directory into
    account."""
    return copy_tree(capture_small / "data", root / "node" / "data")


def _compare(log_dirs: list[Path], root: Path, settle_s: float = 2.0) -> Foretold:
    reported = foretold(log_dirs)
    assert_as_foretold(reported, observed(root, log_dirs, settle_s))
    return reported


# --- damage in partitions


@pytest.fixture(scope="session")
def disks(tmp_path_factory: pytest.TempPathFactory, capture_small: Path) -> Path:
    """Two data directories of a stopped broker (`0`, `1`) and a topic whose partitions all contain the same two segments."""
    require_kafka()
    root = tmp_path_factory.mktemp("disks")
    places = [root / "0", root / "1"]
    with Broker(root / "broker", places[0], log_dirs=",".join(map(str, places))) as broker:
        broker.create_topic("many", PARTITIONS)
        broker.wait_for("directories of the replicas", lambda: _are_assigned(root))
    for partition in root.glob("?/many-*"):
        _fill(partition, capture_small / "data" / "metro-none-0")
    for place in places:
        for name in ("recovery-point", "replication"):
            _set_offsets(place / f"{name}-offset-checkpoint", 144)
    return root


def _are_assigned(root: Path) -> bool:
    """Whether the controller knows in which directory each replica is. Otherwise a broker may create it again in the other one."""
    (metadata_log,) = root.glob("?/__cluster_metadata-0")
    image = read_metadata_log(str(metadata_log))
    partitions = [each for topic in image.topics.values() for each in topic.partitions.values()]
    return len(partitions) == PARTITIONS and not any(
        each.directory_of(1) in (None, MIGRATING, UNASSIGNED) for each in partitions
    )


def _fill(partition: Path, source: Path) -> None:
    for file in partition.iterdir():
        if file.name != "partition.metadata":
            file.unlink()
    for file in source.iterdir():
        stem = file.name.partition(".")[0]
        if stem in (f"{0:020d}", f"{72:020d}") or file.name == f"{144:020d}.snapshot":
            shutil.copy2(file, partition)
    (partition / "leader-epoch-checkpoint").write_text("0\n1\n0 0\n")


def _set_offsets(checkpoint: Path, offset: int) -> None:
    version, count, *lines = checkpoint.read_text().splitlines()
    changed = [f"{line.rpartition(' ')[0]} {offset}" if line.startswith("many ") else line for line in lines]
    checkpoint.write_text("\n".join([version, count, *changed, ""]))


def _in_segment(damage: Damage, base: int) -> Damage:
    return lambda partition: damage(partition / f"{base:020d}.log")


def _in_index(damage: Damage, suffix: str, base: int) -> Damage:
    return lambda partition: damage(partition / f"{base:020d}{suffix}")


def _damages() -> Iterator[tuple[str, Damage]]:
    for base, where in ((0, "closed"), (72, "active")):
        for disease in LOG_DISEASES:
            yield f"{disease.__name__}-{where}", _in_segment(disease, base)
        for disease in (
            side.index_missing,
            side.time_index_missing,
            side.leftover_deleted,
            side.leftover_cleaned,
        ):
            yield f"{disease.__name__}-{where}", _in_segment(disease, base)
        for disease in (side.index_entry_beyond_log, side.index_zero_tail, side.index_bad_size):
            yield f"{disease.__name__}-{where}", _in_index(disease, ".index", base)
    yield "leftover_swap", _in_segment(side.leftover_swap, 0)
    yield "orphan_index", _in_segment(side.orphan_index, 0)
    yield "segment_gap", _in_segment(side.segment_gap, 0)
    yield "snapshot_corrupt", lambda partition: side.snapshot_corrupt(partition / f"{144:020d}.snapshot")
    yield "snapshot_stray", side.snapshot_stray
    yield "epoch_file_wrong", side.epoch_file_wrong
    yield "epoch_file_missing", lambda partition: (partition / "leader-epoch-checkpoint").unlink()
    yield "partition_metadata_missing", side.partition_metadata_missing
    yield "unknown_file", side.unknown_file
    yield "two_damages", lambda partition: [LOG_DISEASES[4](log) for log in partition.glob("*.log")]
    yield "no_segment", _without_segments


def _without_segments(partition: Path) -> None:
    for file in partition.glob("000*"):
        file.unlink()


DAMAGES = dict(_damages())
STOPS = ("unclean-from-0", "unclean", "clean")


def _damaged(disks: Path, target: Path, stop: str, names: list[str]) -> list[Path]:
    """A copy with these kinds of damage, each in a partition of its own."""
    copy_tree(disks, target)
    places = [target / "0", target / "1"]
    directories = sorted(target.glob("?/many-*"))
    assert len(names) <= len(directories) == PARTITIONS
    for name, partition in zip(names, directories, strict=False):
        DAMAGES[name](partition)
    for place in places:
        if stop != "clean":
            (place / MARKER).unlink()
        if stop == "unclean-from-0":
            _set_offsets(place / "recovery-point-offset-checkpoint", 0)
    return places


def _ends_a_start(reported: Foretold) -> set[str]:
    """The partitions whose load ends the process or takes their data directory offline."""
    return {row["partition"] for row in reported.node["partitions_failed"]}


def _fatal(disks: Path, tmp_path: Path, stop: str) -> list[str]:
    """The kinds of damage with which, according to the forecast, no broker starts."""
    places = _damaged(disks, tmp_path / "all", stop, list(DAMAGES))
    directories = [partition.name for partition in sorted((tmp_path / "all").glob("?/many-*"))]
    fatal = _ends_a_start(foretold(places))
    shutil.rmtree(tmp_path / "all")
    return [name for name, directory in zip(DAMAGES, directories, strict=False) if directory in fatal]


@pytest.mark.parametrize("stop", STOPS if ALL else STOPS[:1])
def test_forecast_for_damaged_partitions_matches_the_broker(disks: Path, tmp_path: Path, stop: str) -> None:
    fatal = _fatal(disks, tmp_path, stop)
    places = _damaged(disks, tmp_path / "disks", stop, [name for name in DAMAGES if name not in fatal])
    reported = _compare(places, tmp_path)
    assert reported.node["outcome"] == "starts"
    # behind a marker a broker does not read the batches
    assert bool(reported.node["partitions_truncated"]) is (stop != "clean")


@pytest.mark.skipif(not ALL, reason="one start for each damage: KSEG_BROKER_STARTS=all")
@pytest.mark.parametrize("stop", STOPS)
def test_forecast_of_a_partition_that_ends_the_start_matches_the_broker(
    disks: Path, tmp_path: Path, stop: str
) -> None:
    for name in _fatal(disks, tmp_path, stop):
        reported = _compare(_damaged(disks, tmp_path / name, stop, [name]), tmp_path / name / "run")
        assert reported.node["outcome"] != "starts", name
        shutil.rmtree(tmp_path / name)


@pytest.mark.skipif(not ALL, reason="a broker that is killed amid transactions: KSEG_BROKER_STARTS=all")
def test_forecast_of_the_start_after_a_crash_matches_the_broker(killed: Killed, tmp_path: Path) -> None:
    reported = _compare([copy_tree(killed.data, tmp_path / "node" / "data")], tmp_path)
    assert reported.node["outcome"] == "starts" and not reported.node["partitions_truncated"]


@pytest.mark.skipif(not ALL, reason="another process with the lock: KSEG_BROKER_STARTS=all")
def test_forecast_with_a_held_lock_matches_the_broker(capture_small: Path, tmp_path: Path) -> None:
    require_kafka()
    data = _copied(capture_small, tmp_path)
    with locked([str(data)]):
        reported = _compare([data], tmp_path)
    assert reported.node["exception"] == "KafkaException"


# --- the disk


@contextmanager
def _mounted(kind: str, root: Path) -> Iterator[Path]:
    """Mount a small file system below `root`; skips the test if that is not permitted."""
    place = root / "mounted"
    place.mkdir()
    arguments = ["-t", "tmpfs", "-o", "size=8m", "none"]
    if kind == "ext4":
        image = root / "image"
        image.write_bytes(b"")
        os.truncate(image, 16 << 20)
        made = subprocess.run(["mkfs.ext4", "-q", "-m", "0", str(image)], check=False, capture_output=True)
        if made.returncode:
            pytest.skip("mkfs.ext4 cannot be used")
        arguments = ["-o", "loop", str(image)]
    if (
        os.geteuid()
        or subprocess.run(["mount", *arguments, str(place)], check=False, capture_output=True).returncode
    ):
        pytest.skip("no file system can be mounted here: not root, or not allowed")
    try:
        yield place
    finally:
        subprocess.run(["umount", str(place)], check=True)


@pytest.mark.skipif(not ALL, reason="a full disk: KSEG_BROKER_STARTS=all")
@pytest.mark.parametrize("kind", ["tmpfs", "ext4"])
def test_forecast_with_a_full_disk_matches_the_broker(kind: str, capture_small: Path, tmp_path: Path) -> None:
    """How the start fails depends on which file needs the next block: an index, a checkpoint or the metadata log."""
    require_kafka()
    with _mounted(kind, tmp_path) as place:
        data = copy_tree(capture_small / "data", place / "data")
        for file in data.rglob("*.deleted"):
            # the broker would free space by deleting them
            file.unlink()
        with (place / "rest").open("wb", buffering=0) as rest:
            for piece in (1 << 16, 1 << 10):
                try:
                    while True:
                        rest.write(bytes(piece))
                except OSError:
                    continue
        reported = foretold([data])
        seen = observed_apart(tmp_path, [data], settle_s=90)
    assert reported.node["outcome"] == seen.outcome == "does-not-start"
    assert "No space left on device" in reported.node["message"]
    assert "No space left on device" in seen.log or "java.lang.InternalError" in seen.log


@pytest.mark.evidence("read-only")
@pytest.mark.skipif(not ALL, reason="read-only mounts: KSEG_BROKER_STARTS=all")
@pytest.mark.parametrize(
    "missing", [(), ("recovery-point",), ("replication",), ("cleaner",)], ids=lambda names: "".join(names)
)
def test_forecast_with_a_read_only_second_log_dir_matches_the_broker(
    missing: tuple[str, ...], capture_small: Path, tmp_path: Path
) -> None:
    """The directory goes offline, but if the broker has to create a checkpoint in it, the process ends."""
    require_kafka()
    with _mounted("tmpfs", tmp_path) as place:
        data = copy_tree(capture_small / "data", tmp_path / "node" / "data")
        made = second(data)
        shutil.move(made, place / "second")
        shutil.move(data / "fares-0", place / "second" / "fares-0")
        for name in {"recovery-point", "log-start", "replication", "cleaner"} - {*missing}:
            (place / "second" / f"{name}-offset-checkpoint").write_text("0\n0\n")
        subprocess.run(["mount", "-o", "remount,ro", str(place)], check=True)
        log_dirs = [data, place / "second"]
        reported = foretold(log_dirs)
        seen = observed_apart(tmp_path, log_dirs)
    assert (
        seen.outcome
        == reported.node["outcome"]
        == ("does-not-start" if missing else "starts-with-offline-log-dirs")
    )
    assert seen.offline == {place["log_dir"] for place in reported.node["log_dirs_offline"]} or missing
    assert reported.node["exception"] in (None, "FileSystemException") and "FileSystemException" in seen.log
    if missing:
        assert f"{place / 'second' / missing[0]}-offset-checkpoint: Read-only" in seen.log
        assert f"{missing[0]}-offset-checkpoint" in reported.node["message"]
    assert reported.node["once_writable"]["outcome"] == "starts"
