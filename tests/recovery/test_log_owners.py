"""Files that a broker cannot write: logs that belong to another user than their data directory, as after a copy by root, and immutable
files."""

from __future__ import annotations

import os
import shutil
from contextlib import ExitStack
from pathlib import Path

import pytest

from kseg.cli.main import run
from tests.support.command_rows import rows_of
from tests.support.file_flags import flagged

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")
OWNER, OTHER = 1000, 1001


@pytest.fixture
def data(capture_small: Path, tmp_path: Path) -> Path:
    data = Path(shutil.copytree(capture_small / "data", tmp_path / "data"))
    for path in (data, *data.rglob("*")):
        os.chown(path, OWNER, OWNER)
    return data


def verified(
    data: Path, capfd: pytest.CaptureFixture[str]
) -> tuple[dict[str, object], list[dict[str, object]]]:
    """The forecast, and the findings about logs that a broker cannot write."""
    rows = rows_of(capfd, "verify", data)
    (start,) = (row for row in rows if row["type"] == "broker-start")
    return start, [row for row in rows if row.get("id") == "not-writable"]


def give_away(partition: Path, mode: int = 0o644) -> None:
    for path in (partition, *partition.iterdir()):
        os.chown(path, OTHER, OTHER)
        path.chmod(mode if path.is_file() else 0o755)


@pytest.mark.evidence("log-owner")
def test_log_of_another_owner_prevents_the_start(data: Path, capfd: pytest.CaptureFixture[str]) -> None:
    give_away(data / "fares-0")
    start, found = verified(data, capfd)
    assert [row["path"] for row in found] == [str(data / "fares-0")]
    assert (start["outcome"], start["exception"]) == ("does-not-start", "AccessDeniedException")
    assert run(["doctor", str(data)]) == 1
    command = next(line for line in capfd.readouterr().out.splitlines() if "chown" in line).split()
    assert command == ["chown", "-R", f"--reference={data}", str(data / "fares-0")]


def test_log_writable_by_others_does_not_prevent_the_start(
    data: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    give_away(data / "fares-0", 0o664)
    assert verified(data, capfd)[1] == []


def test_owner_of_a_data_directory_of_root_proves_nothing(
    data: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    give_away(data / "fares-0")
    os.chown(data, 0, 0)
    assert verified(data, capfd)[1] == []


@pytest.mark.evidence("file-flags")
@pytest.mark.parametrize(
    ("name", "option"),
    [("", "-R "), ("fares-0", "-R "), ("fares-0/00000000000000000068.log", "")],
    ids=["data", "partition", "log"],
)
def test_immutable_path_is_named_with_its_chattr_command(
    data: Path, capfd: pytest.CaptureFixture[str], name: str, option: str
) -> None:
    with flagged(data / name, "i"):
        start, found = verified(data, capfd)
        assert [row["path"] for row in found] == [str(data / name)]
        assert (start["outcome"], start["exception"]) == ("does-not-start", "FileSystemException")
        assert run(["doctor", str(data)]) == 1
        assert f"\n       chattr {option}-i {data / name}\n" in capfd.readouterr().out
    assert verified(data, capfd)[0]["outcome"] == "starts"


@pytest.mark.evidence("file-flags")
def test_many_immutable_paths_get_one_chattr_command(data: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """As after `chattr -R +i`. kseg used to print a command for each path."""
    names = ["", "fares-0", "fares-0/00000000000000000068.log", "metro-0"]
    with ExitStack() as flags:
        for name in sorted(names, reverse=True):
            flags.enter_context(flagged(data / name, "i"))
        assert run(["doctor", str(data)]) == 1
        out = capfd.readouterr().out
    assert [line.strip() for line in out.splitlines() if "chattr" in line] == [f"chattr -R -i {data}"]
    assert f"{data} and 2 more paths in it are immutable: " in out
