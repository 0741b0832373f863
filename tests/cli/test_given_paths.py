"""`kseg COMMAND data/*`: a shell's list of everything in a data directory stands for the data directory."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from kseg.cli.given_paths import without_globs
from kseg.cli.main import run
from tests.support.doctor_helpers import NOW


@pytest.fixture
def data(capture_small: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(capture_small / "data", tmp_path / "data"))


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
def test_pattern_gives_the_output_of_the_directory(
    words: list[str], data: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    with (data / "metro-none-0" / f"{72:020d}.log").open("r+b") as log:
        log.truncate(5000)
    status = run([*words, str(data)])
    expected = capfd.readouterr()
    assert (run([*words, *pattern(data)]), *capfd.readouterr()) == (status, *expected)


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
