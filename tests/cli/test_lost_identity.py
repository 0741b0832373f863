"""A data directory without meta.properties: files of newer brokers prove that there must have been one, and verify and recover agree on
that."""

from __future__ import annotations

import errno
import os
import shutil
from pathlib import Path
from typing import Any

import pytest

from kseg.cli.main import run
from kseg.segment.sidecar.metadata_files import decode_meta_properties
from tests.support.command_lines import Capfd
from tests.support.command_rows import rows_of

KIND = "meta-properties-missing"
POINTS = "recovery-point-offset-checkpoint"
META = "meta.properties"
_PARTITIONS = shutil.ignore_patterns("*-[0-9]*")


@pytest.fixture
def bare(capture_small: Path, tmp_path: Path) -> Path:
    """A log in a data directory, without any hint as to which broker wrote it."""
    data = tmp_path / "disks" / "a"
    log = data / "metro-none-0" / f"{0:020}.log"
    log.parent.mkdir(parents=True)
    shutil.copy2(capture_small / "data" / "metro-none-0" / log.name, log)
    return data


def messages(capfd: Capfd, data: Path) -> list[str]:
    found = [
        [row["message"] for row in rows_of(capfd, command, data) if row.get("id") == KIND]
        for command in ("verify", "recover")
    ]
    assert found[0] == found[1], "verify and recover agree"
    return found[0]


def test_folder_of_copied_logs_needs_no_meta_properties(bare: Path, capfd: Capfd) -> None:
    assert messages(capfd, bare) == []


@pytest.mark.evidence("meta-properties")
def test_batches_of_magic_2_beside_a_checkpoint_prove_a_lost_meta_properties(
    bare: Path, capfd: Capfd
) -> None:
    (bare / POINTS).write_text("0\n1\nmetro-none 0 160\n")
    (message,) = messages(capfd, bare)
    assert "metro-none-0 has batches of magic 2" in message


@pytest.mark.evidence("meta-properties")
@pytest.mark.parametrize("name", ["partition.metadata", "leader-epoch-checkpoint"])
def test_files_of_newer_partitions_prove_a_lost_meta_properties(
    bare: Path, capture_small: Path, name: str, capfd: Capfd
) -> None:
    shutil.copy2(capture_small / "data" / "metro-none-0" / name, bare / "metro-none-0")
    (message,) = messages(capfd, bare)
    assert f"metro-none-0 has a {name}" in message


@pytest.mark.evidence("meta-properties")
def test_metadata_log_proves_a_lost_meta_properties(bare: Path, capture_small: Path, capfd: Capfd) -> None:
    name = "__cluster_metadata-0"
    (bare / name).mkdir()
    log = f"{0:020}.log"
    shutil.copy2(capture_small / "data" / name / log, bare / name / log)
    (message,) = messages(capfd, bare)
    assert "metadata log" in message


@pytest.mark.evidence("meta-properties")
def test_neighbouring_data_directory_proves_a_lost_meta_properties(
    bare: Path, capture_small: Path, capfd: Capfd
) -> None:
    other = bare.parent / "b"
    other.mkdir()
    shutil.copy2(capture_small / "data" / META, other / META)
    assert messages(capfd, bare) == [], "a folder of copied logs beside it"
    (bare / POINTS).write_text("0\n0\n")
    (message,) = messages(capfd, bare)
    assert f"{other} next to it has one" in message


def test_logs_of_old_brokers_prove_no_lost_meta_properties(bare: Path, capfd: Capfd) -> None:
    """0.8 wrote batches of magic 0 and no meta.properties."""
    (bare / POINTS).write_text("0\n0\n")
    log = bare / "metro-none-0" / f"{0:020}.log"
    data = bytearray(log.read_bytes())
    data[16] = 0
    log.write_bytes(data)
    assert messages(capfd, bare) == []


@pytest.fixture
def zookeeper_dirs(bare: Path, capture_small: Path) -> tuple[Path, Path]:
    """Two data directories of 2.1, of which the first has lost its meta.properties."""
    shutil.copy2(capture_small / "data" / "metro-none-0" / "leader-epoch-checkpoint", bare / "metro-none-0")
    other = bare.parent / "b"
    shutil.copytree(bare / "metro-none-0", other / "metro-none-1")
    (other / META).write_text("version=0\nbroker.id=7\n")
    return bare, other


def written(data: Path) -> set[str]:
    return {line for line in (data / META).read_text().splitlines() if not line.startswith("#")}


def test_lost_meta_properties_of_a_zookeeper_broker_needs_only_its_id(
    zookeeper_dirs: tuple[Path, Path], capfd: Capfd
) -> None:
    """Observed: 2.1.1 and 2.8.2 end if the file has version 1."""
    lost, _ = zookeeper_dirs
    (row,) = [row for row in rows_of(capfd, "recover", lost) if row.get("options_needed")]
    assert row["options_needed"] == ["--node-id"]
    steps = [row["why"] for row in rows_of(capfd, "doctor", lost) if row["type"] == "step"]
    assert any(
        why.endswith("A broker with ZooKeeper (3.9 or older) starts without it, and writes it.")
        for why in steps
    )
    assert run(["recover", "--apply", "--node-id", "7", str(lost)]) == 0
    assert written(lost) == {"version=0", "broker.id=7"}


