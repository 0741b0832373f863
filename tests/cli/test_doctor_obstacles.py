"""The steps of `kseg doctor` for directories and files that prevent a broker's start by being where they are. tests/kafka/test_doctor.py
starts a real broker after them."""

from __future__ import annotations

import shlex
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.kafka.start_cases import CASES
from tests.kafka.start_directories import SUFFIX
from tests.support import trees
from tests.support.command_lines import Capfd
from tests.support.command_rows import of_type
from tests.support.doctor_helpers import commands, doctor
from tests.support.lock_holders import child, running_broker

MOVED = {
    "bootstrap.checkpoint-foreign": "bootstrap.checkpoint",
    "quorum-state-foreign": "__cluster_metadata-0/quorum-state",
    "nested": "inner-0",
    "file_in_place_of_a_partition": "metro-gzip-0",
    "odd_file_name": "fares-0/notes.log",
    "log_is_a_directory": f"metro-none-0/{0:020d}.log",
    "leader_epochs_are_a_directory": "metro-none-0/leader-epoch-checkpoint",
}


@pytest.fixture
def data(capture_small: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(capture_small / "data", tmp_path / "node" / "data"))


@pytest.mark.parametrize("name", MOVED)
def test_obstacle_to_a_start_is_moved_out(name: str, data: Path, capfd: Capfd) -> None:
    """doctor used to advise a closer look three times."""
    CASES[name](data)
    with trees.unchanged(data):
        rows = doctor(capfd, data, status=1)
    first, *_, again = commands(rows)
    moved = data / MOVED[name]
    target = data.parent / f"data-{MOVED[name].replace('/', '-')}"
    assert shlex.split(first) == ["mv", str(moved), str(target)] and again == f"kseg doctor {data}"
    assert of_type(rows, "step")[0]["due"]
    subprocess.run(first, shell=True, check=True)
    assert target.exists() and not moved.exists()


def _set_aside_by_mistake(data: Path) -> None:
    (data / "fares-0").rename(data / f"fares-0.{SUFFIX}-stray")


@pytest.mark.usefixtures("no_pauses")
@pytest.mark.parametrize(
    "damage",
    [
        *(CASES[name] for name in ("quorum-state-foreign", "nested", "odd_file_name", "lost_and_found")),
        CASES["metadata_cut_without_snapshot"],
        _set_aside_by_mistake,
    ],
)
def test_obstacles_are_not_moved_while_a_broker_runs(
    damage: Callable[[Path], object], data: Path, capfd: Capfd
) -> None:
    damage(data)

    with child(running_broker(data)) as other:
        assert other.output() == "in"
        first, *rest = commands(doctor(capfd, data, status=1))
    assert first == "kafka-server-stop.sh --node-id 1"
    assert any(command.split()[0] in ("mv", "rmdir") for command in rest)


@pytest.mark.usefixtures("no_pauses")
def test_read_only_steps_need_no_stopped_broker(data: Path, capfd: Capfd) -> None:
    shutil.rmtree(data / "fares-0")

    with child(running_broker(data)) as other:
        assert other.output() == "in"
        first, *_ = commands(doctor(capfd, data, status=1))
    assert first.startswith("find / ")


def test_file_or_empty_directory_is_not_a_data_directory(data: Path, capfd: Capfd) -> None:
    file = CASES["second_is_a_file"](data)
    rows = doctor(capfd, data, file, status=1)
    assert commands(rows) == [f"kseg doctor {data}"]
    assert file is not None
    file.unlink()
    file.mkdir()
    rows = doctor(capfd, data, file, status=5)
    (start,) = of_type(rows, "broker-start")
    assert (start["outcome"], start["exception"]) == ("does-not-start", "RuntimeException")
    assert "No `meta.properties` found" in start["message"]
    command, again = commands(rows)
    assert command.startswith(
        "kafka-storage.sh format --ignore-formatted --cluster-id Mz9XvQe1R0mU7bTq2LkP5w "
    )
    assert again == f"kseg doctor {data} {file}"


def test_replaced_disk_in_log_dirs_under_two_spellings_gets_one_step(
    data: Path, monkeypatch: pytest.MonkeyPatch, capfd: Capfd
) -> None:
    """The steps are for a broker that is started in another working directory, so the paths in log.dirs count. A directory that was given
    and is in log.dirs used to have two steps, and the metadata log a path at which no broker finds it."""
    (data.parent / "new").mkdir()
    properties = data.parent / "kraft.properties"
    properties.write_text(f"node.id=1\nlog.dirs={data.parent}/new,{data}\n")
    monkeypatch.chdir(data.parent)
    rows = doctor(capfd, Path(data.name), Path("new"), "--server-properties", Path(properties.name), status=5)
    form, place, again = commands(rows)
    assert form.endswith(" --config kraft.properties")
    assert place == rf"printf '\nmetadata.log.dir=%s\n' {data} >> kraft.properties"
    assert again == f"kseg doctor --server-properties kraft.properties {data.name} new"
    properties.write_text(f"node.id=1\nlog.dirs={data}\n")
    CASES["second_with_foreign_recovery_points"](data)
    first, *_ = commands(
        doctor(capfd, Path(data.name), Path("second"), "--server-properties", Path(properties.name), status=1)
    )
    assert first.startswith("sed ") and f"log.dirs={data},{data.parent}/second#" in first


