"""overlayfs with layers on several file systems: a file of the lower layer changes its device and inode when it is first written to."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from fixtures.diseases import torn_tail
from kseg.cli.main import run
from tests.support.change_cases import CHANGINGS, COMPACT, RECOVER
from tests.support.mounts import done_or_skipped, mounted
from tests.support.trees import tree_state

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="mounting a file system needs root")


@pytest.mark.parametrize("words", [RECOVER.words, (*RECOVER.words, "--policy", "kafka"), COMPACT.words])
def test_change_on_overlayfs_is_undone(words: tuple[str, ...], capture_small: Path, tmp_path: Path) -> None:
    image = tmp_path / "image"
    image.touch()
    os.truncate(image, 16 << 20)
    done_or_skipped(["mkfs.ext4", "-q", str(image)])
    with (
        mounted(tmp_path / "lower", "-o", "loop", str(image)) as lower,
        mounted(tmp_path / "other", "-t", "tmpfs", "tmpfs") as other,
    ):
        CHANGINGS[words[0]].lay(capture_small, lower / "data")
        if words[0] == "recover":
            (lower / "data" / ".kafka_cleanshutdown").unlink()
            # will be truncated in place
            torn_tail(max((lower / "data" / "fares-0").glob("*.log")))
        (other / "upper").mkdir()
        (other / "work").mkdir()
        layers = f"lowerdir={lower},upperdir={other}/upper,workdir={other}/work,xino=off"
        with mounted(tmp_path / "whole", "-t", "overlay", "overlay", "-o", layers) as whole:
            data = whole / "data"
            before = tree_state(data)
            assert run([*words, "--apply", "--quiet", "--jobs", "1", str(data)]) in (0, 1)
            assert tree_state(data) != before
            assert run(["undo", "--quiet", str(data)]) == 0
            assert tree_state(data) == before
