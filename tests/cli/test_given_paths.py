"""Paths as people and shells give them: `data/*`, a directory with some of its files, one file by two spellings, a link from elsewhere."""

from __future__ import annotations

import json
import os
import re
import shutil
from pathlib import Path

import pytest

from kseg.cli.given_paths import without_globs
from kseg.cli.main import run
from tests.support.command_lines import Capfd
from tests.support.command_rows import rows_of
from tests.support.doctor_helpers import NOW


def pattern(folder: str | Path) -> list[str]:
    return sorted(str(path) for path in Path(folder).glob("*") if not path.name.startswith("."))


@pytest.mark.parametrize(
    "words",
    [
        ["verify", "--verbose"],
        ["verify", "--json"],
        ["doctor", *NOW],
        ["list"],
        ["lookup", "--latest"],
        ["transactions"],
        ["groups"],
        ["metadata"],
        ["recover", "--verbose"],
        ["retain", *NOW],
        ["compact"],
        ["undo", "--list"],
        ["dump"],
    ],
    ids=" ".join,
)
def test_pattern_gives_the_output_of_the_directory(words: list[str], data: Path, capfd: Capfd) -> None:
    with (data / "metro-none-0" / f"{72:020d}.log").open("r+b") as log:
        log.truncate(5000)
    status = run([*words, str(data)])
    expected = map(without_free_space, capfd.readouterr())
    assert (run([*words, *pattern(data)]), *map(without_free_space, capfd.readouterr())) == (
        status,
        *expected,
    )


def without_free_space(text: str) -> str:
    """It changes between two runs."""
    return re.sub(r"\S+ \w+ of \S+ \w+ free \(\d+ %\)", "free", text)


def test_repair_of_a_pattern_is_that_of_the_directory(data: Path) -> None:
    """Its checkpoints and its marker included, and so is the undo."""
    whole = data.parent / "whole"
    shutil.copytree(data, whole)
    for each in (data, whole):
        (each / "metro-none-0" / f"{72:020d}.log").open("r+b").truncate(5000)
    before = contents(data)
    assert run(["recover", "--apply", str(whole)]) == 0
    assert run(["recover", "--apply", *pattern(data)]) == 0
    assert contents(data) == contents(whole) != before
    assert run(["undo", *pattern(data)]) == 0
    assert contents(data) == before


def contents(directory: Path) -> dict[str, bytes]:
    """Of all files that are not kseg's."""
    return {
        str(path.relative_to(directory)): path.read_bytes()
        for path in sorted(directory.rglob("*"))
        if path.is_file() and "kseg" not in str(path.relative_to(directory))
    }


def test_only_complete_patterns_are_replaced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("orders-0", "orders-1", ".kseg"):
        (tmp_path / "a" / name).mkdir(parents=True)
        (tmp_path / "b" / name).mkdir(parents=True)
    for name in ("a", "b"):
        (tmp_path / name / "meta.properties").touch()
        (tmp_path / name / ".lock").touch()
    a, b = (pattern(tmp_path / name) for name in ("a", "b"))
    assert without_globs([*a, *b]) == (str(tmp_path / "a"), str(tmp_path / "b"))
    assert without_globs([*a, *b[:-1]]) == (str(tmp_path / "a"), *b[:-1])
    assert without_globs([*a[1:], "x"]) == (*a[1:], "x")
    # partitions alone are no pattern of a data directory
    assert without_globs([f"{tmp_path}/a/orders-0", f"{tmp_path}/a/orders-1"]) == (
        f"{tmp_path}/a/orders-0",
        f"{tmp_path}/a/orders-1",
    )
    monkeypatch.chdir(tmp_path / "a")
    assert without_globs(["meta.properties", "orders-0", "orders-1"]) == (".",)
    assert without_globs(["./meta.properties", "./orders-0", "./orders-1"]) == (".",)
    assert without_globs(["gone/meta.properties", "gone/orders-0"]) == (
        "gone/meta.properties",
        "gone/orders-0",
    )


