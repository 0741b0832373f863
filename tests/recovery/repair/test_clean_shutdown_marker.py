"""A run that removes the clean-shutdown marker still carries out what was planned with the marker in place."""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kseg.cli.main import run
from kseg.jobs import fanout
from kseg.jobs.events import Event, Failure, Row
from kseg.recovery.policy import LoadSettings, Policy
from kseg.recovery.repair.clean_shutdown_marker import has_marker
from kseg.recovery.repair.options import RecoverOptions
from kseg.recovery.repair.recover import recover
from kseg.recovery.repair.rows import RecoverResult
from kseg.recovery.repair.run import RecoverRun
from kseg.segment.errors import UnreadableInput
from kseg.segment.partition.targets import FileTarget, PartitionTarget
from tests.support.command_rows import rows_of
from tests.support.trees import files_in

FIRST = "00000000000000000000"
MARKER = ".kafka_cleanshutdown"
NOW_MS = "1800000000000"


@pytest.fixture
def marked(capture_small: Path, tmp_path: Path) -> Path:
    """A cleanly stopped data directory with a log whose damage a clean load does not notice, and one whose index is missing."""
    made = tmp_path / "data"
    made.mkdir()
    for name in ("metro-none-0", "metro-zstd-0"):
        shutil.copytree(capture_small / "data" / name, made / name)
    for file in (capture_small / "data").iterdir():
        if file.is_file():
            shutil.copy2(file, made / file.name)
    log = made / "metro-none-0" / f"{FIRST}.log"
    content = bytearray(log.read_bytes())
    content[600] ^= 0x55
    log.write_bytes(content)
    (made / "metro-zstd-0" / f"{FIRST}.index").unlink()
    (made / "recovery-point-offset-checkpoint").write_text("0\n0\n")
    assert (made / MARKER).exists()
    return made


def steps_of(*words: str | Path, capfd: pytest.CaptureFixture[str]) -> list[dict[str, Any]]:
    """The steps for partitions and for the data directory's files."""
    rows = rows_of(capfd, "recover", "--policy", "kafka", "--now", NOW_MS, *(str(word) for word in words))
    assert rows
    return [row for row in rows if row["type"] == "step"]


@pytest.mark.parametrize("jobs", [1, 2])
def test_logs_are_loaded_as_planned_while_the_marker_is_removed(
    marked: Path, jobs: int, capfd: pytest.CaptureFixture[str]
) -> None:
    log = marked / "metro-none-0" / f"{FIRST}.log"
    before = log.read_bytes()
    planned = steps_of("--jobs", str(jobs), marked, capfd=capfd)
    assert any(step["partition"] == "metro-zstd-0" and step["file"].endswith(".index") for step in planned)
    assert not any(step["file"].endswith(".log") for step in planned)
    # no log loses bytes, so the marker stays
    assert MARKER not in [step["file"] for step in planned]
    output = (marked / MARKER).read_bytes()
    assert steps_of("--apply", "--jobs", str(jobs), marked, capfd=capfd) == planned
    assert log.read_bytes() == before
    assert (marked / MARKER).read_bytes() == output


