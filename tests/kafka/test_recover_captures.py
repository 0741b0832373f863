"""Policy kafka compared with the real log loader, on captures of brokers of all versions."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from fixtures.healthy import T0
from kseg.recovery.policy import BrokerState, LoadSettings
from kseg.segment.partition.names import Role, parse_file_name
from tests.kafka.oracle import Oracle
from tests.kafka.random_directories import Case
from tests.kafka.test_recover_differential import differences

pytestmark = pytest.mark.kafka


def partitions(root: Path) -> list[Path]:
    """The directories that contain segments, except those of 0.7."""
    logs = (path for path in root.rglob("*.log") if parse_file_name(path.name).role is Role.LOG)
    return sorted({path.parent for path in logs if path.name[0].isdigit() and "-" in path.parent.name})


@pytest.mark.parametrize("capture", ["capture_small", "legacy_small"])
@pytest.mark.parametrize("around", [BrokerState(is_clean=True), BrokerState(recovery_point=10)])
def test_policy_kafka_equals_the_log_loader_on_captures(
    oracle: Oracle, tmp_path: Path, request: pytest.FixtureRequest, capture: str, around: BrokerState
) -> None:
    root: Path = request.getfixturevalue(capture)
    directories = partitions(root)
    assert len(directories) > 5
    failures = []
    for directory in directories:
        copy = tmp_path / directory.name
        copy.mkdir()
        for path in directory.iterdir():
            if path.is_file():
                shutil.copyfile(path, copy / path.name)
        lines = differences(oracle, Case(copy, around, LoadSettings(now_ms=T0)))
        if lines:
            failures.append("\n    ".join([str(directory.relative_to(root)), *lines]))
        shutil.rmtree(copy)
    assert not failures, "\n".join(failures)
