"""The journal of a run on a data directory is gone, or something else has changed its files since: what can still be undone, and what is
reported about the rest."""

from __future__ import annotations

import errno
import json
import shlex
import subprocess
from pathlib import Path

import pytest

from kseg.change.apply import staging
from kseg.change.apply.disk import Disk
from kseg.change.apply.step_progress import ObservedFile
from kseg.change.apply.unfinished import half_done_findings
from kseg.cli.main import run
from tests.support.command_lines import Capfd
from tests.support.command_rows import rows_of
from tests.support.failing_renames import failing_renames
from tests.support.trees import tree_state


@pytest.fixture
def repaired(data: Path, capfd: Capfd) -> Path:
    """A data directory after a repair of one partition that removed the marker, without the journals of its own files."""
    (data / ".kafka_cleanshutdown").touch()
    log = max((data / "fares-0").glob("*.log"))
    log.write_bytes(log.read_bytes()[:-1])
    assert run(["recover", "--apply", str(data)]) == 0
    for journal in data.glob("kseg-journal-*.jsonl"):
        journal.unlink()
    assert kept_marker(data)
    capfd.readouterr()
    return data


def kept_marker(data: Path) -> list[Path]:
    return [*data.glob("kseg-journal-*-old-.kafka_cleanshutdown")]


def test_undo_without_the_run_journal_is_refused_with_alternatives(repaired: Path, capfd: Capfd) -> None:
    assert run(["undo", str(repaired)]) == 4
    sentence = capfd.readouterr().err
    assert "is missing" in sentence and "kept in" in sentence and "one by one" in sentence


def test_undo_of_a_partition_does_not_recommend_a_missing_journal(repaired: Path, capfd: Capfd) -> None:
    assert run(["undo", str(repaired / "fares-0")]) == 0
    output = capfd.readouterr().out
    assert "as it was before recover" in output and "is missing" in output
    assert "undo it with" not in output


def test_doctor_steps_work_after_a_lost_journal(repaired: Path, capfd: Capfd) -> None:
    rows = rows_of(capfd, "verify", repaired, status=1)
    kept = {str(path) for path in repaired.glob("kseg-journal-*-old-*")}
    assert {row["path"] for row in rows if row.get("id") == "journal-missing"} == kept
    assert run(["doctor", "--json", str(repaired)]) == 1
    steps = [row for row in map(json.loads, capfd.readouterr().out.splitlines()) if row["type"] == "step"]
    assert not [step for step in steps if step["command"].startswith("kseg undo")]
    for step in steps:
        if step["command"].startswith("mv "):
            subprocess.run(shlex.split(step["command"]), check=True)
    assert not kept_marker(repaired)
    assert run(["recover", "--apply", str(repaired)]) == 0
    assert run(["verify", str(repaired)]) == 0


@pytest.fixture
def overtaken(data: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A data directory with an interrupted repair, and a log to which a broker has appended since."""
    log = max((data / "metro-none-0").glob("*.log"))
    log.write_bytes(log.read_bytes()[:-1])
    with failing_renames(monkeypatch, errno.EIO, lambda _, new: new.startswith(f"{data}/metro-none-0/0")):
        assert run(["recover", "--apply", "--quiet", str(data)]) == 5
    with log.open("ab") as file:
        file.write(bytes(7))
    return data


@pytest.mark.evidence("kseg-journal")
def test_journal_that_can_be_neither_finished_nor_undone_has_a_way_out(overtaken: Path, capfd: Capfd) -> None:
    (journal,) = (overtaken / "metro-none-0").glob(".kseg/*/journal.jsonl")
    capfd.readouterr()
    before = tree_state(overtaken)
    for words in (["undo"], ["undo", "--finish"], ["undo", "--forget"], ["recover", "--apply"]):
        assert run([*words, str(overtaken / "metro-none-0")]) == 4
        sentence = capfd.readouterr().err
        assert "can be neither finished nor undone" in sentence and f"kept in {journal.parent}" in sentence
        assert max((overtaken / "metro-none-0").glob("*.log")).name in sentence
    assert tree_state(overtaken) == before
    rows = rows_of(capfd, "verify", overtaken, status=1)
    assert [row["path"] for row in rows if row.get("id") == "journal-overtaken"] == [str(journal.parent)]
    assert not [row for row in rows if row.get("id") == "half-done-journal"]


@pytest.mark.parametrize("stuck", ["overtaken", "repaired"])
def test_verify_suggests_what_resolves_a_stuck_change_before_a_repair(
    stuck: str, request: pytest.FixtureRequest, capfd: Capfd
) -> None:
    """`recover` refuses what has the change until it is gone."""
    data = request.getfixturevalue(stuck)
    log = max((data / "metro-lz4-0").glob("*.log"))
    log.write_bytes(log.read_bytes()[:-1])
    capfd.readouterr()
    assert run(["verify", str(data)]) == 1
    captured = capfd.readouterr()
    assert "torn-tail" in captured.out
    assert f"next: kseg doctor {data}" in captured.out + captured.err


def test_overtaken_journal_is_examined_once(overtaken: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Building the message used to examine all files again."""
    looked = list[str]()

    def counting(directory: str, disk: Disk) -> dict[str, ObservedFile]:
        looked.append(directory)
        return staging.look(directory, disk)

    monkeypatch.setattr("kseg.change.apply.recorded_change.look", counting)
    directory = str(overtaken / "metro-none-0")
    assert [finding.id for finding in half_done_findings(directory)] == ["journal-overtaken"]
    assert looked == [directory]


def test_doctor_moves_an_overtaken_journal_out(overtaken: Path, capfd: Capfd) -> None:
    capfd.readouterr()
    kept = {path.read_bytes() for path in (overtaken / "metro-none-0").glob(".kseg/*/old/*")}
    assert kept
    for _ in range(4):
        status = run(["doctor", "--json", str(overtaken)])
        rows = [json.loads(line) for line in capfd.readouterr().out.splitlines()]
        step = next((row["command"] for row in rows if row["type"] == "step"), "")
        if status == 0 or not step:
            break
        assert not step.startswith("kseg undo")
        if step.startswith("mv "):
            subprocess.run(shlex.split(step), check=True)
        else:
            run([*shlex.split(step)[1:], "--apply", "--quiet"])
            capfd.readouterr()
    assert status == 0
    assert kept <= {
        path.read_bytes() for path in overtaken.parent.glob("data-metro-none-0-*/**/*") if path.is_file()
    }
