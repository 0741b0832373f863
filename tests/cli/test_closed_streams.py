"""Commands whose standard streams are closed or cannot be written, as in a script with `>&-` or on a full disk."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.test_undo_runs import several
from tests.support.forked_programs import run_kseg
from tests.support.paths import ROOT
from tests.support.trees import tree_state

KSEG = (sys.executable, "-m", "kseg")
COMPACT = (
    "compact",
    "--apply",
    "--cleanup-policy",
    "compact",
    "--include-active",
    "--damaged",
    "skip",
    "--now",
    "2026-11-27T00:00:00Z",
)


@pytest.fixture
def data(capture_small: Path, tmp_path: Path) -> Path:
    data = shutil.copytree(capture_small / "data", tmp_path / "data")
    several(data)
    return data


@pytest.mark.slow
@pytest.mark.parametrize("closed", [(0,), (1,), (2,), (0, 1, 2)], ids=str)
def test_opened_files_do_not_reuse_the_descriptor_of_a_closed_stream(
    data: Path, closed: tuple[int, ...]
) -> None:
    """The output used to be written to the file that was opened next."""

    def close() -> None:
        for descriptor in closed:
            os.close(descriptor)

    before = tree_state(data)
    status = 4 if 1 in closed else 0
    for words in ("recover --apply --verbose", "undo"):
        done = subprocess.run(
            [*KSEG, *words.split(), str(data)],
            preexec_fn=close,
            check=False,
            cwd=ROOT,
            stderr=subprocess.PIPE,
        )
        assert done.returncode == status
        assert (b"the standard output: Bad file descriptor" in done.stderr) == (
            1 in closed and 2 not in closed
        )
    assert tree_state(data) == before


@pytest.mark.slow
@pytest.mark.parametrize("jobs", ["1", "2"])
@pytest.mark.parametrize("shown", [(), ("--json",), ("--verbose",)], ids=["text", "json", "verbose"])
def test_change_completes_when_its_output_pipe_is_closed(
    data: Path, tmp_path: Path, shown: tuple[str, ...], jobs: str
) -> None:
    """As with `| head -1`. The change used to end in the middle, with exit status 0 and without a message."""
    before = tree_state(data)
    usual = Path(shutil.copytree(data, tmp_path / "usual"))
    expected = run_kseg(*COMPACT, usual).returncode
    status, err = _unread([*COMPACT, *shown, "--jobs", jobs, str(data)])
    assert status == expected
    assert err.splitlines()[-1].endswith(f"; compact continues, and is undone by: kseg undo {data}")
    assert _contents(data) == _contents(usual)
    assert _unread(["undo", *shown, str(data)]) == (
        0,
        "kseg: the output is no longer read; undo continues\n",
    )
    assert tree_state(data) == before


@pytest.mark.slow
@pytest.mark.parametrize("shown", [(), ("--json",), ("--verbose",)], ids=["text", "json", "verbose"])
def test_change_completes_when_its_output_cannot_be_written(
    data: Path, tmp_path: Path, shown: tuple[str, ...]
) -> None:
    """As when the output goes to a full disk. With --json and --verbose, the change used to end in the middle."""
    before = tree_state(data)
    usual = Path(shutil.copytree(data, tmp_path / "usual"))
    run_kseg(*COMPACT, usual)
    cannot = "cannot write the standard output: No space left on device"
    status, err = _to_a_full_disk([*COMPACT, *shown, str(data)])
    assert status == 4
    assert err.splitlines()[-1] == f"kseg: {cannot}; compact continues, and is undone by: kseg undo {data}"
    assert _contents(data) == _contents(usual) != {}
    assert _to_a_full_disk(["undo", *shown, str(data)]) == (4, f"kseg: {cannot}; undo continues\n")
    assert tree_state(data) == before


def _unread(words: list[str]) -> tuple[int, str]:
    reads, writes = os.pipe()
    os.close(reads)
    done = subprocess.run(
        [*KSEG, *words], stdout=writes, stderr=subprocess.PIPE, check=False, cwd=ROOT, text=True
    )
    os.close(writes)
    return done.returncode, done.stderr


def _contents(data: Path) -> dict[str, str]:
    return {name: entry.content for name, entry in tree_state(data).items() if "kseg" not in name}


def _to_a_full_disk(words: list[str]) -> tuple[int, str]:
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            [*KSEG, *words], stdout=full, stderr=subprocess.PIPE, check=False, cwd=ROOT, text=True
        )
    return done.returncode, done.stderr
