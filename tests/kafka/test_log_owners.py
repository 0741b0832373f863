"""A real broker with files that it cannot write: files of another user (root without the capability to access everybody's files stands for
the broker's user), and immutable or append-only files."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from tests.kafka import jars
from tests.kafka.conftest import require_kafka
from tests.kafka.starting import foretold, observed, observed_apart
from tests.support.file_flags import flagged

pytestmark = pytest.mark.kafka
AS_A_USER = (
    "setpriv",
    "--bounding-set=-dac_override,-dac_read_search",
    "--inh-caps=-dac_override,-dac_read_search",
)


@pytest.mark.evidence("log-owner")
@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")
@pytest.mark.skipif(shutil.which("setpriv") is None, reason="setpriv is not installed")
def test_broker_does_not_start_with_a_log_it_cannot_write(
    capture_small: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    require_kafka()
    data = Path(shutil.copytree(capture_small / "data", tmp_path / "data"))
    for log in (data / "fares-0").glob("*.log"):
        os.chown(log, 1001, 1001)
        log.chmod(0o644)
    command = jars.brief_java_command
    monkeypatch.setattr(jars, "brief_java_command", lambda *words: [*AS_A_USER, *command(*words)])
    seen = observed_apart(tmp_path, [data])
    assert seen.outcome == "does-not-start" and seen.offline == {str(data)}
    assert f"AccessDeniedException: {data / 'fares-0'}" in seen.log


FLAGGED = {
    "a log": ("i", "fares-0/00000000000000000000.log", True),
    "the offset index of the last log": ("a", "fares-0/00000000000000000068.index", True),
    "a time index that is not opened": ("i", "fares-0/00000000000000000000.timeindex", True),
    "leader epochs": ("a", "fares-0/leader-epoch-checkpoint", True),
    "a snapshot before a recovery": ("i", "fares-0/00000000000000000117.snapshot", False),
    "a snapshot that is read": ("i", "fares-0/00000000000000000117.snapshot", True),
    "a partition": ("a", "fares-0", True),
    "quorum-state": ("i", "__cluster_metadata-0/quorum-state", True),
    "recovery points": ("i", "recovery-point-offset-checkpoint", True),
    "the marker": ("a", ".kafka_cleanshutdown", True),
    "meta.properties": ("i", "meta.properties", True),
    "the data directory": ("i", "", True),
}


@pytest.mark.evidence("file-flags")
@pytest.mark.parametrize("name", FLAGGED)
def test_forecast_with_an_immutable_or_append_only_file_matches_the_broker(
    capture_small: Path, tmp_path: Path, name: str
) -> None:
    require_kafka()
    letter, path, is_clean = FLAGGED[name]
    data = Path(shutil.copytree(capture_small / "data", tmp_path / "data"))
    if not is_clean:
        (data / ".kafka_cleanshutdown").unlink()
    with flagged(data / path, letter):
        node = foretold([data]).node
        seen = observed(tmp_path, [data])
    # leader epochs cannot be written after the log is loaded
    assert seen.outcome == node["outcome"], seen.log[-3000:]
    assert seen.outcome == "starts" or node["exception"] in seen.log
