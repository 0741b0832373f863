"""Information that a clean start would silently lose: `verify` reports the loss, `recover` repairs it or says why not, and then `verify`
finds nothing.

Side files of a real broker's data directory are emptied, truncated, removed and replaced by old ones, one by one and in random
combinations.
"""

from __future__ import annotations

import os
import random
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from kseg.internal_topics.metadata.metadata_image import LOST
from kseg.internal_topics.metadata.metadata_log import read_metadata_log
from kseg.segment.findings import CATALOGUE
from kseg.segment.java.uuids import uuid_text
from kseg.segment.sidecar.checkpoint import decode_leader_epochs, decode_offset_checkpoint
from kseg.segment.sidecar.leader_epochs import EpochEntry
from kseg.segment.sidecar.metadata_files import decode_meta_properties
from kseg.segment.sidecar.snapshot import decode_snapshot
from tests.internal_topics.metadata_logs import record
from tests.support.command_lines import Capfd, json_run
from tests.support.known_topics import append, ids
from tests.support.trees import copy_tree

CASES = int(os.environ.get("KSEG_SIDE_LOSSES", "6"))
SEED = int(os.environ.get("KSEG_SIDE_LOSSES_SEED", "20261122"))

PARTITIONS = (
    "__cluster_metadata-0",
    "__transaction_state-0",
    "fares-0",
    "gates-append-0",
    "metro-none-0",
    "metro-zstd-0",
)
FIRST = f"{0:020}"
EPOCHS = "leader-epoch-checkpoint"
LOG_STARTS = "log-start-offset-checkpoint"
RECOVERY_POINTS = "recovery-point-offset-checkpoint"
HIGH_WATERMARKS = "replication-offset-checkpoint"
META = "meta.properties"
MARKER = ".kafka_cleanshutdown"
# log start of metro-none-0 after records were deleted
START = 30

Disease = Callable[[Path], None]


