"""Write the log of a coordinator again without the records on which its load fails, as the steps of `doctor` do, but in this process."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from kseg.cli.coordinator_loads import failing_offsets
from kseg.cli.main import run
from kseg.segment.partition.targets import PartitionTarget


def rewrite_without_failing(directory: Path, root: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """directory: of a partition. root: for files."""
    made, lines = root / "whole" / directory.name, root / "lines.jsonl"
    made.parent.mkdir(exist_ok=True)
    capfd.readouterr()
    run(["dump", "--json", "--raw", "--print-data-log", str(directory)])
    lines.write_text(capfd.readouterr().out)
    options = [
        f"--leave-out={offset}-{offset}" for offset in failing_offsets(PartitionTarget(str(directory)))
    ]
    assert options and run(["append", "--apply", "--from", str(lines), *options, str(made)]) == 0
    shutil.rmtree(made / ".kseg")
    shutil.copy(directory / "partition.metadata", made)
    shutil.rmtree(directory)
    made.rename(directory)
