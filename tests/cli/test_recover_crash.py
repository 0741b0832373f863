"""A complete run of `kseg recover --apply`, killed at any point: repeating it produces the planned result, undoing it the original."""

from __future__ import annotations

from pathlib import Path

import pytest

from kseg.cli.main import run
from tests.support.change_cases import RECOVER
from tests.support.killed_runs import goes_on_and_goes_back

pytestmark = pytest.mark.slow


def recover(log_dir: Path) -> int:
    return run([*RECOVER.words, "--apply", "--jobs", "1", "--quiet", str(log_dir)])


def test_killed_recover_is_completed_by_a_repeat_and_reverted_by_undo(
    capture_small: Path, tmp_path: Path
) -> None:
    original = tmp_path / "original" / "data"
    RECOVER.lay(capture_small, original)
    assert goes_on_and_goes_back(recover, original, tmp_path / "data") >= 60
