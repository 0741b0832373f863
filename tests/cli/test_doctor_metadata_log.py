"""`kseg doctor` if the metadata log has damage that no repair can fix, or is in none of the directories."""

from __future__ import annotations

import errno
import os
import shlex
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from fixtures.diseases import bad_crc
from kseg.cli.doctor.metadata_log_steps import (
    find_metadata_log,
    is_metadata_snapshot,
    lacks_metadata_log,
    snapshot_steps,
)
from kseg.cli.main import run
from tests.kafka.start_cases import CASES
from tests.support import trees
from tests.support.command_lines import Capfd
from tests.support.command_rows import of_type
from tests.support.doctor_helpers import commands, doctor, text_of

METADATA = "__cluster_metadata-0"
DAMAGED = f"{69:020d}-{1:010d}.checkpoint"


@pytest.fixture
def data(capture_small: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(capture_small / "data", tmp_path / "node" / "data"))


def test_damaged_snapshot_is_moved_out_if_the_log_reaches_back(data: Path, capfd: Capfd) -> None:
    (snapshot,) = (data / METADATA).glob("*.checkpoint")
    snapshot.write_bytes(b"garbage" * 30)
    with trees.unchanged(data):
        rows = doctor(capfd, data, status=1)
    (start,) = of_type(rows, "broker-start")
    assert start["outcome"] != "starts"
    first, again = commands(rows)
    assert shlex.split(first)[:2] == ["mv", str(snapshot)] and again == f"kseg doctor {data}"
    subprocess.run(first, shell=True, check=True)
    assert [path.name for path in data.parent.iterdir() if path != data] == [f"data-{METADATA}-{DAMAGED}"]
    rows = doctor(capfd, data, status=0)
    assert not of_type(rows, "step")


@pytest.mark.parametrize(
    ("names", "moves_directory"),
    [
        ((f"{0:020d}.log",), False),
        ((f"{50:020d}.log", f"{50:020d}-{1:010d}.checkpoint"), False),
        ((f"{50:020d}.log", f"{60:020d}-{1:010d}.checkpoint"), False),
        ((f"{50:020d}.log", f"{49:020d}-{1:010d}.checkpoint"), True),
        ((f"{50:020d}.log", f"{60:020d}-{1:010d}.checkpoint.deleted"), True),
        ((f"{50:020d}.log", f"{0:020d}.log.deleted"), True),
        ((), True),
    ],
)
def test_metadata_log_that_does_not_reach_back_comes_from_another_node(
    names: tuple[str, ...], moves_directory: bool, tmp_path: Path
) -> None:
    directory = tmp_path / METADATA
    directory.mkdir()
    for name in (*names, DAMAGED):
        (directory / name).touch()
    damaged = str(directory / DAMAGED)
    (step,) = snapshot_steps([damaged])
    assert shlex.split(step.command)[:2] == ["mv", str(directory) if moves_directory else damaged]
    assert ("does not reach back" in step.why) == moves_directory and step.is_due


def test_metadata_snapshot_is_recognized_only_in_the_metadata_log() -> None:
    assert is_metadata_snapshot(f"data/{METADATA}/{DAMAGED}")
    assert not is_metadata_snapshot(f"data/orders-0/{DAMAGED}")
    assert not is_metadata_snapshot(f"data/{METADATA}/{DAMAGED}.deleted")
    assert not is_metadata_snapshot(f"data/{METADATA}/{0:020d}.log")
    assert not is_metadata_snapshot("data/recovery-point-offset-checkpoint")


def test_doctor_asks_for_a_metadata_log_in_no_directory(data: Path, capfd: Capfd) -> None:
    """If another data directory has the metadata log, nothing needs to be done; if both are given, no step asks for it."""
    other = data.parent / "other"
    other.mkdir()
    (data / METADATA).rename(other / METADATA)
    rows = doctor(capfd, data, status=0)
    step, copy, *new_log = of_type(rows, "step")
    assert step["command"] == find_metadata_log().command
    assert copy["command"].startswith(f"cp -r -T PATH/{METADATA} {data}/{METADATA}.kseg-copying && ")
    assert [each["command"].split()[0] for each in new_log] == [
        *("sed", "kafka-storage.sh", "kafka-server-start.sh"),
        *["kafka-topics.sh"] * 5,
        *("kseg", "kafka-server-stop.sh", "mv", "kseg"),
    ]
    assert not any(each["due"] for each in of_type(rows, "step"))
    found = subprocess.run(
        step["command"].replace("find /", f"find {data.parent}"), shell=True, check=True, capture_output=True
    )
    assert found.stdout.decode().split() == [str(other / METADATA)]
    assert any(
        line.lstrip().startswith("1. __cluster_metadata-0 tells which partitions belong here")
        for line in text_of(capfd, data)
    )
    assert not of_type(doctor(capfd, "--metadata", other / METADATA, data, status=0), "step")


