"""The inputs of a planner are the regular files of a directory, and a link never replaces a missing file."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from kseg.change.plan.inputs import inputs_of
from kseg.cli.main import run
from kseg.segment.errors import Refused
from tests.support.trees import unchanged

FIRST = f"{0:020}"


def test_plan_inputs_are_the_regular_files_of_the_directory(tmp_path: Path) -> None:
    (tmp_path / f"{FIRST}.log").write_bytes(b"12")
    (tmp_path / "below").mkdir()
    (tmp_path / f"{9:020}.log").mkdir()
    # a broker ignores it too
    os.symlink("nowhere", tmp_path / f"{5:020}.log")
    # not one of Kafka's names
    os.symlink(f"{FIRST}.log", tmp_path / "latest")
    assert [(file.name, file.size_bytes) for file in inputs_of(str(tmp_path))] == [(f"{FIRST}.log", 2)]


@pytest.mark.parametrize(
    "name", [f"{FIRST}.log", f"{FIRST}.index", f"{FIRST}.log.swap", "partition.metadata"]
)
def test_link_to_a_file_is_refused(tmp_path: Path, name: str) -> None:
    (tmp_path / "real").write_bytes(b"12")
    os.symlink("real", tmp_path / name)
    with pytest.raises(Refused, match="is a link"):
        inputs_of(str(tmp_path))


@pytest.mark.parametrize(
    "words",
    [
        ["recover", "--rebuild"],
        ["recover", "--policy", "kafka"],
        ["retain", "--cleanup-policy", "delete", "--retention-ms", "1"],
    ],
)
def test_linked_log_is_not_planned_as_lost(
    capture_small: Path, tmp_path: Path, words: list[str], capfd: pytest.CaptureFixture[str]
) -> None:
    partition = tmp_path / "metro-none-0"
    shutil.copytree(capture_small / "data" / partition.name, partition)
    (partition / f"{72:020}.log").rename(tmp_path / "elsewhere.log")
    os.symlink("../elsewhere.log", partition / f"{72:020}.log")
    with unchanged(tmp_path):
        assert run([*words, "--apply", str(partition)]) == 4
    assert "is a link" in capfd.readouterr().err
