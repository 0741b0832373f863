"""The commands of `doctor` that move and copy: what an earlier step has put aside stays."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from kseg.cli.doctor.damaged_replicas import DamagedReplicas
from kseg.cli.doctor.next_step import (
    NextStep,
    copy_command,
    find_copies_command,
    lack_of_room,
    lack_of_room_outside,
    move_command,
    move_out,
    put_command,
)
from kseg.cli.request import Request
from tests.internal_topics.coordinator_logs import batch, write_segment
from tests.support.group_dirs import commit
from tests.support.mounts import done_or_skipped, mounted


def typed(command: str) -> None:
    path = os.pathsep.join((str(Path(sys.executable).parent), os.environ["PATH"]))
    subprocess.run(command, shell=True, check=True, env=os.environ | {"PATH": path})


def test_second_move_leaves_what_the_first_has_moved(tmp_path: Path) -> None:
    partition = tmp_path / "data" / "orders-0"
    for content in ("first", "second", "third"):
        partition.mkdir(parents=True)
        snapshot = partition / f"{7:020}.snapshot"
        snapshot.write_text(content)
        typed(move_command(str(snapshot)))
        (partition / "log").write_text(content)
        typed(move_command(str(partition)))
    found = {
        str(path.relative_to(tmp_path)): path.read_text() for path in tmp_path.rglob("*") if path.is_file()
    }
    number = f"data-orders-0-{7:020}.snapshot"
    assert found == {
        number: "first",
        f"{number}.2": "second",
        f"{number}.3": "third",
        "data-orders-0/log": "first",
        "data-orders-0.2/log": "second",
        "data-orders-0.3/log": "third",
    }


def test_longest_name_of_a_partition_can_be_moved_out(tmp_path: Path) -> None:
    """Its new name begins with that of the data directory."""
    path = tmp_path / "data" / f"{'t' * 249}-0"
    for content in ("first", "second"):
        path.mkdir(parents=True)
        (path / "log").write_text(content)
        typed(move_command(str(path)))
    assert sorted(log.read_text() for log in tmp_path.glob("data-t*/log")) == ["first", "second"]


def test_longest_name_of_a_partition_can_be_copied(tmp_path: Path) -> None:
    source, path = tmp_path / "from", tmp_path / f"{'t' * 249}-0"
    source.mkdir()
    (source / "log").write_text("records")
    typed(copy_command(str(source), str(path)))
    assert (path / "log").read_text() == "records"
    assert sorted(each.name for each in tmp_path.iterdir()) == ["from", path.name]


@pytest.mark.skipif(os.geteuid() != 0, reason="mounting a file system needs root")
def test_directory_from_another_file_system_is_copied_before_it_gets_its_name(tmp_path: Path) -> None:
    """`mv` across file systems gives a name to what it has copied so far."""
    with mounted(tmp_path / "disk", "-t", "tmpfs", "tmpfs") as disk:
        made, path = tmp_path / "whole" / "orders-0", disk / "orders-0"
        for directory in (made, path):
            directory.mkdir(parents=True)
            (directory / "log").write_text(directory.parent.name)
        command = put_command(str(made), str(path), first=move_command(str(path)))
        assert command.startswith(f"cp -a -T {made} {path}.kseg-copying && ")
        typed(command)
        assert [(path / "log").read_text(), os.listdir(disk)] == ["whole", ["orders-0"]]
    assert (tmp_path / "disk-orders-0" / "log").read_text() == "disk"
    (tmp_path / "data").mkdir()
    near = tmp_path / "data" / "orders-0"
    assert put_command(str(made), str(near), first="true") == f"true && mv -T {made} {near}"


@pytest.mark.skipif(os.geteuid() != 0, reason="mounting a file system needs root")
def test_move_out_of_a_mount_point_leaves_no_part_under_the_name_of_a_partition(tmp_path: Path) -> None:
    """Ended after each of its commands, and in the midst of the last one, which deletes."""
    with mounted(tmp_path / "disk", "-t", "tmpfs", "tmpfs") as disk:
        path, goal = disk / "orders-0", tmp_path / "disk-orders-0"
        path.mkdir()
        (path / "log").write_text("records")
        (path / "index").write_text("entries")
        whole = {"log": "records", "index": "entries"}
        for number, command in enumerate(move_command(str(path)).split(" && "), 1):
            if command.startswith("rm -r "):
                gone = disk / "orders-0.moved.kseg-copying"
                (gone / "log").unlink()
            typed(command)
            kept = [each for each in (path, goal) if each.exists()]
            assert kept and all(
                {file.name: file.read_text() for file in each.iterdir()} == whole for each in kept
            ), number
        assert [*disk.iterdir()] == []
        snapshot = disk / "orders-0" / f"{7:020}.snapshot"
        snapshot.parent.mkdir()
        snapshot.write_text("producers")
        step = move_out("Why.", str(snapshot))
        assert "is a copy to another one" in step.why and step.needs_stopped_broker
        typed(step.command)
        assert [*snapshot.parent.iterdir()] == []
    assert (tmp_path / f"disk-orders-0-{7:020}.snapshot").read_text() == "producers"


@pytest.mark.skipif(os.geteuid() != 0, reason="mounting a file system needs root")
def test_copy_without_enough_room_says_so(tmp_path: Path) -> None:
    source = tmp_path / "orders-0"
    source.mkdir()
    (source / "log").write_bytes(bytes(40 << 10))
    os.truncate(source / "log", 1 << 20)  # a hole
    with mounted(tmp_path / "disk", "-t", "tmpfs", "-o", "size=64k", "tmpfs") as disk:
        assert lack_of_room(str(source), str(disk / "orders-0")) == ""
        (disk / "other").write_bytes(bytes(32 << 10))
        assert lack_of_room(str(source), str(disk / "orders-0")) == (
            " The copy needs 40.0 KiB, and 32.0 KiB are free there: make room first."
        )
        assert lack_of_room(str(tmp_path / "gone"), str(disk / "orders-0")) == ""


@pytest.mark.skipif(os.geteuid() != 0, reason="mounting a file system needs root")
def test_move_out_of_a_mount_point_without_enough_room_says_so(tmp_path: Path) -> None:
    with mounted(tmp_path / "around", "-t", "tmpfs", "-o", "size=64k", "tmpfs") as around:
        (around / "directory" / "orders-0").mkdir(parents=True)
        assert lack_of_room_outside(str(around / "directory" / "orders-0")) == ""
        with mounted(around / "disk", "-t", "tmpfs", "tmpfs") as disk:
            log = disk / "orders-0" / "log"
            log.parent.mkdir()
            log.write_bytes(bytes(80 << 10))
            assert lack_of_room_outside(str(log.parent)) == (
                f" Moving {log.parent} out needs 80.0 KiB in {around}, and 64.0 KiB are free there: make room first, or move it to any other "
                "place outside."
            )
            (disk / "orders-1").symlink_to(log.parent)
            assert lack_of_room_outside(str(disk / "orders-1")) == ""


def test_search_for_copies_finds_no_partial_one(tmp_path: Path) -> None:
    source = tmp_path / "backup" / "orders-0.bak"
    source.mkdir(parents=True)
    (source / "00000000000000000000.log").write_bytes(b"records")
    (tmp_path / "data").mkdir()
    copy = copy_command(str(source), str(tmp_path / "data" / "orders-0"))
    partial = tmp_path / "data" / "orders-0.kseg-copying"
    assert str(partial) in copy  # as an interrupted step leaves it
    partial.mkdir()
    (partial / "00000000000000000000.log").write_bytes(b"rec")
    command = find_copies_command(["orders-0"])
    assert not NextStep("", command).needs_stopped_broker
    assert NextStep("", copy).needs_stopped_broker
    here = command.replace("find / ", f"find {tmp_path} ", 1)
    assert here != command
    found = subprocess.run(["sh", "-c", here], capture_output=True, text=True, check=True)
    assert found.stdout.splitlines() == [str(source)]


def test_mount_point_is_moved_with_what_is_mounted_there(tmp_path: Path) -> None:
    """`mv` cannot rename it: Device or resource busy."""
    (tmp_path / "data").mkdir()
    path, goal = tmp_path / "data" / "orders-0.bak", tmp_path / "data-orders-0.bak"
    path.mkdir()
    done_or_skipped(["mount", "-t", "tmpfs", "tmpfs", str(path)])
    try:
        (path / "file").write_text("content")
        typed(move_command(str(path)))
        assert (goal / "file").read_text() == "content" and not path.exists()
    finally:
        subprocess.run(["umount", str(goal if os.path.ismount(goal) else path)], check=True)


_SETTINGS = b'{"properties":{"connector.class":"a","database.password":"secret","name":"x"}}'


@pytest.mark.parametrize(
    ("topic", "record"),
    [("__consumer_offsets", commit(4, "billing")), ("connect-configs", (b"connector-x", _SETTINGS))],
)
def test_log_of_an_internal_topic_is_put_together_with_its_records_as_they_are(
    tmp_path: Path, topic: str, record: tuple[bytes, bytes]
) -> None:
    """Decoded or redacted ones could not be appended."""
    parts = [batch(at, record) for at in range(3)]
    first, second = (tmp_path / node / f"{topic}-0" for node in ("a", "b"))
    for directory, damaged in ((first, 0), (second, 2)):
        content = (part[:-1] + b"?" if at == damaged else part for at, part in enumerate(parts))
        write_segment(directory, *content)
        (directory / "partition.metadata").write_text("version: 0\ntopic_id: AAECAwQFBgcICQoLDA0ODw\n")
        (directory / "leader-epoch-checkpoint").write_text("0\n1\n0 0\n")
    found = DamagedReplicas(Request((str(tmp_path),)), (str(first), str(second)))
    found.lost = {str(first): [range(1)], str(second): [range(2, 3)]}
    for step in [*found.steps(())][:2]:
        typed(step.command)
    assert b"".join(parts) == (first / f"{0:020}.log").read_bytes()