def test_run_killed_after_removing_the_marker_continues_as_planned(
    marked: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    options = RecoverOptions(
        settings=LoadSettings(now_ms=int(NOW_MS)), policy=Policy.KAFKA, apply=True, run_id="killed"
    )
    targets = [PartitionTarget(str(path), str(marked)) for path in sorted(marked.glob("metro-*"))]
    with RecoverRun(options, fanout.run).held(targets) as held:
        assert not (marked / MARKER).exists()
        assert held.marked == {str(marked)}
    assert steps_of(marked, capfd=capfd) == steps_of("--apply", marked, capfd=capfd) != []
    assert (marked / MARKER).exists()


def test_checkpoints_are_updated_even_if_the_marker_cannot_be_restored(marked: Path) -> None:
    """For example, a disk fails during the run: the partitions have changed, so their checkpoints are updated, and the failure is
    reported."""
    (marked / "recovery-point-offset-checkpoint").write_text("0\n1\nmetro-none 0 999999\n")
    options = RecoverOptions(settings=LoadSettings(now_ms=int(NOW_MS)), mark_clean=True)
    targets = [PartitionTarget(str(path), str(marked)) for path in sorted(marked.glob("metro-*"))]
    result = RecoverResult(
        partition=targets[0].path,
        directory=targets[0].path,
        policy=Policy.SALVAGE.value,
        steps=1,
        first_base_offset=0,
        log_start_offset=0,
        log_end_offset=160,
        last_stable_offset=160,
        recovery_point=160,
        removed=(),
        missing=(),
        files_rebuilt=(),
        files_removed=(),
        costs={},
        doubt=None,
        left_damaged=False,
        misplaced=False,
        settings={},
    )

    def events() -> Iterator[Event]:
        yield Row(result.as_row(), result)
        yield Failure(targets[1].path, "the disk is full", 3)

    whole = RecoverRun(options, fanout.run)
    with whole.held(targets):
        reported = list(whole.through(events()))
    (own,) = [event.values for event in reported if isinstance(event, Row) and "log_dir" in event.values]
    # the checkpoint, and the removal of the marker
    assert own["steps"] == 2
    failure = reported[-1]
    assert isinstance(failure, Failure) and failure.exit_status == 4
    assert "not marked clean" in failure.sentence and "the disk is full" in failure.sentence


def test_marker_is_removed_while_a_single_segment_changes(
    marked: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    log = marked / "metro-none-0" / f"{FIRST}.log"
    before = files_in(marked)
    options = RecoverOptions(settings=LoadSettings(now_ms=int(NOW_MS)), apply=True, run_id="killed")
    with RecoverRun(options, fanout.run).held([FileTarget(str(log))]):
        assert not (marked / MARKER).exists()
    rows = rows_of(capfd, "recover", "--apply", "--now", NOW_MS, log, status=0)
    (journal,) = [row["journal"] for row in rows if row["type"] == "result" and "log_dir" in row]
    # a batch was lost, and the epoch would hide that
    assert (marked / MARKER).read_bytes() == b""
    names = before.keys() - {MARKER}
    assert {name: (marked / name).read_bytes() for name in names} == {name: before[name] for name in names}
    assert run(["undo", journal]) == 0
    assert (marked / MARKER).read_bytes() == before[MARKER]


def test_undamaged_single_segment_leaves_the_marker_alone(marked: Path) -> None:
    state = (marked / MARKER).stat()
    sound = marked / "metro-zstd-0" / max(f.name for f in (marked / "metro-zstd-0").glob("*.log"))
    assert run(["recover", "--apply", "--json", "--now", NOW_MS, str(sound)]) == 0
    assert (marked / MARKER).stat() == state


def test_epoch_is_not_restored_after_a_killed_run_that_lost_records(
    marked: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """The run is killed after the repair of a partition. The run that completes it finds the partition valid, but must not restore the
    epoch."""
    options = RecoverOptions(settings=LoadSettings(now_ms=int(NOW_MS)), apply=True, run_id="killed")
    target = PartitionTarget(str(marked / "metro-none-0"), str(marked))
    with RecoverRun(options, fanout.run).held([target]) as held:
        rows = [event.values for event in recover(target, held) if isinstance(event, Row)]
    assert rows[-1]["applied"] and rows[-1]["removed"]
    for _ in range(2):
        assert run(["recover", "--apply", "--json", "--now", NOW_MS, str(marked)]) == 0
        capfd.readouterr()
        assert (marked / MARKER).read_bytes() == b""


def test_marker_that_cannot_be_examined_is_not_missing(marked: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A stale handle of a network mount occurs once. The plan used to remove the marker as no longer true."""
    examine = os.lstat

    def lstat(path: str, **more: Any) -> os.stat_result:
        if os.path.basename(path) == MARKER:
            raise OSError(errno.ESTALE, os.strerror(errno.ESTALE), path)
        return examine(path, **more)

    assert has_marker(str(marked))
    monkeypatch.setattr(os, "lstat", lstat)
    with pytest.raises(UnreadableInput, match="Stale file handle"):
        has_marker(str(marked))
