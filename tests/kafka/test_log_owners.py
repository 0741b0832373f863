"""A real broker and logs that belong to another user: root without the right to open everybody's files stands for the user of the broker."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from tests.kafka import jars
from tests.kafka.conftest import require_kafka
from tests.kafka.starting import observed_apart

pytestmark = pytest.mark.kafka
AS_A_USER = (
    "setpriv",
    "--bounding-set=-dac_override,-dac_read_search",
    "--inh-caps=-dac_override,-dac_read_search",
)


@pytest.mark.evidence("log-owner")
@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")
@pytest.mark.skipif(shutil.which("setpriv") is None, reason="setpriv is not installed")
def test_a_broker_does_not_start_with_a_log_that_it_cannot_write(
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
