"""The locks of a change: how long they are held, and that, if the system fails, only a lock that is held is reported as held."""

from __future__ import annotations

import errno
import fcntl
import os
import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from kseg.change.apply.lock import KSEG, claimed, lock_holder, locked
from kseg.segment.errors import Refused
from tests.support.lock_holders import child, running_broker


@pytest.mark.parametrize("call", ["lstat", "fstat"])
def test_lock_file_that_cannot_be_examined_is_not_reported_as_held(
    call: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A denied lstat has the same errno as a lock that another process holds."""
    (tmp_path / ".lock").touch()

    def denied(path: object) -> os.stat_result:
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))

    with monkeypatch.context() as patched, pytest.raises(Refused) as raised:
        patched.setattr(os, call, denied)
        with locked([str(tmp_path)]):
            pass
    assert str(raised.value) == f"cannot lock {tmp_path}: {tmp_path}/.lock: Permission denied"


@pytest.mark.parametrize(("number", "is_busy"), [(errno.ENOLCK, False), (errno.EAGAIN, True)])
def test_file_system_without_locks_is_not_reported_as_held(
    number: int, is_busy: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(*_arguments: object) -> None:
        raise OSError(number, os.strerror(number))

    for call in ("flock", "fcntl", "lockf"):
        monkeypatch.setattr(fcntl, call, refused)
    with pytest.raises(Refused, match="another kseg" if is_busy else "cannot change"), claimed(str(tmp_path)):
        pass
    with pytest.raises(Refused, match="is in use" if is_busy else "cannot lock"), locked([str(tmp_path)]):
        pass


def test_worker_that_outlives_its_run_keeps_the_lock(tmp_path: Path) -> None:
    """The run is killed while its worker is still replacing files, for example because a disk hangs."""
    (tmp_path / ".lock").touch()
    reads, writes = os.pipe()

    def run_with_a_worker(say: Callable[[str], None]) -> None:
        with locked([str(tmp_path)]):
            worker = os.fork()
            if not worker:
                signal.pause()
            os.write(writes, b"%d\n" % worker)
            say("in")

    with child(run_with_a_worker) as run:
        assert run.output() == "in"
    worker = int(os.read(reads, 20))
    try:
        with child(running_broker(tmp_path)) as late:
            assert late.output() == "refused"
        assert lock_holder(str(tmp_path)) == KSEG
        with (
            pytest.raises(Refused, match="in use by another kseg "),
            locked([str(tmp_path)]),
        ):
            pass
    finally:
        os.kill(worker, signal.SIGKILL)
        os.close(reads)
        os.close(writes)
    # wait until another process notices the worker's end
    while lock_holder(str(tmp_path)) is not None:
        os.sched_yield()
    with child(running_broker(tmp_path)) as next_one:
        assert next_one.output() == "in"


def test_lock_falls_back_to_a_process_lock_on_an_old_kernel(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / ".lock").touch()
    real = fcntl.fcntl

    def old_kernel(descriptor: int, command: int, argument: bytes) -> bytes | int:
        if command == fcntl.F_OFD_SETLK:
            raise OSError(errno.EINVAL, os.strerror(errno.EINVAL))
        return real(descriptor, command, argument)

    with monkeypatch.context() as patched:
        patched.setattr(fcntl, "fcntl", old_kernel)
        with locked([str(tmp_path)]), child(running_broker(tmp_path)) as late:
            assert late.output() == "refused"
    with child(running_broker(tmp_path)) as next_one:
        assert next_one.output() == "in"
