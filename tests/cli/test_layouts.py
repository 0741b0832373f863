"""Locations of data directories: several levels down, under names of partitions, beside each other, behind links.

A data directory of a real broker is moved around, and every command must find the same in it.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kseg.cli.main import run
from kseg.segment.partition.recognition import MAX_LEVELS
from kseg.segment.partition.targets import Expansion, LogDirTarget, PartitionTarget, resolve_targets
from tests.support.command_lines import Capfd, json_run

PARTITIONS = ("fares-0", "gates-append-0", "metro-zstd-0")
FIRST = f"{0:020}.log"
# of the capture
DIRECTORY_ID = "UsCu_Qd6HlJL_AROE7wUxg"
OTHER_DIRECTORY_ID = "AsCu_Qd6HlJL_AROE7wUxg"
CLUSTER_ID = "Mz9XvQe1R0mU7bTq2LkP5w"
MARK = "0123456789abcdef" * 2


@pytest.fixture
def disk(capture_small: Path, tmp_path: Path) -> Callable[..., Path]:
    """Creates a data directory with some partitions of a real broker, with a damaged byte on request."""

    def lay(where: str, *names: str, damaged: bool = False, **identity: str) -> Path:
        made = tmp_path / where
        made.mkdir(parents=True)
        for name in names:
            shutil.copytree(capture_small / "data" / name.split(".")[0], made / name)
        for file in (capture_small / "data").iterdir():
            if file.is_file():
                shutil.copy2(file, made / file.name)
        if damaged:
            log = made / names[0] / FIRST
            data = bytearray(log.read_bytes())
            data[len(data) // 2] ^= 0x55
            log.write_bytes(data)
        meta = (made / "meta.properties").read_text()
        replaced = {
            "node": ("node.id=1", "node.id="),
            "directory": (f"directory.id={DIRECTORY_ID}", "directory.id="),
        }
        replaced["cluster"] = (f"cluster.id={CLUSTER_ID}", "cluster.id=")
        for key, value in identity.items():
            old, new = replaced[key]
            meta = meta.replace(old, f"{new}{value}")
        (made / "meta.properties").write_text(meta)
        return made

    return lay


Disk = Callable[..., Path]


def findings(rows: list[dict[str, Any]]) -> list[tuple[str, str]]:
    return [(row["id"], row["path"]) for row in rows if row["type"] == "finding"]


# the given path, and where below it the data directory is
LAYOUTS = {
    "Strimzi": ("data-0", "data-0/kafka-log0"),
    "Strimzi, all disks": ("", "data-0/kafka-log0"),
    "named like a partition": ("kafka-0", "kafka-0"),
    "below a name like a partition's": ("srv", "srv/kafka-0"),
    "below two names like partitions'": ("a-1", "a-1/b-2"),
    "below several levels": ("mnt", "mnt/evidence/2026/broker-3/var/lib/kafka"),
}


@pytest.mark.evidence("layout")
@pytest.mark.parametrize("layout", LAYOUTS)
def test_damage_is_found_in_every_layout(layout: str, disk: Disk, tmp_path: Path, capfd: Capfd) -> None:
    given, below = (tmp_path / part for part in LAYOUTS[layout])
    made = disk(str(below.relative_to(tmp_path)), *PARTITIONS, damaged=True)
    targets = [
        LogDirTarget(str(made)),
        *(PartitionTarget(str(made / name), str(made)) for name in PARTITIONS),
    ]
    assert resolve_targets([str(given)], expand=Expansion.VERIFY) == targets
    status, rows = json_run("verify", given, capfd=capfd)
    assert status == 1 and ("bad-crc", str(made / PARTITIONS[0] / FIRST)) in findings(rows)
    # the same findings as if the directory itself is given
    assert findings(json_run("verify", made, capfd=capfd)[1]) == findings(rows)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_every_command_finds_the_partitions_in_every_layout(
    layout: str, disk: Disk, tmp_path: Path, capfd: Capfd
) -> None:
    given, below = (tmp_path / part for part in LAYOUTS[layout])
    made = disk(str(below.relative_to(tmp_path)), *PARTITIONS)
    paths = {str(made / name) for name in PARTITIONS}
    _, listed = json_run("list", given, capfd=capfd)
    assert paths <= {row.get("directory") for row in listed}
    _, dumped = json_run("dump", given, capfd=capfd)
    dirs = {os.path.dirname(row["file"]) for row in dumped if row["type"] == "batch"}
    # bootstrap.checkpoint is in the data directory
    assert dirs - {str(made)} == paths
    compact = ["compact", "--cleanup-policy", "compact", "--first-dirty-offset", "0"]
    retain = ["retain", "--cleanup-policy", "delete", "--retention-ms", "1"]
    for words in (["recover"], compact, retain):
        _, rows = json_run(*words, given, capfd=capfd)
        assert paths == {
            row["directory"] for row in rows if row["type"] == "result" and "partition" in row
        }, words
    _, answers = json_run("lookup", "--latest", given, capfd=capfd)
    assert {row["partition"] for row in answers if row["type"] == "lookup"} == set(PARTITIONS)
    out = tmp_path.parent / f"{tmp_path.name}-out"
    assert json_run("export", "--to", "json", "--output", out, given, capfd=capfd)[0] == 0
    lines = [json.loads(line) for file in out.rglob("*.json*") for line in file.read_text().splitlines()]
    assert {f"{line['topic']}-{line['partition']}" for line in lines} == set(PARTITIONS)


def test_all_disks_of_one_node_are_read(disk: Disk, tmp_path: Path, capfd: Capfd) -> None:
    """Disks mounted as by Strimzi, each with its own lost+found, and one that is not mounted."""
    disk("data-0/kafka-log0", "fares-0")
    disk("data-1/kafka-log0", "metro-zstd-0", damaged=True, directory=OTHER_DIRECTORY_ID)
    (tmp_path / "data-0" / "lost+found").mkdir(mode=0)
    (tmp_path / "data-2").mkdir()
    status, rows = json_run("verify", tmp_path, capfd=capfd)
    assert status == 1
    assert ("bad-crc", f"{tmp_path}/data-1/kafka-log0/metro-zstd-0/{FIRST}") in findings(rows)
    assert [row["path"] for row in rows if row["type"] == "verified"] == [
        f"{tmp_path}/{path}"
        for path in (
            "data-0/kafka-log0",
            "data-0/kafka-log0/fares-0",
            "data-1/kafka-log0",
            "data-1/kafka-log0/metro-zstd-0",
        )
    ]


def test_partition_is_recognized_by_its_content(disk: Disk, tmp_path: Path) -> None:
    """An empty directory with the name of a partition counts as one inside a data directory, but not beside data directories."""
    made = disk("srv/kafka", "fares-0")
    (made / "empty-7").mkdir()
    (tmp_path / "srv" / "disk-1").mkdir()
    found = [target.path for target in resolve_targets([str(tmp_path / "srv")])]
    assert found == [str(made / "empty-7"), str(made / "fares-0")]


def test_misplaced_segment_file_hides_no_partition(disk: Disk, capfd: Capfd) -> None:
    """Somebody copied a segment or a partition.metadata to the wrong place."""
    made = disk("kafka", *PARTITIONS, damaged=True)
    shutil.copy(made / "fares-0" / "partition.metadata", made)
    shutil.copy(made / "gates-append-0" / FIRST, made)
    status, rows = json_run("verify", made, capfd=capfd)
    assert status == 1 and ("bad-crc", str(made / PARTITIONS[0] / FIRST)) in findings(rows)
    assert {("unknown-file", str(made / FIRST)), ("unknown-file", str(made / "partition.metadata"))} <= set(
        findings(rows)
    )


@pytest.mark.evidence("nested-log-dir")
@pytest.mark.parametrize("name", ["data-0", "more"])
def test_nested_data_directory_is_named_and_verified(name: str, disk: Disk, capfd: Capfd) -> None:
    """A 4.3.1 broker takes it for an empty partition data-0, finds no topic with its id, and renames it to `data-0.<id>-stray`. With
    another name the broker does not start."""
    outer = disk("kafka", "fares-0")
    inner = disk(f"kafka/{name}", "metro-zstd-0", damaged=True, directory=OTHER_DIRECTORY_ID)
    _, rows = json_run("verify", outer, capfd=capfd)
    assert ("nested-log-dir", str(inner)) in findings(rows)
    assert ("bad-crc", str(inner / "metro-zstd-0" / FIRST)) in findings(rows)
    assert "no-segments" not in [kind for kind, _ in findings(rows)]


# --- links


def test_loops_of_links_are_not_followed(disk: Disk, tmp_path: Path, capfd: Capfd) -> None:
    made = disk("srv/b/kafka", "fares-0")
    (tmp_path / "srv" / "self").symlink_to(tmp_path / "srv")
    (tmp_path / "srv" / "b" / "up").symlink_to("..")
    (made / "loop-0").symlink_to(made)
    (tmp_path / "srv" / "a").symlink_to("a")
    # sorts before the directory itself
    (tmp_path / "srv" / "0").symlink_to("b/kafka")
    targets = [LogDirTarget(str(made)), PartitionTarget(str(made / "fares-0"), str(made))]
    assert resolve_targets([str(tmp_path / "srv")], expand=Expansion.VERIFY) == targets
    assert resolve_targets([str(tmp_path / "srv" / "0")])[0].path == str(tmp_path / "srv" / "0" / "fares-0")
    status, rows = json_run("verify", tmp_path / "srv", capfd=capfd)
    assert status == 1 and ("nested-log-dir", str(made / "loop-0")) in findings(rows)


def test_directories_below_the_depth_limit_are_named(disk: Disk, tmp_path: Path, capfd: Capfd) -> None:
    disk("kafka", "fares-0")
    deep = tmp_path.joinpath(*["x"] * (MAX_LEVELS + 1))
    deep.mkdir(parents=True)
    assert run(["verify", str(tmp_path)]) == 3
    assert str(deep) in capfd.readouterr().err


@pytest.mark.skipif(os.geteuid() == 0, reason="root may list every directory")
def test_unlistable_directory_is_named(disk: Disk, tmp_path: Path, capfd: Capfd) -> None:
    disk("kafka", "fares-0")
    (tmp_path / "private").mkdir(mode=0)
    status, rows = json_run("verify", tmp_path, capfd=capfd)
    assert status == 5 and str(tmp_path / "private") in [
        row["path"] for row in rows if row["type"] == "error"
    ]


# --- side by side


@pytest.mark.evidence("partition-twice")
def test_partition_in_two_data_directories_of_a_node_is_an_error(
    disk: Disk, tmp_path: Path, capfd: Capfd
) -> None:
    disk("a", "fares-0", "gates-append-0")
    disk("b", "fares-0", f"gates-append-0.{MARK}-future", directory=OTHER_DIRECTORY_ID)
    for given in ([tmp_path], [tmp_path / "a", tmp_path / "b"]):
        status, rows = json_run("verify", *given, capfd=capfd)
        twice = [row for row in rows if row.get("id") == "partition-twice"]
        assert status == 1
        assert [(row["path"], row["other"]) for row in twice] == [
            (f"{tmp_path}/b/fares-0", f"{tmp_path}/a/fares-0")
        ]
    # they do not repair duplicate partitions
    for command in ("verify", "recover"):
        run([command, str(tmp_path / "a"), str(tmp_path / "b")])
        assert f"next: kseg doctor {tmp_path}/a {tmp_path}/b\n" in capfd.readouterr().out
    _, rows = json_run("doctor", tmp_path / "a", tmp_path / "b", capfd=capfd)
    step = next(row for row in rows if row["type"] == "step")
    assert (step["command"], step["due"]) == (f"kseg diff {tmp_path}/a/fares-0 {tmp_path}/b/fares-0", True)
    (tmp_path / "b" / "fares-0").rename(tmp_path / "moved-0")
    status, rows = json_run("doctor", tmp_path / "a", tmp_path / "b", capfd=capfd)
    assert "partition-twice" not in {row.get("id") for row in rows}


@pytest.mark.evidence("partition-twice")
@pytest.mark.parametrize(("real", "link"), ["ab", "ba"])
def test_link_to_a_partition_is_moved_out_and_not_the_partition(
    real: str, link: str, disk: Disk, tmp_path: Path, capfd: Capfd
) -> None:
    disk("a", "fares-0", "gates-append-0")
    disk("b", "fares-0", directory=OTHER_DIRECTORY_ID)
    shutil.rmtree(tmp_path / link / "fares-0")
    (tmp_path / link / "fares-0").symlink_to(f"../{real}/fares-0")
    status, rows = json_run("doctor", tmp_path / "a", tmp_path / "b", capfd=capfd)
    (start,) = [row for row in rows if row["type"] == "broker-start"]
    assert (status, start["outcome"]) == (1, "does-not-start")
    step = next(row for row in rows if row["type"] == "step")
    subprocess.run(step["command"], shell=True, check=True)
    assert [*(tmp_path / real / "fares-0").glob("*.log")]
    assert (tmp_path / f"{link}-fares-0").resolve() == tmp_path / real / "fares-0"
    status, rows = json_run("doctor", tmp_path / "a", tmp_path / "b", capfd=capfd)
    assert "partition-twice" not in {row.get("id") for row in rows}


@pytest.mark.evidence("directory-id-twice")
def test_copied_data_directory_beside_the_original_is_reported_once(
    disk: Disk, tmp_path: Path, capfd: Capfd
) -> None:
    disk("kafka", *PARTITIONS)
    disk("kafka.bak", *PARTITIONS)
    status, rows = json_run("verify", tmp_path, capfd=capfd)
    beside = [found for found in findings(rows) if found[0] in ("directory-id-twice", "partition-twice")]
    assert status == 1 and beside == [("directory-id-twice", f"{tmp_path}/kafka.bak/meta.properties")]


@pytest.mark.evidence("directory-id-twice")
def test_directory_id_of_another_node_does_not_tell_the_node(
    electing_small: Path, tmp_path: Path, capfd: Capfd
) -> None:
    """The step restores the directory id. It used to give the directory the node id of the other node, although both were there."""
    data = [tmp_path / "killed" / f"node-{node_id}" / "data" for node_id in (1, 2, 3, 9)]
    shutil.copytree(electing_small / "killed", tmp_path / "killed")
    file = data[1] / "meta.properties"
    (other,) = (
        line for line in (data[0] / file.name).read_text().splitlines() if line.startswith("directory.id=")
    )
    right = file.read_text()
    own = right.splitlines()
    file.write_text("\n".join(other if line.startswith("directory.id=") else line for line in own) + "\n")
    _, rows = json_run("doctor", *data, capfd=capfd)
    assert ("directory-id-twice", str(file)) in findings(rows)
    (mend,) = [row for row in rows if row["type"] == "step" and row["command"].startswith("sed ")]
    subprocess.run(mend["command"], shell=True, check=True)
    assert file.read_text() == right


@pytest.mark.evidence("log-dirs-mixed")
@pytest.mark.parametrize(
    ("identity", "field"), [({"node": "2"}, "node.id"), ({"cluster": "Nz9XvQe1R0mU7bTq2LkP5w"}, "cluster.id")]
)
def test_disks_of_several_nodes_are_not_damage(
    identity: dict[str, str], field: str, disk: Disk, tmp_path: Path, capfd: Capfd
) -> None:
    """Several nodes normally have replicas of the same partition."""
    disk("a", "fares-0")
    disk("b", "fares-0", directory=OTHER_DIRECTORY_ID, **identity)
    disk("c", "metro-zstd-0", directory="BsCu_Qd6HlJL_AROE7wUxg", **identity)
    status, rows = json_run("verify", tmp_path, capfd=capfd)
    mixed = [row for row in rows if row["type"] == "finding" and row["severity"] != "info"]
    assert status == 0
    assert [(row["id"], row["path"]) for row in mixed] == [
        ("log-dirs-mixed", f"{tmp_path}/{name}/meta.properties") for name in "bc"
    ]
    assert all(field in row["message"] for row in mixed)
