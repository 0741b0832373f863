"""`append` to a compacted topic: records without a key, which a broker rejects (`LogValidator`) and the real cleaner discards."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from fixtures.healthy import T0
from kseg.compaction.cleaner.options import CleanSettings
from tests.kafka.cleaning import real_clean
from tests.kafka.oracle import Oracle
from tests.support.command_rows import rows_of

pytestmark = pytest.mark.kafka

LINES = ({"key": "a", "value": "kept"}, {"key": None, "value": "lost"}, {"key": "", "value": "kept too"})


@pytest.mark.parametrize(("topic", "found"), [("stations", [1]), ("metro-none", [])])
def test_append_reports_records_that_the_cleaner_discards(
    topic: str,
    found: list[int],
    capture_small: Path,
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
) -> None:
    """The policy of each topic comes from the metadata log."""
    data = Path(shutil.copytree(capture_small / "data", tmp_path / "data"))
    assert _appended(data / f"{topic}-0", capfd) == found


def test_the_real_cleaner_discards_records_without_key(
    capture_small: Path, tmp_path: Path, oracle: Oracle, capfd: pytest.CaptureFixture[str]
) -> None:
    data = Path(shutil.copytree(capture_small / "data", tmp_path / "data"))
    stations = data / "stations-0"
    _appended(stations, capfd)
    rolled = oracle.partition(
        stations, [{"what": "roll"}], clean=True, now=T0, config={"cleanup.policy": "compact"}
    )
    theirs = real_clean(oracle, rolled.directory, CleanSettings(now_ms=T0), None)
    assert not theirs.threw
    values = _values(theirs.directory, capfd)
    assert {"kept", "kept too"} <= values and "lost" not in values

    unkeyed = oracle.make({"records": [{"key": None, "value": b"lost", "timestamp": T0}]})
    answer = oracle.partition(
        stations,
        [{"what": "append", "batches": unkeyed}],
        clean=True,
        now=T0,
        config={"cleanup.policy": "compact"},
    )
    assert "without key" in answer.found[0]["message"]


def _appended(partition: Path, capfd: pytest.CaptureFixture[str]) -> list[int]:
    """Append the lines; returns the numbers of records that the findings name."""
    lines = partition.parent.parent / "lines.jsonl"
    lines.write_text("".join(json.dumps(line) + "\n" for line in LINES))
    rows = rows_of(capfd, "append", "--apply", "--from", lines, partition, status=0)
    return [row["records"] for row in rows if row.get("id") == "unkeyed-in-compacted"]


def _values(partition: Path, capfd: pytest.CaptureFixture[str]) -> set[Any]:
    rows = rows_of(capfd, "dump", "--deep-iteration", partition)
    return {row["value"] for row in rows if row["type"] == "record"}