@pytest.fixture(scope="module")
def stopped(capture_small: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A data directory that was cleanly stopped after records of one log had been deleted up to the middle of a batch (as a broker records
    that: LeaderEpochFileCache.truncateFromStart, LogManager.checkpointLogStartOffsets)."""
    made = tmp_path_factory.mktemp("stopped") / "data"
    made.mkdir()
    for name in PARTITIONS:
        shutil.copytree(capture_small / "data" / name, made / name)
    for file in (capture_small / "data").iterdir():
        if file.is_file():
            shutil.copy2(file, made / file.name)
    place_elsewhere(made, *(set(expected_in(capture_small / "data")) - set(PARTITIONS)))
    for name in (RECOVERY_POINTS, HIGH_WATERMARKS, "cleaner-offset-checkpoint"):
        kept = [
            e
            for e in decode_offset_checkpoint((made / name).read_bytes())
            if f"{e.topic}-{e.partition}" in PARTITIONS
        ]
        (made / name).write_text(
            "".join(f"{line}\n" for line in (0, len(kept), *(" ".join(map(str, e)) for e in kept)))
        )
    (made / LOG_STARTS).write_text(f"0\n1\nmetro-none 0 {START}\n")
    epochs = decode_leader_epochs((made / "metro-none-0" / EPOCHS).read_bytes())
    assert epochs[0] == EpochEntry(0, 0)
    lines = [f"0 {START}", *(f"{entry.epoch} {entry.start_offset}" for entry in epochs[1:])]
    (made / "metro-none-0" / EPOCHS).write_text(
        "".join(f"{line}\n" for line in ("0", str(len(lines)), *lines))
    )
    return made


def expected_in(data: Path) -> Iterator[str]:
    """The replicas that the capture's metadata log assigns to its data directory."""
    image = read_metadata_log(str(data / "__cluster_metadata-0"))
    for expected in image.partitions_of(1, DIRECTORY_ID):
        yield f"{expected.topic}-{expected.partition}"


def place_elsewhere(data: Path, *names: str) -> None:
    """Assign these replicas to a lost log dir, so that they are not missing here."""
    known, made = ids(data), []
    for name in sorted(names):
        topic, _, number = name.rpartition("-")
        place: dict[str, Any] = {"partitionId": int(number), "topicId": known[topic], "directories": [LOST]}
        made.append(record("PartitionChangeRecord", **place))
    append(data, *made)


def doubts(rows: list[dict[str, Any]]) -> set[str]:
    return {row["id"] for row in rows if row["type"] == "finding" and row["severity"] != "info"}


def on(pattern: str, change: Callable[[Path], None]) -> Disease:
    def fall_ill(data: Path) -> None:
        for path in sorted(data.glob(pattern)):
            change(path)

    return fall_ill


def empty(path: Path) -> None:
    path.write_bytes(b"")


def garble(path: Path) -> None:
    path.write_bytes(b"\x00\x01 \xff\n")


def gone(path: Path) -> None:
    path.unlink()


def without_entries(path: Path) -> None:
    path.write_text("0\n0\n")


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def old_epochs(path: Path) -> None:
    path.write_text("0\n1\n1 0\n")


# the finding of verify, or None if a broker works as well without the file
DISEASES: dict[str, tuple[Disease, str | None]] = {
    "snapshots gone": (on("fares-0/*.snapshot", gone), "snapshot-missing"),
    "all snapshots gone": (on("*/*.snapshot", gone), "snapshot-missing"),
    "snapshots empty": (on("fares-0/*.snapshot", empty), "snapshot-corrupt"),
    "snapshots cut": (on("*/*.snapshot", cut), "snapshot-corrupt"),
    "epochs empty": (on(f"fares-0/{EPOCHS}", empty), "leader-epoch-file-empty"),
    "epochs without entries": (on(f"metro-zstd-0/{EPOCHS}", without_entries), "leader-epoch-file-empty"),
    "epochs old": (on(f"__cluster_metadata-0/{EPOCHS}", old_epochs), "leader-epoch-file-mismatch"),
    "epochs gone": (on(f"gates-append-0/{EPOCHS}", gone), "leader-epoch-file-missing"),
    "epochs garbled": (on(f"fares-0/{EPOCHS}", garble), "leader-epoch-file-corrupt"),
    "log starts empty": (on(LOG_STARTS, empty), "log-start-lost"),
    "log starts garbled": (on(LOG_STARTS, garble), "log-start-lost"),
    "log starts gone": (on(LOG_STARTS, gone), "log-start-lost"),
    "recovery points empty": (on(RECOVERY_POINTS, empty), "checkpoint-lost"),
    "recovery points gone": (on(RECOVERY_POINTS, gone), "checkpoint-lost"),
    "recovery points garbled": (on(RECOVERY_POINTS, garble), "checkpoint-corrupt"),
    "high watermarks empty": (on(HIGH_WATERMARKS, empty), "checkpoint-lost"),
    "high watermarks cut": (on(HIGH_WATERMARKS, cut), "checkpoint-corrupt"),
    "first dirty offsets empty": (on("cleaner-offset-checkpoint", empty), None),
    "identity empty": (on(META, empty), "meta-properties-corrupt"),
    "identity garbled": (on(META, garble), "meta-properties-corrupt"),
    "indexes gone": (on("metro-zstd-0/*.index", gone), "index-missing"),
    "time indexes empty": (on("fares-0/*.timeindex", empty), "time-index-incomplete"),
}
# with the directory.id in the metadata log
IDENTITY = ("--node-id", "1", "--cluster-id", "Mz9XvQe1R0mU7bTq2LkP5w")
DIRECTORY_ID = "UsCu_Qd6HlJL_AROE7wUxg"


def company() -> Iterator[tuple[str, ...]]:
    dice = random.Random(SEED)
    for name in DISEASES:
        yield (name,)
    for _ in range(CASES):
        yield tuple(dice.sample(sorted(DISEASES), dice.randint(2, 5)))


@pytest.mark.slow
@pytest.mark.evidence("snapshot-missing", "epochs-empty", "checkpoint-lost", "log-start-trace")
@pytest.mark.parametrize("names", list(company()), ids="+".join)
def test_verify_and_recover_agree_on_lost_side_file_information(
    names: tuple[str, ...], stopped: Path, tmp_path: Path, capfd: Capfd
) -> None:
    data = copy_tree(stopped, tmp_path / "data")
    for name in names:
        DISEASES[name][0](data)
    status, rows = json_run("verify", data, capfd=capfd)
    found = doubts(rows)
    if len(names) == 1:
        expected = DISEASES[names[0]][1]
        assert (found == set()) if expected is None else (expected in found)
    assert status == (1 if any(CATALOGUE[kind].severity == "error" for kind in found) else 0)
    to_recover = {kind for kind in found if CATALOGUE[kind].hint.startswith("kseg recover")}
    identity = IDENTITY if "meta-properties-corrupt" in found else ()
    status, planned = json_run("recover", *identity, data, capfd=capfd)
    assert status == (1 if to_recover or identity else status)
    assert any(row["type"] == "step" for row in planned) or not (to_recover or identity)
    assert json_run("recover", "--apply", *identity, data, capfd=capfd)[0] == 0
    status, rows = json_run("verify", data, capfd=capfd)
    assert (status, doubts(rows)) == (0, set())
    assert json_run("recover", data, capfd=capfd)[0] == 0


# Java compares the last 64 bits as a signed number
@pytest.mark.parametrize("number", [1, 99, 2**64 - 1])
def test_reserved_directory_id_is_replaced(number: int, stopped: Path, tmp_path: Path, capfd: Capfd) -> None:
    """A broker fails on it (`directory_id_reserved` in tests/kafka/start_cases.py)."""
    data = copy_tree(stopped, tmp_path / "data")
    reserved = uuid_text(number.to_bytes(16, "big"))
    original = (data / META).read_text()
    (data / META).write_text(original.replace(DIRECTORY_ID, reserved))
    status, rows = json_run("verify", data, capfd=capfd)
    (start,) = (row for row in rows if row["type"] == "broker-start")
    assert status == 1 and f"Invalid reserved directory ID {reserved}" in start["message"]
    assert json_run("recover", "--apply", "--directory-id", reserved, data, capfd=capfd)[0] == 2
    assert json_run("recover", "--apply", data, capfd=capfd)[0] == 0
    assert decode_meta_properties((data / META).read_bytes()) == decode_meta_properties(original.encode())


def test_recover_does_not_invent_an_identity(stopped: Path, tmp_path: Path, capfd: Capfd) -> None:
    data = copy_tree(stopped, tmp_path / "data")
    empty(data / META)
    for words in ([], ["--apply"]):
        status, rows = json_run("recover", *words, data, capfd=capfd)
        (row,) = [row for row in rows if row["type"] == "result" and "log_dir" in row]
        assert status == 1 and "--node-id N --cluster-id ID --directory-id UUID" in row["doubt"]
    assert (data / META).read_bytes() == b""


@pytest.mark.evidence("meta-properties")
@pytest.mark.parametrize("harm", [empty, garble, gone])
def test_identity_comes_from_the_other_data_directories(
    harm: Callable[[Path], None], stopped: Path, tmp_path: Path, capfd: Capfd
) -> None:
    first, second = copy_tree(stopped, tmp_path / "a"), tmp_path / "b"
    second.mkdir()
    for name in ("fares-0", "metro-zstd-0"):
        (first / name).rename(second / name)
    for name in (META, RECOVERY_POINTS, LOG_STARTS, HIGH_WATERMARKS):
        shutil.copy2(first / name, second / name)
    # of the two directory ids, the metadata log has that of the damaged directory
    (first / META).write_text((first / META).read_text().replace(DIRECTORY_ID, "AsCu_Qd6HlJL_AROE7wUxg"))
    harm(second / META)
    assert json_run("recover", "--apply", tmp_path, capfd=capfd)[0] == 0
    identity = decode_meta_properties((second / META).read_bytes())
    assert (identity.node_id, identity.cluster_id) == (1, "Mz9XvQe1R0mU7bTq2LkP5w")
    assert identity.directory_id == DIRECTORY_ID


def test_readable_values_of_the_identity_are_kept(stopped: Path, tmp_path: Path, capfd: Capfd) -> None:
    data = copy_tree(stopped, tmp_path / "data")
    meta = (data / META).read_text()
    (data / META).write_text(meta.replace("version=1\n", "version=?\n"))
    assert json_run("recover", "--apply", data, capfd=capfd)[0] == 0
    assert decode_meta_properties((data / META).read_bytes()) == decode_meta_properties(meta.encode())


def test_restored_side_file_information_equals_the_original(
    stopped: Path, tmp_path: Path, capfd: Capfd
) -> None:
    """Producers, epochs, log start offsets and recovery points are restored from the data, and the marker is unchanged."""
    data = copy_tree(stopped, tmp_path / "data")
    for disease in ("snapshots gone", "epochs empty", "log starts empty", "recovery points empty"):
        DISEASES[disease][0](data)
    assert json_run("recover", "--apply", data, capfd=capfd)[0] == 0
    end = max((data / "fares-0").glob("*.snapshot"))
    assert decode_snapshot(end.read_bytes()) == decode_snapshot((stopped / "fares-0" / end.name).read_bytes())
    assert {entry.epoch for entry in decode_leader_epochs((data / "fares-0" / EPOCHS).read_bytes())} == {0}
    for name in (LOG_STARTS, RECOVERY_POINTS):
        before, after = (
            sorted(decode_offset_checkpoint((place / name).read_bytes())) for place in (stopped, data)
        )
        assert before == after
    assert (data / MARKER).read_bytes() == (stopped / MARKER).read_bytes()


def test_repair_of_another_partition_restores_a_lost_log_start(
    stopped: Path, tmp_path: Path, capfd: Capfd
) -> None:
    data = copy_tree(stopped, tmp_path / "data")
    empty(data / LOG_STARTS)
    assert json_run("recover", "--apply", data / "fares-0", capfd=capfd)[0] == 0
    assert (data / LOG_STARTS).read_text() == f"0\n1\nmetro-none 0 {START}\n"


def test_uncertain_log_start_is_reported_but_not_written(stopped: Path, tmp_path: Path, capfd: Capfd) -> None:
    data = copy_tree(stopped, tmp_path / "data")
    without_entries(data / LOG_STARTS)
    status, rows = json_run("verify", data, capfd=capfd)
    (doubtful,) = [row for row in rows if row.get("id") == "log-start-doubtful"]
    asked = f"kseg recover --log-start-offset {START} {data / 'metro-none-0'}"
    assert status == 0 and doubtful["message"].endswith(asked)
    # the last step is about the partitions that are assigned to a lost log dir
    step, elect = [row for row in json_run("doctor", data, capfd=capfd)[1] if row["type"] == "step"]
    assert elect["command"].startswith("kafka-leader-election.sh") and not elect["due"]
    assert (step["command"], step["due"]) == (asked, False)
    assert json_run("recover", "--apply", data, capfd=capfd)[0] == 0
    assert (data / LOG_STARTS).read_text() == "0\n0\n"
    one = data / "metro-none-0"
    assert json_run("recover", "--log-start-offset", str(START), "--apply", one, capfd=capfd)[0] == 0
    assert (data / LOG_STARTS).read_text() == f"0\n1\nmetro-none 0 {START}\n"
    assert doubts(json_run("verify", data, capfd=capfd)[1]) == set()


def test_unclean_directory_may_lack_checkpoints(stopped: Path, tmp_path: Path, capfd: Capfd) -> None:
    """A broker that is killed in its first minute has not written any of them yet."""
    data = copy_tree(stopped, tmp_path / "data")
    for name in (MARKER, LOG_STARTS):
        (data / name).unlink()
    shutil.rmtree(data / "metro-none-0")
    place_elsewhere(data, "metro-none-0")
    for name in (RECOVERY_POINTS, HIGH_WATERMARKS):
        empty(data / name)
    on("*/*.snapshot", gone)(data)
    status, rows = json_run("verify", data, capfd=capfd)
    assert (status, doubts(rows)) == (0, set())
    assert "snapshot-unwritten" in {row["id"] for row in rows if row["type"] == "finding"}


@pytest.mark.evidence("log-start-trace")
@pytest.mark.parametrize("lose", [empty, garble, gone])
def test_list_and_lookup_derive_a_lost_log_start(
    stopped: Path, tmp_path: Path, capfd: Capfd, lose: Callable[[Path], None]
) -> None:
    """As with verify and recover, the log starts where the leader epochs start, and deleted records do not return."""
    data = copy_tree(stopped, tmp_path / "data")

    def looked_up(*words: str) -> object:
        rows = json_run("lookup", data / "metro-none-0", *words, capfd=capfd)[1]
        return next(row["offset"] for row in rows if row["type"] not in ("finding", "summary"))

    below = ("--offset", str(START - 1))
    assert (looked_up("--earliest"), looked_up(*below)) == (START, None)
    lose(data / LOG_STARTS)
    assert (looked_up("--earliest"), looked_up(*below)) == (START, None)
    rows = json_run("list", data, capfd=capfd)[1]
    starts = {row["partition"]: row["log_start_offset"] for row in rows if row["type"] == "partition"}
    assert starts["metro-none-0"] == START and starts["fares-0"] == 0