FIRST = f"{0:020d}.log"


@pytest.mark.parametrize(
    "words", [["verify"], ["recover"], ["list"], ["lookup", "--latest"]], ids=lambda words: words[0]
)
def test_file_counts_once_whatever_leads_to_it(
    words: list[str], data: Path, monkeypatch: pytest.MonkeyPatch, capfd: Capfd
) -> None:
    """Its errors and records were counted twice, and an export had them twice."""
    (data / "metro-none-0" / FIRST).open("r+b").truncate(5000)
    monkeypatch.chdir(data)

    def rows(*paths: str) -> object:
        status = run([*words, "--json", *paths])
        return status, [json.loads(line) for line in capfd.readouterr().out.splitlines()]

    file = os.path.join("metro-none-0", FIRST)
    alone, whole = rows(file), rows("metro-none-0")
    assert rows(file, os.path.join("..", "data", file), str(data / file)) == alone
    assert rows("metro-none-0", file, str(data / file)) == whole
    assert rows("metro-none-0", os.path.join("..", "data", "metro-none-0"), file) == whole


def test_file_that_is_no_part_of_the_work_on_its_directory_stays(data: Path, capfd: Capfd) -> None:
    """A deleted file, and one without a meaning, are verified only where they are named."""
    partition = data / "stations-0"
    deleted = partition / f"{FIRST}.deleted"
    verified = rows_of(capfd, "verify", partition, deleted, status=0)
    assert [row["path"] for row in verified if row["type"] == "verified"] == [str(partition), str(deleted)]


def test_link_from_elsewhere_stands_for_the_partition_in_its_data_directory(
    data: Path, tmp_path: Path, capfd: Capfd
) -> None:
    """The checkpoints stayed beyond the end of the log, and the clean-shutdown marker untrue."""
    partition = data / "metro-none-0"
    (partition / f"{144:020d}.log").open("r+b").truncate(900)
    whole, link = tmp_path / "whole", tmp_path / "metro-none-0"
    shutil.copytree(data, whole)
    before = contents(data)
    link.symlink_to(partition)
    assert run(["recover", "--apply", str(whole / "metro-none-0")]) == 0
    assert run(["recover", "--apply", str(link)]) == 4
    assert contents(data) == before
    assert run(["recover", "--apply", "--follow-links", str(link)]) == 0
    assert contents(data) == contents(whole) != before
    assert run(["verify", str(data)]) == 0
    assert run(["undo", str(data)]) == 0
    assert contents(data) == before
    capfd.readouterr()
    # a link of another name is of no entry of these checkpoints
    (tmp_path / "other-0").symlink_to(partition)
    assert run(["recover", "--apply", "--follow-links", str(tmp_path / "other-0")]) == 0
    assert contents(data)["recovery-point-offset-checkpoint"] == before["recovery-point-offset-checkpoint"]


def test_link_from_elsewhere_has_its_topics_configuration(data: Path, tmp_path: Path, capfd: Capfd) -> None:
    link = tmp_path / "stations-0"
    link.symlink_to(data / "stations-0")
    assert run(["retain", "--retention-ms", "1", *NOW, str(link)]) == 0
    assert "cleanup.policy compact (topic config)" in capfd.readouterr().out


@pytest.mark.parametrize("command", ["verify", "list", "dump", "recover", "doctor"])
def test_archive_of_another_kind_and_unmatched_pattern_are_explained(
    tmp_path: Path, capfd: Capfd, command: str
) -> None:
    """The archive was only said to be none of Kafka's files, with exit status 0."""
    archive = tmp_path / "backup.zip"
    archive.write_bytes(b"PK\x03\x04")
    assert run([command, str(archive)]) == 3
    assert (
        f"cannot read {archive}: unpack it first (archives that need not be: .tar, " in capfd.readouterr().err
    )
    assert run([command, f"{tmp_path}/*-1"]) == 3
    assert "*-1: No such file or directory (the shell expands a pattern only if " in capfd.readouterr().err
