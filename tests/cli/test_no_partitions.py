"""A data directory without any partition: its own files are checked, and no command complains about missing targets."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from kseg.cli.main import run
from tests.support.command_lines import Capfd, Say
from tests.support.trees import unchanged

POINTS = "recovery-point-offset-checkpoint"


@pytest.fixture
def log_dir(capture_small: Path, tmp_path: Path) -> Path:
    made = tmp_path / "kafka" / "disk-b"
    made.mkdir(parents=True)
    shutil.copy2(capture_small / "data" / "meta.properties", made)
    for role in ("recovery-point", "replication", "log-start", "cleaner"):
        (made / f"{role}-offset-checkpoint").write_text("0\n0\n")
    return made


COMMANDS = ("recover", "compact", "retain")


@pytest.mark.parametrize("command", (*COMMANDS, "verify"))
@pytest.mark.parametrize("way", ["itself", "parent", "link"])
def test_directory_without_partitions_has_nothing_to_do(
    log_dir: Path, command: str, way: str, say: Say, tmp_path: Path
) -> None:
    (tmp_path / "link").symlink_to(log_dir)
    given = {"itself": log_dir, "parent": log_dir.parent, "link": tmp_path / "link"}[way]
    with unchanged(log_dir):
        status, rows = say(command, given)
        assert status == 0
        if command != "verify":
            assert say(command, "--apply", given)[0] == 0
    (row,) = [row for row in rows if row.get("id") == "no-partitions"]
    assert row["severity"] == "info" and row["message"] == f"there is no partition in {row['path']}"


@pytest.mark.parametrize("content", ["x", "0\n1\n"])
def test_recover_repairs_the_files_of_a_directory_without_partitions(
    log_dir: Path, content: str, say: Say
) -> None:
    (log_dir / POINTS).write_text(content)
    assert say("verify", log_dir)[0] == 1
    status, rows = say("recover", log_dir)
    assert status == 1 and [row["file"] for row in rows if row["type"] == "step"] == [POINTS]
    assert say("recover", "--apply", log_dir)[0] == 0
    assert (log_dir / POINTS).read_text() == "0\n0\n"
    assert say("verify", log_dir)[0] == say("recover", log_dir)[0] == 0


def test_recover_restores_meta_properties_of_a_directory_without_partitions(log_dir: Path, say: Say) -> None:
    (log_dir / "meta.properties").write_bytes(b"")
    assert say("verify", log_dir)[0] == say("recover", log_dir)[0] == 1
    words = ("--node-id", "1", "--cluster-id", "c", "--directory-id", "none")
    assert say("recover", "--apply", *words, log_dir)[0] == 0
    assert say("verify", log_dir)[0] == 0


def test_directory_without_partitions_can_be_marked_clean_and_copied(
    log_dir: Path, say: Say, tmp_path: Path
) -> None:
    assert say("recover", "--output", tmp_path / "copy", log_dir)[0] == 0
    assert (tmp_path / "copy" / "meta.properties").read_bytes() == (log_dir / "meta.properties").read_bytes()
    assert say("recover", "--apply", "--mark-clean", log_dir)[0] == 0
    assert (log_dir / ".kafka_cleanshutdown").exists()


@pytest.mark.parametrize("command", COMMANDS)
def test_directory_that_is_not_kafkas_is_refused(command: str, tmp_path: Path, capfd: Capfd) -> None:
    assert run([command, str(tmp_path)]) == 3
    assert "contains no Kafka partition, segment or checkpoint" in capfd.readouterr().err


@pytest.mark.parametrize("command", COMMANDS)
def test_directory_without_partitions_beside_one_with_them(
    log_dir: Path, command: str, say: Say, capture_small: Path
) -> None:
    """A directory with partitions and one without: both are read, and only the second is reported as empty."""
    other = shutil.copytree(capture_small / "data", log_dir.parent / "disk-a")
    meta = (log_dir / "meta.properties").read_text()
    (log_dir / "meta.properties").write_text(meta.replace("directory.id=U", "directory.id=A"))
    _, rows = say(command, log_dir.parent)
    assert [row["path"] for row in rows if row.get("id") == "no-partitions"] == [str(log_dir)]
    assert {
        Path(row["directory"]).parent for row in rows if "partition" in row and row["type"] == "result"
    } == {other}
