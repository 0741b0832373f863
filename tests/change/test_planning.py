"""Files that somebody writes while a change is being planned."""

from __future__ import annotations

from pathlib import Path

import pytest

from fixtures.diseases import bad_crc
from kseg.change.plan.inputs import inputs_of
from kseg.change.run.prepared import planning
from kseg.cli.main import run
from kseg.recovery.repair import recover
from kseg.segment.errors import Refused, UnreadableInput
from tests.support.broker_dirs import broker_dir


def test_error_while_files_change_is_not_a_bug(tmp_path: Path) -> None:
    (tmp_path / "00000000000000000000.log").write_bytes(b"x")
    inputs = inputs_of(str(tmp_path))
    with (
        pytest.raises(Refused, match=r"changed since planning \(00000000000000000000.log\)"),
        planning(str(tmp_path), inputs),
    ):
        (tmp_path / "00000000000000000000.log").write_bytes(b"xy")
        raise AssertionError("a stretch holds valid batches only")


@pytest.mark.parametrize("error", [AssertionError("a bug"), UnreadableInput("cannot read")])
def test_other_errors_while_planning_are_raised_unchanged(error: Exception, tmp_path: Path) -> None:
    (tmp_path / "00000000000000000000.log").write_bytes(b"x")
    with pytest.raises(type(error)), planning(str(tmp_path), inputs_of(str(tmp_path))):
        raise error


def test_recover_names_the_files_changed_since_planning(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    partition = broker_dir(tmp_path / "data", 1, 1) / "orders.00-0"
    log = min(partition.glob("*.log"))
    bad_crc(log)

    def fails(*_: object) -> None:
        log.write_bytes(log.read_bytes()[:100])
        raise ValueError("the walk would leave its buffers")

    monkeypatch.setattr(recover, "_repair", fails)
    assert run(["recover", "--jobs", "1", str(partition)]) == 4
    assert f"{partition} changed since planning ({log.name}); nothing was done" in capfd.readouterr().err
