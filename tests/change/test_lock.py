"""The locks of a change where the system fails: who holds a lock is said only of one that is held."""

from __future__ import annotations

import errno
import fcntl
import os
from pathlib import Path

import pytest

from kseg.change.apply.lock import claimed, locked
from kseg.segment.errors import Refused


@pytest.mark.parametrize("call", ["lstat", "fstat"])
def test_a_lock_file_that_cannot_be_examined_is_not_in_use(
    call: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A denied lstat has the same errno as a lock held by another process."""
    (tmp_path / ".lock").touch()

    def denied(path: object) -> os.stat_result:
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))

    with monkeypatch.context() as patched, pytest.raises(Refused) as raised:
        patched.setattr(os, call, denied)
        with locked([str(tmp_path)]):
            pass
    assert str(raised.value) == f"cannot lock {tmp_path}: {tmp_path}/.lock: Permission denied"


@pytest.mark.parametrize(("number", "is_busy"), [(errno.ENOLCK, False), (errno.EAGAIN, True)])
def test_a_file_system_without_locks_is_not_another_kseg(
    number: int, is_busy: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(_descriptor: int, _operation: int) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(fcntl, "flock", refused)
    monkeypatch.setattr(fcntl, "lockf", refused)
    with pytest.raises(Refused, match="another kseg" if is_busy else "cannot change"), claimed(str(tmp_path)):
        pass
    with pytest.raises(Refused, match="is in use" if is_busy else "cannot lock"), locked([str(tmp_path)]):
        pass
