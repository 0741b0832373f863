"""An append to a new partition, killed at any point: `undo --finish` keeps what was written, and the next append continues or names the
command that comes first."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from kseg.cli.main import run
from tests.support.command_lines import Capfd
from tests.support.failing_disks import rounds
from tests.support.killed_runs import killed_at, state, undo_all

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("finishes", [True, False])
def test_next_append_works_after_a_killed_one(
    finishes: bool, capture_small: Path, tmp_path: Path, capfd: Capfd
) -> None:
    lines = tmp_path / "lines"
    lines.write_text("".join(json.dumps({"value": f"value {number}"}) + "\n" for number in range(4)))

    def append(data: Path) -> int:
        return run(["append", "--apply", "--quiet", "--from", str(lines), str(data / "fresh-0")])

    original, data = tmp_path / "original" / "data", tmp_path / "data"
    shutil.copytree(capture_small / "data", original)
    (original / ".lock").touch()
    found = state(original)
    for number in rounds(f"append {finishes}"):
        shutil.copytree(original, data)
        was_killed = killed_at(number, append, data)
        journals = list(data.glob("kseg-journal-*.jsonl"))
        if finishes and journals:
            assert run(["undo", "--finish", "--quiet", str(data)]) == 0
        capfd.readouterr()
        if append(data) != 0:
            told = "kseg recover" if finishes else "was interrupted"
            assert was_killed and told in capfd.readouterr().err
        undo_all(data)
        assert state(data) == found
        shutil.rmtree(data)
        if not was_killed:
            break
    assert number > 15
