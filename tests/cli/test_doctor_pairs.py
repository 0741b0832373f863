"""Doctor if a partition is in two data directories."""

from __future__ import annotations

import shlex
import subprocess
from pathlib import Path

import pytest

from kseg.cli.doctor.next_steps import next_steps
from kseg.cli.doctor.situation import Situation
from kseg.cli.main import run
from kseg.cli.request import Request
from tests.support.command_lines import Capfd
from tests.support.command_rows import of_type
from tests.support.doctor_helpers import NOW, beside, commands, doctor
from tests.support.trees import copy_tree


@pytest.mark.parametrize("is_behind", [False, True])
def test_copy_that_is_behind_of_a_duplicate_partition_is_moved_out(
    capture_small: Path, tmp_path: Path, capfd: Capfd, is_behind: bool
) -> None:
    data, second = beside(capture_small, tmp_path, "fares-0")
    if is_behind:
        newest = max((data / "fares-0").glob("*.log")).stem
        for file in (data / "fares-0").glob(f"{newest}.*"):
            file.unlink()
    steps = commands(doctor(capfd, data, second, status=1))
    (compare,) = (shlex.split(step) for step in steps if step.startswith("kseg diff "))
    assert compare == ["kseg", "diff", str(data / "fares-0"), str(second / "fares-0")]
    gone = data if is_behind else second
    (move,) = (step for step in steps if step.startswith("mv "))
    assert shlex.split(move)[1] == str(gone / "fares-0")
    subprocess.run(move, shell=True, check=True)
    assert steps[-1].startswith("kseg doctor ")
    run(["doctor", "--json", *NOW, str(data), str(second)])
    assert "kseg diff" not in capfd.readouterr().out


def test_many_duplicate_partitions_are_counted_for_each_pair_of_directories() -> None:
    """Five are listed in full. The step for a pair of directories used to contain the total of all pairs."""
    twice = [(f"second/many-{n}", f"first/many-{n}") for n in range(6)]
    twice += [(f"third/many-{n}", f"first/many-{n}") for n in range(6, 9)]
    situation = Situation(Request(("first", "second", "third")))
    situation.replicas.twice += twice
    steps = [*next_steps(situation)]
    counted = {step.command: step.why for step in steps if step.why.startswith("Likewise for ")}
    assert set(counted) == {"kseg diff first second", "kseg diff first third"}
    assert "for 1 more partition that" in counted["kseg diff first second"]
    assert "for each of 3 more partitions that" in counted["kseg diff first third"]


@pytest.mark.parametrize(
    ("changes", "status"),
    [({"cluster_id": "Nz9XvQe1R0mU7bTq2LkP5w"}, 0), ({"node_id": "2"}, 0), ({"directory_id": "copy"}, 1)],
)
def test_directory_of_another_node_is_left_out_of_the_comparison(
    capture_small: Path, tmp_path: Path, capfd: Capfd, changes: dict[str, str], status: int
) -> None:
    """Disks of several nodes may have been mounted on one machine, in which case nothing needs to be done."""
    if "directory_id" in changes:
        lines = (capture_small / "data" / "meta.properties").read_text().splitlines()
        changes = {
            "directory_id": next(line for line in lines if line.startswith("directory.id")).split("=", 1)[1]
        }
    data, second = beside(capture_small, tmp_path, "other-0", **changes)
    rows = doctor(capfd, data, second, status=status)
    steps = of_type(rows, "step")
    assert [step["command"] for step in steps] == [
        f"kseg doctor {path}" for path in ([data] if "directory_id" in changes else [data, second])
    ]
    assert steps[0]["why"].startswith(str(second)) is ("directory_id" in changes)
    assert {step["due"] for step in steps} == {bool(status)}


@pytest.mark.parametrize("own", [1, 2], ids=["the-id-was-changed", "the-disk-is-of-another"])
def test_owner_of_a_meta_properties_with_another_node_id_is_named(
    capture_small: Path, tmp_path: Path, capfd: Capfd, own: int
) -> None:
    """The voter that listens at the file's address decides. With exchanged ids on two exchanged disks, three real nodes had no quorum:
    "Leader sent a voter key … that doesn't match the local key"."""
    data, file = copy_tree(capture_small / "data", tmp_path / "data"), tmp_path / "server.properties"
    ports = {1: 19091, 2: 19092}
    lines = {
        "node.id": "2",
        "log.dirs": str(data),
        "listeners": f"PLAINTEXT://127.0.0.1:9092,CONTROLLER://127.0.0.1:{ports[own]}",
        "controller.quorum.voters": ",".join(f"{node}@127.0.0.1:{port}" for node, port in ports.items()),
    }
    file.write_text("".join(f"{name}={value}\n" for name, value in lines.items()))
    (step,) = of_type(doctor(capfd, "--server-properties", file, data, status=1), "step")
    if own == 1:
        assert step["command"].startswith("sed ") and "node 1" in step["why"]
        return
    (tmp_path / "elsewhere").mkdir()
    wanted = tmp_path / "elsewhere" / "meta.properties"
    wanted.write_text((data / "meta.properties").read_text().replace("node.id=1", "node.id=2"))
    assert "is that of node 2" in step["why"]
    find = step["command"].replace("find / ", f"find {shlex.quote(str(tmp_path))} ")
    assert (
        subprocess.run(find, shell=True, capture_output=True, text=True, check=True).stdout == f"{wanted}\n"
    )


def test_many_renamed_replicas_are_counted_after_the_first_five(tmp_path: Path) -> None:
    """Five are listed in full, with --verbose all."""
    situation = Situation(Request((str(tmp_path),)))
    for number in range(8):
        path = str(tmp_path / f"orders-{number}")
        situation.replicas.missing.append(path)
        situation.replicas.set_aside[path] = f"{path}.5c9a0ee6ba8d4b25a8c9c77a0b3a1f6e-stray"
    steps = [*next_steps(situation)]
    assert sum(step.command.startswith("mv -T ") for step in steps) == 5
    (rest,) = (step for step in steps if step.why.startswith("Likewise for 3 more replicas"))
    assert rest.command == f"kseg doctor --verbose {tmp_path}" and rest.is_due
    situation.replicas.request = Request((str(tmp_path),), is_verbose=True)
    assert sum(step.command.startswith("mv -T ") for step in next_steps(situation)) == 8
