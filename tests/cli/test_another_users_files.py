"""A data directory of another user, with files that only that user may read, as a broker leaves every metadata snapshot (mode 0400). What
the user of kseg may not read is named and counts neither as damaged nor as missing, because the broker can read it."""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from kseg.cli.main import run
from tests.support.command_lines import Capfd
from tests.support.doctor_helpers import NOW
from tests.support.other_users import import_everything, run_as_nobody

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="not root: no child can become another user")
BROKERS_USER = 1000
FILES = (
    "__cluster_metadata-0/00000000000000000069-0000000001.checkpoint",
    "__cluster_metadata-0/quorum-state",
    "meta.properties",
    "recovery-point-offset-checkpoint",
    "metro-none-0/00000000000000000000.log",
    "metro-none-0/00000000000000000000.index",
    "metro-none-0/leader-epoch-checkpoint",
    "metro-none-0/partition.metadata",
    "metro-none-0",
)
SAYS = "starts, unless it fails to load what could not be examined"


@pytest.fixture
def data(capture_small: Path) -> Iterator[Path]:
    """A data directory outside of pytest's directories, which other users cannot enter."""
    with tempfile.TemporaryDirectory(prefix="kseg-test-") as made:
        Path(made).chmod(0o755)
        data = Path(shutil.copytree(capture_small / "data", Path(made) / "data"))
        for path in (data, *data.rglob("*")):
            path.chmod(0o755 if path.is_dir() else 0o644)
            os.chown(path, BROKERS_USER, BROKERS_USER)
        import_everything()
        run(["doctor", "--quiet", str(data)])
        yield data


@pytest.mark.slow
@pytest.mark.parametrize("file", FILES)
def test_files_readable_only_by_the_brokers_user_are_not_damage(file: str, data: Path, capfd: Capfd) -> None:
    (data / file).chmod(0o700 if (data / file).is_dir() else 0o400)
    for command in ("verify", "doctor"):
        capfd.readouterr()
        assert run_as_nobody([command, "--json", *NOW, str(data)]) == 5
        printed = capfd.readouterr()
        rows = [json.loads(line) for line in printed.out.splitlines()]
        assert [row for row in rows if row["type"] == "finding" and row["severity"] == "error"] == []
        assert [row["message"] for row in rows if row["type"] == "error"] == printed.err.replace(
            "kseg: ", ""
        ).splitlines()
        assert f"cannot read {data / file}" in printed.err
        assert "does-not-start" not in {row["outcome"] for row in rows if row["type"] == "broker-start"}
        assert [row["command"] for row in rows if row["type"] == "step"] == []
    assert run_as_nobody(["metadata", "--quiet", str(data)]) == 0
    assert "stray" not in capfd.readouterr().out


@pytest.mark.slow
@pytest.mark.parametrize("file", FILES)
def test_recover_treats_an_unreadable_file_as_neither_damaged_nor_missing(
    file: str, data: Path, capfd: Capfd
) -> None:
    (data / file).chmod(0o700 if (data / file).is_dir() else 0o400)
    assert run_as_nobody(["recover", "--json", str(data)]) in (0, 5)
    rows = [json.loads(line) for line in capfd.readouterr().out.splitlines()]
    assert [row for row in rows if row["type"] in ("finding", "step") and row.get("severity") != "info"] == []


def test_path_in_an_inaccessible_directory_is_not_called_missing(data: Path, capfd: Capfd) -> None:
    data.chmod(0o700)
    assert run_as_nobody(["verify", str(data / "metro-none-0")]) == 3
    err = capfd.readouterr().err
    assert f"cannot read {data / 'metro-none-0'}: Permission denied (run kseg as the owner" in err


@pytest.mark.parametrize("mode", [0o700, 0o744])
def test_partition_that_may_not_be_entered_is_not_examined(mode: int, data: Path, capfd: Capfd) -> None:
    """Whether or not its files may be listed, the first line says that it is unknown what a broker makes of it."""
    (data / "metro-none-0").chmod(mode)
    for command in ("verify", "doctor"):
        capfd.readouterr()
        assert run_as_nobody([command, str(data)]) == 5
        printed = capfd.readouterr()
        assert printed.err.count("\n") == 1 and "metro-none-0: Permission denied (run kseg as" in printed.err
        assert SAYS in printed.out and "unreadable-file" not in printed.out
    assert SAYS in printed.out.splitlines()[0]