def test_other_directory_of_a_zookeeper_broker_gives_the_version(zookeeper_dirs: tuple[Path, Path]) -> None:
    assert run(["recover", "--apply", *map(str, zookeeper_dirs)]) == 0
    assert written(zookeeper_dirs[0]) == {"version=0", "broker.id=7"}


@pytest.mark.parametrize(
    ("directory_id", "is_kept"), [("", True), ("directory.id=KdMgDmNLKTX_ayOHHD3_qw", False)]
)
def test_directory_id_of_a_broker_that_may_have_migrated_is_asked_for(
    zookeeper_dirs: tuple[Path, Path], capture_small: Path, directory_id: str, is_kept: bool, capfd: Capfd
) -> None:
    """A node that was migrated from ZooKeeper keeps version 0 and has directory ids, which no file here contains."""
    lost, other = zookeeper_dirs
    for partition in (lost / "metro-none-0", other / "metro-none-1"):
        shutil.copy2(capture_small / "data" / "metro-none-0" / "partition.metadata", partition)
    (other / META).write_text(f"version=0\nbroker.id=7\ncluster.id=c\n{directory_id}\n")
    rows = rows_of(capfd, "recover", lost, other)
    needed = [row["options_needed"] for row in rows if "options_needed" in row]
    assert (["--directory-id"] not in needed) is is_kept


def test_recover_without_the_identity_values_exits_with_1(
    capture_small: Path, tmp_path: Path, capfd: Capfd
) -> None:
    """The status used to be 0, and the verdict SOUND, although a broker would not have started."""
    bare = tmp_path / "data"
    shutil.copytree(capture_small / "data", bare)
    (bare / META).unlink()
    for words in ((), ("--apply",)):
        assert run(["recover", *words, str(bare)]) == 1
        verdict, *_, following = capfd.readouterr().out.splitlines()
        assert verdict.startswith("NOT SOUND: ")
        assert following.endswith(
            f"kseg recover --apply --node-id N --cluster-id ID --directory-id UUID {bare}"
        )


@pytest.fixture
def unfinished(capture_small: Path, tmp_path: Path) -> Path:
    """A data directory whose meta.properties was written to a temporary file and not renamed."""
    data = tmp_path / "data"
    shutil.copytree(capture_small / "data", data)
    return (data / META).rename(data / f"{META}.tmp")


@pytest.mark.parametrize("has_old_file", [False, True])
def test_complete_temporary_meta_properties_restores_the_identity(
    unfinished: Path, has_old_file: bool
) -> None:
    """recover used to remove it and to ask for the values."""
    before = {line for line in unfinished.read_text().splitlines() if not line.startswith("#")}
    if has_old_file:
        (unfinished.parent / META).write_text("version=1\n")
    assert run(["recover", "--apply", str(unfinished.parent)]) == 0
    assert written(unfinished.parent) == before
    assert not unfinished.exists()


def test_truncated_temporary_meta_properties_is_not_used(unfinished: Path, capfd: Capfd) -> None:
    unfinished.write_bytes(unfinished.read_bytes()[:-4])
    assert decode_meta_properties(unfinished.read_bytes()).cluster_id == "Mz9XvQe1R0mU7bTq2Lk"
    (row,) = [row for row in rows_of(capfd, "recover", unfinished.parent) if row.get("options_needed")]
    assert row["options_needed"] == ["--node-id", "--cluster-id", "--directory-id"]


def test_two_lost_directory_ids_get_separate_working_commands(
    capture_small: Path, tmp_path: Path, capfd: Capfd
) -> None:
    """A run can set only one id, so the run for each directory also names the directory that contains node and cluster id. Without it, the
    printed command used to ask for these as well."""
    whole, *lost = (
        shutil.copytree(capture_small / "data", tmp_path / name, ignore=ignored)
        for name, ignored in (("whole", None), ("one", _PARTITIONS), ("two", _PARTITIONS))
    )
    for data in lost:
        (data / META).write_text("version=1\n")
    run(["recover", *map(str, (whole, *lost))])
    following = [line for line in capfd.readouterr().out.splitlines() if line.startswith("next, with")]
    assert [line.partition(": ")[2] for line in following] == [
        f"kseg recover --apply --directory-id UUID {data} {whole}" for data in lost
    ]
    for number, line in enumerate(following):
        command = line.partition(": ")[2].replace("UUID", f"X{number}2QS2nOGAEJKAio_iZM7A")
        run(command.split()[1:])
        assert "next, with" not in capfd.readouterr().out
        assert written(lost[number]) >= {"node.id=1", f"directory.id=X{number}2QS2nOGAEJKAio_iZM7A"}


def test_meta_properties_behind_a_failing_disk_is_not_written_anew(
    data: Path, monkeypatch: pytest.MonkeyPatch, capfd: Capfd
) -> None:
    """An existing file was taken for missing when its status could not be read once (EIO, a stale mount): the plan was to write
    another one, with a new directory id."""
    lstat = os.lstat

    def failing(path: Any, *, dir_fd: int | None = None) -> os.stat_result:
        if str(path) == str(data / META):
            raise OSError(errno.EIO, os.strerror(errno.EIO), str(path))
        return lstat(path, dir_fd=dir_fd)

    with monkeypatch.context() as patched:
        patched.setattr(os, "lstat", failing)
        rows = rows_of(capfd, "recover", data)
    assert not [row for row in rows if row.get("id") == KIND or row.get("file") == META]
