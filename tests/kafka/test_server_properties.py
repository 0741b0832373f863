"""`verify` and `doctor` with --server-properties: a real node that is started with the file does what was predicted, and starts after the
steps."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.kafka.conftest import require_kafka
from tests.kafka.start_directories import METADATA
from tests.kafka.starting import SETTLE_S, assert_as_foretold, foretold, observed
from tests.kafka.test_broker_start import ALL, disks
from tests.support.command_rows import rows_of
from tests.support.trees import copy_tree

__all__ = ["disks"]

pytestmark = pytest.mark.kafka

Properties = dict[str, str]
Case = Callable[[Path, Path], Properties]
VOTERS = "controller.quorum.voters"


def _dirs(*log_dirs: Path | str) -> dict[str, str]:
    return {"log.dirs": ",".join(map(str, log_dirs))}


def both(first: Path, second: Path) -> Properties:
    return _dirs(first, second)


def another_node(first: Path, second: Path) -> Properties:
    return {**_dirs(first, second), "node.id": "2", VOTERS: "2@127.0.0.1:19093"}


def missing(first: Path, second: Path) -> Properties:
    return _dirs(first, second, first.parent / "2")


def missing_as_the_first(first: Path, second: Path) -> Properties:
    return _dirs(first.parent / "2", first, second)


def not_formatted(first: Path, second: Path) -> Properties:
    (first.parent / "2").mkdir()
    return _dirs(first, second, first.parent / "2")


def a_file(first: Path, second: Path) -> Properties:
    (first.parent / "2").write_text("x")
    return _dirs(first, second, first.parent / "2")


def twice(first: Path, second: Path) -> Properties:
    return _dirs(first, second, first)


def two_spellings(first: Path, second: Path) -> Properties:
    return _dirs(first, second, f"{first}/")


def metadata_elsewhere(first: Path, second: Path) -> Properties:
    return {**_dirs(first, second), "metadata.log.dir": str(second)}


def another_order(first: Path, second: Path) -> Properties:
    return {**_dirs(second, first), "metadata.log.dir": str(first)}


def left_out(first: Path, second: Path) -> Properties:
    """The partitions in the omitted directory are assigned to it, and stay without a leader."""
    return _dirs(first)


def moved_and_left_out(first: Path, second: Path) -> Properties:
    """Partitions that are assigned to the first disk were moved by hand to one that log.dirs does not contain."""
    for path in sorted(first.glob("many-*"))[:2]:
        path.rename(second / path.name)
    return _dirs(first)


CASES: tuple[tuple[Case, str | None], ...] = (
    (both, "starts"),
    (another_node, "does-not-start"),
    (missing, "does-not-start"),
    (missing_as_the_first, "does-not-start"),
    (not_formatted, "does-not-start"),
    (a_file, "starts-with-offline-log-dirs"),
    (twice, "starts"),
    (two_spellings, "does-not-start"),
    (metadata_elsewhere, "does-not-start"),
    (another_order, "starts"),
    (left_out, "starts"),
    (moved_and_left_out, "starts"),
)
IN_THE_GATE = (missing, moved_and_left_out)


@pytest.mark.evidence("broker-start")
@pytest.mark.parametrize(
    ("case", "outcome"),
    [each for each in CASES if ALL or each[0] in IN_THE_GATE],
    ids=lambda each: each.__name__ if callable(each) else "",
)
def test_forecast_with_server_properties_matches_the_broker(
    case: Case, outcome: str, disks: Path, tmp_path: Path
) -> None:
    require_kafka()
    copy_tree(disks, tmp_path / "node")
    places = [tmp_path / "node" / "0", tmp_path / "node" / "1"]
    first, second = sorted(places, key=lambda path: not (path / METADATA).exists())
    properties = case(first, second)
    file = tmp_path / "server.properties"
    file.write_text("".join(f"{name}={value}\n" for name, value in {"node.id": "1", **properties}.items()))
    forecast = foretold([first, second], "--server-properties", str(file))
    assert forecast.node["outcome"] == outcome
    assert_as_foretold(forecast, observed(tmp_path, [first, second], SETTLE_S, **properties))


@pytest.mark.evidence("broker-start")
@pytest.mark.parametrize(
    "case",
    [
        each
        for each, outcome in CASES
        if outcome == "does-not-start" or each in (left_out, moved_and_left_out)
    ],
)
def test_node_starts_with_the_properties_after_the_steps(
    case: Case, disks: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """A node starts with the properties that exist then (`both`, `another_order`), or with a directory that was formatted."""
    copy_tree(disks, tmp_path / "node")
    places = [tmp_path / "node" / "0", tmp_path / "node" / "1"]
    first, second = sorted(places, key=lambda path: not (path / METADATA).exists())
    file = tmp_path / "server.properties"
    properties = {"node.id": "1", **case(first, second)}
    file.write_text("".join(f"{name}={value}\n" for name, value in properties.items()))
    steps = _steps(capfd, file, first, second)
    assert steps
    for step in steps:
        if step.startswith("kafka-storage.sh"):
            _format(tmp_path / "node" / "2", first)
        elif step.startswith(("sed ", "printf ")):
            subprocess.run(step, shell=True, check=True)
    forecast = foretold([first, second], "--server-properties", str(file))
    assert forecast.node["outcome"] == "starts", (file.read_text(), forecast.node["message"])
    assert not forecast.node["log_dirs_left_out"]


def _format(path: Path, like: Path) -> None:
    """Format as kafka-storage.sh format --ignore-formatted does."""
    path.mkdir(exist_ok=True)
    shutil.copy(like / "meta.properties", path)
    text = (path / "meta.properties").read_text()
    lines = [
        "directory.id=Zm9yZWlnbi10b3BpYy1pZA" if line.startswith("directory.id") else line
        for line in text.splitlines()
    ]
    (path / "meta.properties").write_text("\n".join(lines) + "\n")


def _steps(capfd: pytest.CaptureFixture[str], file: Path, *log_dirs: Path) -> list[str]:
    rows = rows_of(capfd, "doctor", "--quick", "--server-properties", file, *log_dirs, status=1)
    return [row["command"] for row in rows if row["type"] == "step"]
