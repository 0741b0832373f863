"""A whole run of `kseg compact --apply` that is killed anywhere: again it reaches the planned end, undone the start."""

from __future__ import annotations

from pathlib import Path

import pytest

from kseg.cli.main import run
from tests.cli.killed_runs import goes_on_and_goes_back
from tests.compaction.compacting import Topic

NOW = "1800000000000"


@pytest.fixture
def original(tmp_path: Path) -> Path:
    """A data directory with two partitions to compact, and a checkpoint of the cleaner."""
    made = tmp_path / "original" / "data"
    for name in ("accounts-0", "stock-3"):
        topic = Topic(made, name=name)
        for number in range(3):
            topic.send(("a", number), ("b", number), (number, "x"), producer=number)
            topic.roll()
        topic.close()
    (made / "meta.properties").write_text("version=1\nnode.id=1\ncluster.id=AAAAAAAAAAAAAAAAAAAAAA\n")
    (made / "cleaner-offset-checkpoint").write_text("0\n1\nstock 3 2\n")
    (made / ".lock").touch()  # as every broker leaves it; one that a killed run made would stay, too
    return made


def compact(log_dir: Path) -> int:
    return run(["compact", "--apply", "--jobs", "1", "--quiet", "--now", NOW, str(log_dir)])


def test_a_killed_run_goes_on_and_goes_back(original: Path, tmp_path: Path) -> None:
    assert goes_on_and_goes_back(compact, original, tmp_path / "data") >= 60
