"""The fixtures themselves: archives are unpacked with their times, and a change of the input is detected."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.trees import copy_file, copy_tree, differences, tree_state, unchanged


def test_captures_are_unpacked_completely(
    capture_small: Path, legacy_small: Path, ancient_small: Path
) -> None:
    assert {p.name for p in capture_small.iterdir()} == {"before", "data", "expected"}
    assert (legacy_small / "data" / "0.7" / "1-written").is_dir()
    assert (ancient_small / "taps-0" / "00000000000000003013.kafka").stat().st_size == 3380
    # The times of the capture, not of the unpacking, which was in a later second.
    log = capture_small / "data" / "metro-none-0" / "00000000000000000000.log"
    assert log.stat().st_mtime < capture_small.parent.stat().st_mtime - 1


def _grow(path: Path) -> None:
    path.joinpath("a").write_bytes(b"12")


def _same_size(path: Path) -> None:
    times = path.joinpath("a").stat()
    path.joinpath("a").write_bytes(b"2")
    os.utime(path / "a", ns=(times.st_atime_ns, times.st_mtime_ns))


def _touch(path: Path) -> None:
    os.utime(path / "a", ns=(1, 1))


@pytest.mark.parametrize(
    ("change", "output"),
    [
        (_grow, "changed: a ("),
        (_same_size, "changed: a (content)"),
        (_touch, "changed: a (mtime_ns)"),
        (lambda path: path.joinpath("b").touch(), "appeared: b"),
        (lambda path: path.joinpath("a").unlink(), "vanished: a"),
    ],
)
def test_unchanged_detects_a_change(tmp_path: Path, change: Callable[[Path], None], output: str) -> None:
    tree = tmp_path / "tree"
    tree.mkdir()
    (tree / "a").write_bytes(b"1")
    with pytest.raises(AssertionError) as failure, unchanged(tree):
        change(tree)
    assert output in str(failure.value)


def test_copy_tree_equals_that_of_the_standard_library(capture_small: Path, tmp_path: Path) -> None:
    """For files of every mode and size, links, and what is not a regular file."""
    source = copy_tree(capture_small / "data", tmp_path / "source")
    (source / "empty").touch(0o604)
    os.utime(source / "empty", ns=(1, 2))
    (source / "large").write_bytes(os.urandom(300_000))
    (source / "large").chmod(0o4751)
    (source / "link").symlink_to("large")
    for follows in (True, False):
        usual = shutil.copytree(
            source, tmp_path / f"usual-{follows}", symlinks=not follows, copy_function=shutil.copy2
        )
        quick = shutil.copytree(
            source, tmp_path / f"quick-{follows}", symlinks=not follows, copy_function=copy_file
        )
        assert tree_state(usual) == tree_state(quick)
    os.mkfifo(source / "pipe")
    with pytest.raises(shutil.Error, match="named pipe"):
        shutil.copytree(source, tmp_path / "piped", copy_function=copy_file)


def test_reading_is_not_a_change(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"1")
    with unchanged(tmp_path):
        (tmp_path / "a").read_bytes()


def test_copied_tree_is_equal_and_writable(capture_small: Path, tmp_path: Path) -> None:
    source = capture_small / "data" / "__cluster_metadata-0"
    copy = copy_tree(source, tmp_path / "copy")
    assert not [line for line in differences(tree_state(source), tree_state(copy)) if "mode" not in line]
    for path in copy.iterdir():
        assert os.access(path, os.W_OK)
