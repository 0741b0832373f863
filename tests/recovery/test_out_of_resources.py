"""Running out of file descriptors is not damage, and no repair acts on it."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import Any

import pytest

from fixtures import healthy
from kseg.cli.main import run
from tests.support.trees import files_in

COMMANDS = (
    ["recover", "--apply"],
    ["recover", "--policy", "kafka", "--apply"],
    ["recover", "--rebuild", "--apply"],
    ["verify"],
)


@pytest.mark.slow
@pytest.mark.parametrize("error", [errno.EMFILE, errno.ENFILE, errno.ENOMEM])
@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
@pytest.mark.parametrize("suffix", [".log", ".index", ".timeindex", ".snapshot", "leader-epoch-checkpoint"])
def test_file_not_opened_for_lack_of_descriptors_is_not_damaged(
    suffix: str,
    command: list[str],
    error: int,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    partition = healthy.partition(tmp_path / "orders-0")
    log = min(partition.glob("*.log"))
    data = bytearray(log.read_bytes())
    # so that every command has a reason to look at the records
    data[len(data) // 2] ^= 0x40
    log.write_bytes(data)
    before = files_in(partition)
    really_open, refused = os.open, []

    def no_more(path: Any, *rest: Any, **named: Any) -> int:
        if str(path).endswith(suffix) and os.path.dirname(str(path)) == str(partition):
            refused.append(path)
            raise OSError(error, os.strerror(error), str(path))
        return really_open(path, *rest, **named)

    monkeypatch.setattr(os, "open", no_more)
    status = run([*command, "--jobs", "1", str(partition)])
    monkeypatch.undo()
    output = capfd.readouterr()
    assert refused, "the command never looked at it"
    assert status == 3, output
    assert os.strerror(error) in output.err and str(refused[0]) in output.err
    assert files_in(partition) == before
