"""For every command that changes logs, and for every way to request it, a plan with changes exits with 1 and one without changes with 0
(docs/json.md, "Exit status of a plan")."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from fixtures import diseases, healthy
from kseg.cli.main import run
from tests.support import trees
from tests.support.command_lines import Capfd

NOW = ("--now", "2030-01-01")
# the generated directory has no metadata log with the policies
COMPACT, DELETE = ("--cleanup-policy", "compact"), ("--cleanup-policy", "delete")
PARTITION = {
    "recover": "metro-0",
    "compact": "gates.old-0",
    "retain": "metro-0",
}  # in gates.old-0 a single pass leaves nothing to do; with markers the cleaner needs several


@pytest.fixture
def log_dir(tmp_path: Path) -> Path:
    return healthy.log_dir(tmp_path / "data")


def lines_for_append(log_dir: Path) -> str:
    lines = log_dir.parent / "lines.jsonl"
    lines.write_text('{"value":"a"}\n')
    return str(lines)


def damage(log_dir: Path) -> None:
    diseases.bad_crc(min((log_dir / "metro-0").glob("*.log")))


def nothing(_: Path) -> None:
    pass


# command → damage that makes something due in metro-0, the arguments that request it, arguments with which nothing is due
DUE: dict[str, tuple[Callable[[Path], object], tuple[str, ...], tuple[str, ...]]] = {
    "recover": (damage, (), ("--topic", "gates.old")),
    "compact": (nothing, ("--include-active", *COMPACT), ("--min-compaction-lag-ms", "100000d", *COMPACT)),
    "retain": (nothing, ("--retention-bytes", "0", *DELETE), ("--retention-bytes", "1TiB", *DELETE)),
}


@pytest.fixture(params=DUE)
def command(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.mark.parametrize(
    "how", [(), ("--json",), ("--quiet",), ("--jobs", "2"), ("--no-progress",)], ids=" ".join
)
def test_plan_with_changes_exits_with_1_and_without_with_0(
    log_dir: Path, command: str, how: tuple[str, ...]
) -> None:
    make, asks, idle = DUE[command]
    make(log_dir)
    everything, one = str(log_dir), str(log_dir / "metro-0")
    several = [one, str(log_dir / "metro-1")]
    with trees.unchanged(log_dir):
        for paths in ([everything], [one], several, [everything, "--topic", "metro"]):
            assert run([command, *how, *NOW, *asks, *paths]) == 1, paths
        assert run([command, *how, *NOW, *idle, everything]) == 0


def test_plan_after_apply_exits_with_0(log_dir: Path, command: str) -> None:
    make, asks, _ = DUE[command]
    make(log_dir)
    words = [command, "--quiet", *NOW, *asks, str(log_dir / PARTITION[command])]
    assert run([*words, "--apply"]) == 0
    with trees.unchanged(log_dir):
        assert run(words) == 0
    assert run([*words, "--apply"]) == 0


@pytest.mark.parametrize("command", ["recover", "compact"], indirect=True)
def test_written_copy_exits_with_0(log_dir: Path, tmp_path: Path, command: str) -> None:
    make, asks, _ = DUE[command]
    make(log_dir)
    words = [command, "--quiet", *NOW, *asks]
    partition, copy = PARTITION[command], tmp_path / "copy"
    assert run([*words, "--output", str(copy), str(log_dir / partition)]) == 0
    assert run([*words, str(copy / partition)]) == 0


def test_plan_that_writes_only_a_checkpoint_exits_with_1(log_dir: Path, capfd: Capfd) -> None:
    words = ["compact", *NOW, *COMPACT, "--include-active", str(log_dir / "gates.old-0")]
    assert run([*words, "--apply"]) == 0
    (log_dir / "cleaner-offset-checkpoint").unlink()
    capfd.readouterr()
    assert run(words) == 1
    out = capfd.readouterr().out
    assert "nothing would change" in out and "first dirty offsets to be noted: gates.old-0 479" in out
    assert "next: kseg compact --apply" in out
    assert run([*words, "--apply"]) == 0
    assert (log_dir / "cleaner-offset-checkpoint").exists()
    assert run(words) == 0


def test_failure_status_takes_precedence_over_a_due_plan(log_dir: Path, command: str) -> None:
    """5 if some of the targets failed, 3 if the only one did."""
    make, asks, _ = DUE[command]
    make(log_dir)
    gone = str(log_dir / "gone-0")
    assert run([command, "--quiet", *NOW, *asks, str(log_dir / "metro-0"), gone]) == 5
    assert run([command, "--quiet", *NOW, *asks, gone]) == 3


def test_skipped_damage_stays_due(log_dir: Path) -> None:
    damage(log_dir)
    words = ["compact", "--quiet", *NOW, *COMPACT, "--damaged", "skip"]
    assert run([*words, "--apply", str(log_dir / "metro-0")]) == 1
    assert run([*words, str(log_dir / "metro-0")]) == 1


def test_append_plan_exits_with_1_and_after_apply_with_0(log_dir: Path, capfd: Capfd) -> None:
    lines = lines_for_append(log_dir)
    target = str(log_dir / "metro-0")
    for how in ([], ["--json"], ["--quiet"]):
        assert run(["append", *how, *NOW, "--from", lines, target]) == 1
        assert run(["append", *how, *NOW, "--from", "/dev/null", target]) == 0
        assert run(["append", *how, *NOW, "--apply", "--from", "/dev/null", target]) == 0
    new = log_dir / "new-0"
    assert run(["append", "--from", "/dev/null", str(new)]) == 1, "the partition is to be made"
    assert run(["append", "--apply", "--from", "/dev/null", str(new)]) == 0
    assert run(["append", "--from", "/dev/null", str(new)]) == 0
    capfd.readouterr()


def results(out: str) -> list[dict[str, Any]]:
    rows = [json.loads(line) for line in out.splitlines()]
    return [row for row in rows if row["type"] == "result"]


@pytest.mark.parametrize("words", [["--unmark"], ["--purge"]])
def test_files_marked_for_deletion_are_due_for_unmark_and_purge(
    log_dir: Path, capfd: Capfd, words: list[str]
) -> None:
    """Files marked for deletion can be restored, or deleted once they are old enough."""
    partition = str(log_dir / "metro-0")
    soon = ["--now", "2100-01-01"]
    assert run(["retain", "--json", *words, *soon, partition]) == 0
    assert run(["retain", "--retention-bytes", "0", *DELETE, "--apply", "--quiet", partition]) == 0
    assert run(["retain", "--purge", "--file-delete-delay-ms", "100000d", "--quiet", partition]) == 0
    capfd.readouterr()
    assert run(["retain", "--json", *words, *soon, partition]) == 1
    (row,) = (row for row in results(capfd.readouterr().out) if "partition" in row)
    assert row["unmarked"] or row["purged"]
    assert run(["retain", "--quiet", *words, *soon, "--apply", partition]) == 0
    assert run(["retain", "--quiet", *words, *soon, partition]) == 0


def test_plan_that_moves_only_the_log_start_exits_with_1(log_dir: Path) -> None:
    """No segment is deleted, but the checkpoint has to be written."""
    partition = str(log_dir / "metro-0")
    words = ["retain", "--quiet", *DELETE, "--log-start-offset", "5", partition]
    with trees.unchanged(log_dir):
        assert run(words) == 1
    assert run([*words, "--apply"]) == 0
    assert run(words) == 0


def test_plans_for_0_7_logs_exit_with_1_and_after_apply_with_0(tmp_path: Path, ancient_small: Path) -> None:
    source = next(path.parent for path in ancient_small.rglob("*.kafka"))
    partition = tmp_path / "old-0"
    shutil.copytree(source, partition)
    for asks, idle in ((["retain", "--retention-bytes", "0"], ["retain", "--retention-bytes", "1TiB"]),):
        with trees.unchanged(partition):
            assert run([*asks, "--quiet", str(partition)]) == 1
            assert run([*idle, "--quiet", str(partition)]) == 0
        assert run([*asks, "--quiet", "--apply", str(partition)]) == 0
        assert run([*asks, "--quiet", str(partition)]) == 0


@pytest.mark.parametrize("command", ["recover", "compact", "retain"], indirect=True)
def test_next_command_repeats_the_options_of_the_plan(log_dir: Path, command: str, capfd: Capfd) -> None:
    make, asks, _ = DUE[command]
    make(log_dir)
    capfd.readouterr()
    assert run([command, *NOW, *asks, "--accept-unreadable", "--follow-links", str(log_dir)]) == 1
    (line,) = [line for line in capfd.readouterr().out.splitlines() if line.startswith("next: ")]
    assert "--accept-unreadable" in line and "--follow-links" in line and line.endswith(str(log_dir))
