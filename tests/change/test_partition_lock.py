"""Seats in the broker's lock: who waits for whom, and who is refused, while a run and its attempts are alive or dead."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from kseg.change.apply.lock import lock_path, locked, locked_files, part_of
from kseg.change.run.partition_lock import partition_locked
from kseg.segment.errors import Refused
from tests.support.lock_holders import OTHER, RUN, attempt, child, run


def broker_gets_in(log_dir: Path) -> bool:
    """Whether a process can lock the complete file, as Java's FileChannel.tryLock does."""
    answer = os.fork()
    if not answer:
        try:
            with (log_dir / ".lock").open("r+b") as file:
                fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os._exit(1)
        os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(answer, 0)[1]) == 0


@pytest.fixture
def log_dir(tmp_path: Path) -> Path:
    (tmp_path / ".lock").touch()
    return tmp_path


def test_only_one_attempt_at_a_time_has_a_seat(log_dir: Path) -> None:
    with locked_files([lock_path(str(log_dir))], part_for=RUN), child(attempt(log_dir)) as first:
        assert first.output() == "in"
        with child(attempt(log_dir)) as second, child(attempt(log_dir, name="orders-1")) as third:
            assert third.output() == "in", "another directory has another seat"
            assert second.is_silent()
            first.leave()
            assert first.output() == "out"
            assert second.output() == "in"


def test_killed_attempt_releases_its_seat(log_dir: Path) -> None:
    with locked_files([lock_path(str(log_dir))], part_for=RUN), child(attempt(log_dir)) as first:
        assert first.output() == "in"
        with child(attempt(log_dir)) as second:
            assert second.is_silent()
            first.kill()
            assert second.output() == "in"


def test_broker_is_locked_out_while_any_process_of_the_run_lives(log_dir: Path) -> None:
    with child(run(log_dir)) as called:
        assert called.output() == "in"
        assert not broker_gets_in(log_dir)
        with child(attempt(log_dir)) as one, child(attempt(log_dir, name="orders-1")) as other:
            assert one.output() == other.output() == "in"
            called.kill()
            assert not broker_gets_in(log_dir)
            one.kill()
            assert not broker_gets_in(log_dir)
            with pytest.raises(Refused, match="in use"), locked([str(log_dir)]):
                pass
            other.leave()
            assert other.output() == "out"
            assert broker_gets_in(log_dir)
            with locked([str(log_dir)]):
                pass


def test_late_attempt_of_a_finished_run_is_refused(log_dir: Path) -> None:
    over = "not locked by the run of this task"
    with child(attempt(log_dir)) as late:
        assert over in late.output()
    with child(run(log_dir)) as called:
        assert called.output() == "in"
        with child(attempt(log_dir)) as first:
            assert first.output() == "in"
            with child(attempt(log_dir)) as waiting:
                assert waiting.is_silent()
                called.kill()
                assert over in waiting.output(), "whoever waits looks whether the run is still there"
    (log_dir / ".lock").unlink()
    with child(attempt(log_dir)) as late:
        assert "is not locked" in late.output()
    assert not (log_dir / ".lock").exists(), "an attempt makes no lock"


@pytest.mark.parametrize("whole", [True, False], ids=["a broker", "another run"])
def test_attempt_of_another_run_is_refused(log_dir: Path, whole: bool) -> None:
    def broker(say: Callable[[str], None]) -> None:
        with (log_dir / ".lock").open("r+b") as file:
            fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            say("in")

    with child(broker if whole else run(log_dir, OTHER)) as there:
        assert there.output() == "in"
        with child(attempt(log_dir)) as late:
            assert "in use by a broker or another kseg" in late.output()


def test_seats_of_one_process_do_not_end_each_other(log_dir: Path) -> None:
    """POSIX releases all locks of a process on a file when it closes any descriptor of that file."""

    def two(say: Callable[[str], None]) -> None:
        with partition_locked(lock_path(str(log_dir)), RUN, "orders-0"):
            with partition_locked(lock_path(str(log_dir)), RUN, "orders-1"):
                pass
            say("in")

    with locked_files([lock_path(str(log_dir))], part_for=RUN), child(two) as first:
        assert first.output() == "in"
        with child(attempt(log_dir)) as second, child(attempt(log_dir, name="orders-1")) as third:
            assert second.is_silent()
            assert third.output() == "in"


def test_lock_range_of_a_run_is_lockable_on_every_file_system() -> None:
    parts = {part_of(f"20260101T000000Z-{number:08x}") for number in range(1000)}
    assert len(parts) == 1000
    assert all(0 < part < 1 << 62 for part in parts)


def test_lock_file_created_for_a_run_is_removed_with_it(tmp_path: Path) -> None:
    before = tmp_path.stat().st_mtime_ns
    with locked_files([lock_path(str(tmp_path))], part_for=RUN), child(attempt(tmp_path)) as first:
        assert first.output() == "in"
        first.leave()
        assert first.output() == "out"
    assert list(tmp_path.iterdir()) == []
    assert tmp_path.stat().st_mtime_ns == before