def test_zookeeper_node_needs_no_metadata_log(data: Path, capfd: Capfd) -> None:
    shutil.rmtree(data / METADATA)
    (data / "meta.properties").write_text("version=0\nbroker.id=1\ncluster.id=Mz9XvQe1R0mU7bTq2LkP5w\n")
    assert not of_type(doctor(capfd, data, status=0), "step")


@pytest.mark.parametrize("command", ["verify", "dump", "recover", "recover --apply"])
def test_damaged_snapshot_advises_doctor_not_recover(command: str, data: Path, capfd: Capfd) -> None:
    """`kseg recover`, which used to be advised, changes nothing in this case."""
    (snapshot,) = (data / METADATA).glob("*.checkpoint")
    bad_crc(snapshot)
    for target in (data, data / METADATA):
        run([*command.split(), str(target)])
        shown = capfd.readouterr()
        lines = [line for line in (shown.out + shown.err).splitlines() if line.startswith("next: ")]
        assert lines == [f"next: kseg doctor {target}"]
    bad_crc(data / "fares-0" / f"{0:020d}.log")
    assert run(["verify", str(data)]) == 1
    # advised because of other damage
    assert capfd.readouterr().out.splitlines()[-1] == f"next: kseg recover {data}"


@pytest.mark.parametrize("command", ["verify", "metadata", "recover", "recover --apply"])
def test_gap_in_the_metadata_log_advises_doctor_not_recover(command: str, data: Path, capfd: Capfd) -> None:
    """`kseg recover`, which used to be advised, leaves a log on which a broker fails. doctor has the steps, whatever else is damaged."""
    CASES["metadata_cut_without_snapshot"](data)
    bad_crc(data / "fares-0" / f"{0:020d}.log")
    run([*command.split(), str(data)])
    shown = capfd.readouterr()
    lines = [line for line in (shown.out + shown.err).splitlines() if line.startswith("next: ")]
    assert lines == [f"next: kseg doctor {data}"]


def test_cost_of_a_damaged_snapshot_is_that_it_stays_damaged(data: Path, capfd: Capfd) -> None:
    (snapshot,) = (data / METADATA).glob("*.checkpoint")
    bad_crc(snapshot)
    assert run(["doctor", str(data)]) == 1
    out = capfd.readouterr().out
    assert f"{METADATA}: `recover` leaves it damaged: {snapshot.name}" in out and "loses nothing" not in out


@pytest.mark.parametrize("name", [f"{METADATA}.bak", f"{METADATA}.{'a' * 32}-stray", "metadata-0"])
def test_renamed_metadata_log_gets_its_name_back(data: Path, name: str, capfd: Capfd) -> None:
    """It is not moved out, because a node that is its own controller would then rename every partition as stray."""
    (data / METADATA).rename(data / name)
    assert commands(doctor(capfd, data, status=1)) == [
        f"mv -T {data}/{name} {data}/{METADATA}",
        f"kseg doctor {data}",
    ]


def test_metadata_log_may_be_in_a_directory_that_cannot_be_read(data: Path, capfd: Capfd) -> None:
    """Told: how to make a new metadata log, without configurations and ACLs."""
    shutil.rmtree(data / METADATA)
    unread = data.parent / "unread"
    unread.symlink_to(unread.name)  # ELOOP, also for root
    steps = of_type(doctor(capfd, data, unread, status=5), "step")
    (step,) = [each for each in steps if METADATA in each["why"] or METADATA in each["command"]]
    assert step["why"].startswith(f"{unread} could not be read, and may contain {METADATA}")
    assert step["command"] == f"kseg doctor {data} {unread}"


def test_new_node_is_to_be_started(tmp_path: Path, data: Path, capfd: Capfd) -> None:
    """A node leaves its .lock where it has run. `format --no-initial-controllers` writes no metadata log."""
    new = tmp_path / "new"
    new.mkdir()
    for name in ("meta.properties", "bootstrap.checkpoint"):
        shutil.copy(data / name, new)
    find, copy = of_type(doctor(capfd, new, status=0), "step")
    # a controller that has lost its metadata log leaves nothing else
    assert (
        "If no node has run on them yet, start it: nothing is missing. If one has (a controller"
        in find["why"]
    )
    assert copy["command"].startswith("cp ")
    (new / ".lock").touch()
    find, copy, *new_log = of_type(doctor(capfd, new, status=0), "step")
    assert find["why"].startswith(METADATA) and new_log


def test_metadata_log_that_cannot_be_found_out_about_is_not_lacking(
    data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert not lacks_metadata_log([str(data)])
    stat = os.stat

    def failing(path: Any, **options: Any) -> os.stat_result:
        if str(path) == str(data / METADATA):
            raise OSError(errno.ESTALE, os.strerror(errno.ESTALE), str(path))
        return stat(path, **options)

    with monkeypatch.context() as patched:
        patched.setattr(os, "stat", failing)
        assert not lacks_metadata_log([str(data)])
    shutil.rmtree(data / METADATA)
    assert lacks_metadata_log([str(data)])
