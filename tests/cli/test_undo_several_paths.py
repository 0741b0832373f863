"""A run over several data directories is undone as a whole, by the paths that were given to it."""

from __future__ import annotations

import errno
import os
import shlex
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from kseg.change.apply.lock import locked
from kseg.cli.main import run
from tests.cli.test_undo_runs import several, torn_over_two, without_journals
from tests.support.command_lines import Capfd, Say
from tests.support.failing_renames import failing_renames
from tests.support.lock_holders import child
from tests.support.trees import tree_state


@pytest.fixture
def data(capture_small: Path, tmp_path: Path) -> Path:
    return shutil.copytree(capture_small / "data", tmp_path / "kafka" / "data")


@pytest.fixture
def both(data: Path, say: Say) -> tuple[Path, Path]:
    """Two data directories of one node, changed by one run."""
    other = torn_over_two(data)
    return data, other


def given(both: tuple[Path, Path], form: str) -> list[Path]:
    return {"parent": [both[0].parent], "two": [*both], "reversed": [*both[::-1]]}[form]


FORMS = pytest.mark.parametrize("form", ["parent", "two", "reversed"])


@pytest.mark.slow
@FORMS
@pytest.mark.parametrize("changed", ["metro-none-0", "metro-zstd-0", "gates-append-0"])
def test_undo_changes_nothing_if_one_directory_cannot_be_undone(
    both: tuple[Path, Path], say: Say, form: str, changed: str
) -> None:
    before = tree_state(both[0].parent)
    say("recover", "--apply", *both)
    (log,) = [max(path.glob("*.log")) for path in both[0].parent.glob(f"*/{changed}")]
    content, status = log.read_bytes(), log.stat()
    log.write_bytes(content + b"appended since")
    repaired = tree_state(both[0].parent)
    code, rows = say("undo", *given(both, form))
    assert code == 4 and tree_state(both[0].parent) == repaired
    (error,) = [row for row in rows if row["type"] == "error"]
    assert "nothing of this run" in error["message"]
    log.write_bytes(content)
    os.utime(log, ns=(status.st_atime_ns, status.st_mtime_ns))
    assert say("undo", *given(both, form))[0] == 0
    assert tree_state(both[0].parent) == before


@FORMS
@pytest.mark.parametrize("at", [0, 1])
def test_undo_changes_nothing_if_a_broker_runs_on_one_directory(
    both: tuple[Path, Path], say: Say, form: str, at: int
) -> None:
    say("recover", "--apply", *both)
    repaired = tree_state(both[0].parent)

    def hold(tell: Callable[[str], None]) -> None:
        with locked([str(both[at])]):
            tell("in")

    with child(hold) as holder:
        assert holder.output() == "in"
        assert say("undo", *given(both, form))[0] == 4
    (both[at] / ".lock").unlink(missing_ok=True)
    assert without_journals(tree_state(both[0].parent)).keys() == without_journals(repaired).keys()
    assert say("undo", *given(both, form))[0] == 0


@pytest.mark.slow
@FORMS
@pytest.mark.parametrize("failing", [0, 1])
@pytest.mark.parametrize("is_second_run", [False, True])
def test_undo_continues_the_same_run_after_a_disk_failure(
    both: tuple[Path, Path],
    say: Say,
    monkeypatch: pytest.MonkeyPatch,
    form: str,
    failing: int,
    is_second_run: bool,
) -> None:
    """The output says what was restored and what was not, and the same command continues with this run and no other."""
    states = [tree_state(both[0].parent)]
    say("recover", "--apply", *both)
    if is_second_run:
        states.append(tree_state(both[0].parent))
        limits = ("--retention-ms", "1", "--cleanup-policy", "delete")
        say("retain", "--apply", *limits, "--topic", "metro-*", "--topic", "gates-*", *both)
    place = f"{both[failing]}/"
    with failing_renames(monkeypatch, errno.EIO, lambda path, _: path.startswith(place)):
        code, rows = say("undo", *given(both, form))
    assert code == 4
    done = {row["directory"] for row in rows if row["type"] == "result"}
    (error,) = [row for row in rows if row["type"] == "error"]
    assert "continues" in error["message"]
    for directory in done:
        assert directory in error["message"].split("not taken back:")[0]
    code, rows = say("undo", *given(both, form))
    assert code == 0, rows
    assert without_journals(tree_state(both[0].parent)) == without_journals(states[-1])


def test_undo_of_two_paths_means_the_newest_run(both: tuple[Path, Path], say: Say) -> None:
    data, other = both
    before = tree_state(other)
    say("recover", "--apply", data)
    repaired = tree_state(data)
    say("recover", "--apply", other)
    assert say("undo", data, other)[0] == 0
    assert tree_state(other) == before and tree_state(data) == repaired
    assert say("undo", data, other)[0] == 0, "then the one before"


def test_run_after_an_unfinished_one_is_undone_first(
    data: Path, say: Say, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The later run found the files as the half-done run had left them."""
    several(data)
    before = tree_state(data)
    with failing_renames(monkeypatch, errno.EPERM, lambda _, new: new.startswith(f"{data}/fares-0/0")):
        assert say("recover", "--apply", data)[0] == 5
    limits = ("--retention-ms", "1", "--cleanup-policy", "delete", "--topic", "metro-*")
    assert say("retain", "--apply", *limits, data)[0] == 0
    assert [say("undo", data)[0] for _ in range(2)] == [0, 0]
    assert without_journals(tree_state(data)) == without_journals(before)


def test_command_that_the_list_of_runs_names_undoes_the_whole_run(
    both: tuple[Path, Path], say: Say, capfd: Capfd
) -> None:
    before = tree_state(both[0].parent)
    assert say("recover", "--apply", *both)[0] == 0
    (listed, _) = say("undo", "--list", both[0].parent)[1]
    assert [Path(path).parent for path in listed["undone_by"]] == sorted(both)
    assert run(["undo", "--list", str(both[0].parent)]) == 0
    named = capfd.readouterr().out.splitlines()[0].partition("undo with: kseg ")[2]
    assert run(shlex.split(named)) == 0
    assert tree_state(both[0].parent) == before


def test_journals_that_a_pattern_lists_are_undone_newest_first(data: Path, say: Say) -> None:
    """The opening journal of a run sorts after its last one, and an older run before a newer one."""
    before = tree_state(data)
    (data / "metro-none-0" / f"{144:020d}.log").open("r+b").truncate(900)
    damaged = tree_state(data)
    lines = data.parent / "lines"
    lines.write_text('{"value":"x"}\n')

    def journals(pattern: str) -> list[Path]:
        return sorted(data.glob(pattern))

    assert say("recover", "--apply", data)[0] == 0
    assert len(journals("kseg-journal-*.jsonl")) == 2
    assert say("undo", *journals("kseg-journal-*.jsonl"))[0] == 0
    assert tree_state(data) == damaged != before
    assert say("recover", "--apply", data / "metro-none-0")[0] == 0
    assert say("append", "--apply", "--from", lines, data / "metro-none-0")[0] == 0
    assert say("undo", *journals("*/.kseg/*/journal.jsonl"), *journals("kseg-journal-*.jsonl"))[0] == 0
    assert tree_state(data) == damaged