def test_doctor_does_not_repair_a_metadata_log_with_a_gap(data: Path, capfd: Capfd) -> None:
    """Observed: without the damaged batch a broker fails on the first record that refers to it."""
    CASES["metadata_cut_without_snapshot"](data)
    rows = doctor(capfd, data, status=1)
    first, copy, *_, again = [step["command"] for step in of_type(rows, "step") if step["due"]]
    assert first.startswith(f"mv {data}/__cluster_metadata-0 ") and again == f"kseg doctor {data}"
    assert copy.startswith(f"cp -r -T PATH/__cluster_metadata-0 {data}/__cluster_metadata-0.kseg-copying && ")
    assert copy.endswith(f" {data}/__cluster_metadata-0")
    CASES["leader_epochs_foreign"](data)
    reported = commands(doctor(capfd, data, status=1))
    assert reported[:2] == [f"kseg recover {data}/fares-0", f"kseg recover --apply {data}/fares-0"]


def test_metadata_log_of_the_kraft_preview_keeps_its_name(data: Path, capfd: Capfd) -> None:
    """Observed with a metadata log of 2.8.2: under today's name, 4.3.1 ends with "upgrades from the preview release of KRaft in 2.8 to
    newer versions are not supported"."""
    (data / "__cluster_metadata-0").rename(data / "@metadata-0")
    first, *_ = commands(doctor(capfd, data, status=1))
    assert first == f"kseg export --to json --output DIR {data}"


def test_renamed_partition_gets_its_name_back_and_a_copy_is_moved_out(data: Path, capfd: Capfd) -> None:
    (data / "fares-0").rename(data / "fares-0.bak")
    shutil.copytree(data / "stations-0", data / "stations-0.bak")
    assert commands(doctor(capfd, data, status=1)) == [
        f"mv {data}/stations-0.bak {data}-stations-0.bak",
        f"mv -T {data}/fares-0.bak {data}/fares-0",
        f"kseg doctor {data}",
    ]


def test_files_from_a_case_insensitive_file_system_get_their_names_back(data: Path, capfd: Capfd) -> None:
    """doctor used to advise searching the whole machine for the partition."""
    partition = data / "fares-0"
    before = {path.name: path.read_bytes() for path in partition.iterdir()}
    for name in before:
        (partition / name).rename(partition / name.upper())
    restore, again = commands(doctor(capfd, data, status=1))
    assert again == f"kseg doctor {data}"
    subprocess.run(restore, shell=True, check=True)
    assert {path.name: path.read_bytes() for path in partition.iterdir()} == before
    # the .LOG file is not the only copy, so no search is advised
    shutil.copy(partition / f"{0:020d}.log", partition / f"{0:020d}.LOG")
    assert not any(command.startswith("find") for command in commands(doctor(capfd, data, status=0)))


def test_lost_and_found_with_files_is_kept(data: Path, capfd: Capfd) -> None:
    """rmdir, which is right for an empty directory, failed."""
    (data / "lost+found" / "#131077").mkdir(parents=True)
    first, _ = commands(doctor(capfd, data, status=1))
    assert first == f"mv {data}/lost+found {data}-lost+found"


def test_copy_under_the_name_of_no_topic_is_moved_out(data: Path, capfd: Capfd) -> None:
    """A broker loads it but does not serve it to clients. doctor used to advise listing it."""
    shutil.copytree(data / "fares-0", data / "fares.restored-0")
    assert commands(doctor(capfd, data, status=1)) == [
        f"mv {data}/fares.restored-0 {data}-fares.restored-0",
        f"kseg doctor {data}",
    ]
    (data / "fares-0").rename(data / "fares.old-0")
    shutil.rmtree(data / "fares.restored-0")
    assert commands(doctor(capfd, data, status=1))[0] == f"mv -T {data}/fares.old-0 {data}/fares-0"


def test_checkpoints_tell_the_former_name_without_a_metadata_log(data: Path, capfd: Capfd) -> None:
    """A broker with ZooKeeper. Neither of two directories that could be metro-lz4-0 gets that name, and stations-0 exists."""
    shutil.rmtree(data / "__cluster_metadata-0")
    (data / "meta.properties").write_text("version=0\nbroker.id=1\ncluster.id=Mz9XvQe1R0mU7bTq2LkP5w\n")
    (data / "fares-0").rename(data / "_fares-0 (copy)")
    shutil.copytree(data / "stations-0", data / "stations-0.bak")
    shutil.copytree(data / "metro-lz4-0", data / "metro-lz4-0.old")
    (data / "metro-lz4-0").rename(data / "metro-lz4-0.bak")
    (data / "metro-gzip-0.empty").mkdir()
    shutil.rmtree(data / "metro-gzip-0")
    *steps, again = commands(doctor(capfd, data, status=1))
    assert again == f"kseg doctor {data}"
    assert sorted(steps) == sorted(
        [
            f"mv -T '{data}/_fares-0 (copy)' {data}/fares-0",
            *(
                f"mv {data}/{name} {data}-{name}"
                for name in ("stations-0.bak", "metro-lz4-0.bak", "metro-lz4-0.old", "metro-gzip-0.empty")
            ),
        ]
    )
    for step in steps:
        subprocess.run(shlex.split(step), check=True)
    doctor(capfd, data, status=0)


def test_search_for_a_missing_partition_finds_both_copies(data: Path, tmp_path: Path, capfd: Capfd) -> None:
    """It searches for the directories to which they were moved."""
    shutil.copytree(data / "fares-0", data / "fares-0.old")
    (data / "fares-0").rename(data / "fares-0.bak")
    *moves, search, _ = commands(doctor(capfd, data, status=1))
    for move in moves:
        subprocess.run(shlex.split(move), check=True)
    found = subprocess.run(
        search.replace("find /", f"find {tmp_path}"), shell=True, check=True, capture_output=True, text=True
    )
    assert sorted(found.stdout.split()) == [f"{data}-fares-0.bak", f"{data}-fares-0.old"]
