"""A whole run of `kseg compact --apply` that is killed anywhere: again it reaches the planned end, undone the start."""

from __future__ import annotations

import itertools
import os
import shutil
import signal
from pathlib import Path
from typing import Any

import pytest

from kseg.cli.main import run
from kseg.segment.apply.disk import Disk
from tests.compaction.compacting import Topic
from tests.segment.disks import CHANGES, Held, QuickDisk, assert_no_byte_is_lost, held

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


def state(log_dir: Path) -> dict[str, dict[str, Held]]:
    directories = [log_dir, *(child for child in sorted(log_dir.iterdir()) if child.is_dir())]
    return {directory.name: held(directory) for directory in directories}


def contents(found: dict[str, dict[str, Held]]) -> dict[str, dict[str, bytes]]:
    return {name: {file: each.content for file, each in files.items()} for name, files in found.items()}


def compact(log_dir: Path) -> int:
    return run(["compact", "--apply", "--jobs", "1", "--quiet", "--now", NOW, str(log_dir)])


def killed_at(number: int, log_dir: Path) -> bool:
    """Run it in a child that dies at its n-th change; whether it did."""
    child = os.fork()
    if not child:
        left = itertools.count(number, -1)

        def deadly(change: Any) -> Any:
            def method(self: Disk, *arguments: Any) -> Any:
                if next(left) <= 0:
                    os.kill(os.getpid(), signal.SIGKILL)
                return change(self, *arguments)

            return method

        for name in (*CHANGES, "give_name"):
            setattr(Disk, name, deadly(getattr(Disk, name)))
        for name in ("sync", "sync_directory", "hurry"):
            setattr(Disk, name, getattr(QuickDisk, name))
        try:
            compact(log_dir)
        finally:
            os._exit(0)
    _, status = os.waitpid(child, 0)
    return os.WIFSIGNALED(status)


def undo_all(log_dir: Path) -> None:
    journals = [*log_dir.glob("kseg-journal-*.jsonl"), *log_dir.glob("*/.kseg/*/journal.jsonl")]
    for journal in sorted(journals, key=lambda path: path.stat().st_mtime_ns, reverse=True):
        if journal.exists():  # the journal of a data directory undoes those of its run
            assert run(["undo", "--quiet", str(journal)]) == 0


def test_a_killed_run_goes_on_and_goes_back(original: Path, tmp_path: Path) -> None:
    found = state(original)
    data = tmp_path / "data"
    shutil.copytree(original, data)
    assert compact(data) == 0
    planned = contents(state(data))
    assert planned != contents(found)
    assert run(["verify", "--quiet", str(data)]) == 0

    for round_number in itertools.count():
        shutil.rmtree(data)
        shutil.copytree(original, data)
        was_killed = killed_at(round_number, data)
        for name, files in found.items():
            assert_no_byte_is_lost(files, data / name if name != data.name else data)
        assert compact(data) == 0
        assert contents(state(data)) == planned
        undo_all(data)
        assert state(data) == found
        if not was_killed:
            break
    assert round_number >= 60
