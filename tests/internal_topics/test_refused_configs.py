"""The sentences about topic configurations with which a 4.3.1 node does not start. The real definitions judge them in
tests/kafka/test_refused_configs.py."""

from __future__ import annotations

from pathlib import Path

import pytest

from kseg.cli.main import run
from kseg.internal_topics.metadata.refused_configs import why_refused
from tests.internal_topics.metadata_logs import (
    config,
    record,
    topic,
    topic_id,
    write_log,
    write_meta_properties,
)
from tests.support.command_rows import rows_of


def test_long_invalid_configuration_value_is_abbreviated(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    value = "9" * 5000 + "\x1b[31m"
    message = why_refused("segment.bytes", value)
    assert message.startswith(
        f"Invalid value {'9' * 100}... (5,005 characters) for configuration segment.bytes"
    )
    data = tmp_path / "data"
    write_meta_properties(data)
    version = record("FeatureLevelRecord", name="metadata.version", featureLevel=30)
    write_log(
        data / "__cluster_metadata-0",
        [version, *topic("one", topic_id(1)), config("one", "segment.bytes", value)],
    )
    assert run(["doctor", str(data)]) == 1
    shown = capfd.readouterr().out
    assert (
        "segment.bytes=999" in shown and "\x1b[31m" not in shown and max(map(len, shown.splitlines())) < 500
    )
    rows = rows_of(capfd, "doctor", data, status=1)
    assert any(row["type"] == "broker-start" and row["exception"] == "ConfigException" for row in rows)
