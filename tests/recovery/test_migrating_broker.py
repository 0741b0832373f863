"""Directories of a 3.9.1 broker that has a metadata log while its metadata is in ZooKeeper: before, during and after a migration to KRaft
that was abandoned (`migrating-small`). That broker keeps all of these logs at each start."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from kseg.cli.main import run
from tests.support.verify_helpers import judge

STATES = ("waiting", "copied", "given-up")


@pytest.fixture(params=STATES)
def data(request: pytest.FixtureRequest, migrating_small: Path, tmp_path: Path) -> Path:
    """A copy of one state, without any other state beside it."""
    return Path(shutil.copytree(migrating_small / request.param, tmp_path / "data"))


def lines(capfd: pytest.CaptureFixture[str], kind: str) -> list[dict[str, Any]]:
    found = [json.loads(line) for line in capfd.readouterr().out.splitlines()]
    return [line for line in found if line["type"] == kind]


@pytest.mark.evidence("topic-id-zookeeper")
@pytest.mark.parametrize("level", ["quick", "default", "deep"])
def test_verify_of_a_migrating_broker_has_no_errors(data: Path, level: str) -> None:
    assert judge(data, level).ids("error", "warning") == set()


@pytest.mark.evidence("topic-id-zookeeper")
def test_forecast_for_a_migrating_broker_names_zookeeper_and_no_stray(
    data: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    assert run(["verify", "--json", str(data)]) == 0
    (row,) = lines(capfd, "broker-start")
    assert row["from_zookeeper"] is True and row["metadata"] == "unknown"
    assert row["partitions_stray"] == [] and row["partitions_missing"] == []


def test_recover_of_a_migrating_broker_has_nothing_to_repair(
    data: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    assert run(["recover", "--json", str(data)]) == 0
    assert {line["severity"] for line in lines(capfd, "finding")} <= {"info"}


def test_topic_settings_do_not_come_from_an_abandoned_migration(
    data: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """After the migration was abandoned, the metadata log may have another configuration than ZooKeeper."""
    assert run(["retain", "--json", str(data)]) == 5
    skipped = [line for line in lines(capfd, "finding") if line["id"] == "policy-unknown"]
    assert {Path(line["path"]).name for line in skipped} >= {"t-0"}


@pytest.mark.parametrize("state", ["waiting", "given-up"])
def test_metadata_option_overrides_the_abandoned_migration(
    state: str, migrating_small: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """With --metadata one can ask which logs a broker of a KRaft cluster would rename as stray."""
    data = Path(shutil.copytree(migrating_small / state, tmp_path / "data"))
    assert run(["verify", "--json", "--metadata", str(data), str(data)]) == 1
    (row,) = lines(capfd, "broker-start")
    assert row["metadata"] == "whole"
    live = {path.parent.name for path in data.glob("*/partition.metadata")} - {"__cluster_metadata-0"}
    expected = live if state == "waiting" else {"after-0", "w-1"}
    assert set(row["partitions_stray"]) == expected


def test_metadata_gives_no_verdict_on_directories_of_a_migrating_broker(
    migrating_small: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    data = Path(shutil.copytree(migrating_small / "given-up", tmp_path / "data"))
    run(["metadata", "--json", str(data)])
    verdicts = {Path(line["path"]).name: line["status"] for line in lines(capfd, "directory")}
    assert {name for name, status in verdicts.items() if status is None} == {"after-0", "w-1"}
    assert set(verdicts.values()) == {"known", None}
    run(["metadata", str(data)])
    assert capfd.readouterr().out.startswith(
        "KNOWN: the metadata log has the replica of 4 given directories\n"
    )
