"""A command interrupted by Ctrl-C reports what was done, and if it changes files, also the commands to continue and to undo."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from kseg.change.run import pipeline
from kseg.change.run.options import ChangeOptions
from kseg.cli.doctor.examination import Examination
from kseg.cli.main import run
from kseg.jobs.events import Event, Row, Work
from kseg.jobs.guarded import guarded as real
from kseg.segment.partition.targets import PartitionTarget
from tests.cli.test_undo_runs import several
from tests.support.command_lines import Capfd, default_jobs
from tests.support.trees import tree_state


def interrupted(words: list[str], at: str) -> int:
    """The exit status of a command that is interrupted by Ctrl-C when it begins to plan this partition, while others are being written."""

    def guarded(
        work: Work[PartitionTarget, ChangeOptions], target: PartitionTarget, options: ChangeOptions
    ) -> Iterator[Event]:
        if target.path.endswith(at):
            raise KeyboardInterrupt
        return real(work, target, options)

    with pytest.MonkeyPatch.context() as patch, default_jobs(1):
        patch.setattr(pipeline, "guarded", guarded)
        return run(words)


def test_interrupted_change_prints_working_continue_and_undo_commands(data: Path, capfd: Capfd) -> None:
    several(data)
    before = tree_state(data)
    assert (
        interrupted(["recover", "--apply", "--index-interval-bytes", "4096", str(data)], "metro-zstd-0")
        == 130
    )
    out, err = capfd.readouterr()
    changed = sorted(path.parent.name for path in data.glob("*/.kseg"))
    assert changed == ["fares-0", "metro-none-0"]
    assert out.startswith("INTERRUPTED after 10 of 12 targets; of these: ")
    assert all(f"{name}: repaired in " in out for name in changed)
    assert out.endswith(f"next: kseg recover --apply --index-interval-bytes 4096 {data}\n")
    assert f"what was changed until then is undone by: kseg undo {data}\n" in err

    assert run(["undo", str(data)]) == 0
    assert tree_state(data) == before

    assert interrupted(["recover", "--apply", str(data)], "metro-zstd-0") == 130
    assert run(["recover", "--apply", str(data)]) == 0
    assert run(["undo", str(data)]) == 0
    assert tree_state(data) == before


def test_interrupted_copy_is_continued_by_the_same_command(data: Path, tmp_path: Path, capfd: Capfd) -> None:
    copy = tmp_path / "copy"
    words = ["compact", "--output", str(copy), "--cleanup-policy", "compact", str(data)]
    assert interrupted(words, "metro-zstd-0") == 130
    out, err = capfd.readouterr()
    assert out.endswith(f"next: kseg compact --output {copy} --cleanup-policy compact {data}\n")
    assert err.endswith(f"is undone by: kseg undo {copy}\n")
    assert run(words) == 0
    assert (copy / "metro-zstd-0").is_dir()


def test_interrupt_before_the_first_target_gives_no_verdict(data: Path, capfd: Capfd) -> None:
    assert interrupted(["recover", "--apply", str(data)], "__cluster_metadata-0") == 130
    assert capfd.readouterr().out.splitlines()[0] == "INTERRUPTED after 0 of 12 targets"


def test_interrupt_without_changes_does_not_advise_undoing_an_earlier_run(data: Path, capfd: Capfd) -> None:
    several(data)
    assert run(["recover", "--apply", "--quiet", str(data)]) == 0
    capfd.readouterr()
    words = ["compact", "--apply", "--cleanup-policy", "compact", str(data)]
    assert interrupted(words, "__cluster_metadata-0") == 130
    out, err = capfd.readouterr()
    assert out.endswith(f"next: kseg {' '.join(words)}\n") and "kseg undo" not in err


def test_interrupted_doctor_does_not_say_that_nothing_is_to_be_done(
    data: Path, capfd: Capfd, monkeypatch: pytest.MonkeyPatch
) -> None:
    several(data)

    def interrupt(_examination: Examination) -> Iterator[Row]:
        raise KeyboardInterrupt

    monkeypatch.setattr(Examination, "_costs", interrupt)
    assert run(["doctor", str(data)]) == 130
    out = capfd.readouterr().out
    assert out.startswith("INTERRUPTED after ")
    assert "what to do is not known: the examination was interrupted" in out and "nothing to do" not in out
