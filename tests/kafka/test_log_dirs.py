"""The forecast of `verify` compared with the real LogManager, on random data directories with every kind of content.

`KSEG_LOG_DIRS` is the number of cases (default 20), `KSEG_LOG_DIRS_SEED` the first seed. What the cleaner and the replica manager read is
read after the LogManager, so tests that start a broker cover it.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Any

import pytest

from tests.kafka.odd_log_dirs import random_log_dirs
from tests.kafka.oracle import Oracle
from tests.support.command_rows import rows_of

pytestmark = pytest.mark.kafka
COUNT = int(os.environ.get("KSEG_LOG_DIRS", "20"))
FIRST_SEED = int(os.environ.get("KSEG_LOG_DIRS_SEED", "1"))
LATER = ("replication-offset-checkpoint", "cleaner-offset-checkpoint")


def differences(oracle: Oracle, log_dirs: list[Path], rows: list[dict[str, Any]]) -> list[str]:
    """One line for each way in which the forecast differs from what happens."""
    copies = {str(oracle.copy(log_dir)): log_dir for log_dir in log_dirs}
    happened = oracle.ask("log_dirs", dirs=list(copies), now=1_700_000_000_000, config={})[0]
    for copy in copies:
        # the log manager may still be creating files
        shutil.rmtree(Path(copy).parent, ignore_errors=True)
    start = next((row for row in rows if row["type"] == "broker-start"), None)
    if "thrown" in happened:
        return _of_a_start_that_fails(happened["thrown"]["exception"], start, rows)
    offline = {str(copies[path]) for path in happened["offline"]}
    if start is None:
        return [f"{offline} go offline, nothing is said"] if offline else []
    output = {
        each["log_dir"]
        for each in start["log_dirs_offline"]
        if each["log_dir"] in offline or not any(name in each["message"] for name in LATER)
    }
    lines = [] if output == offline else [f"{offline} go offline, ours {output}"]
    if start["outcome"] == "does-not-start" and len(offline) < len(log_dirs) and not output:
        lines.append(f"it starts, ours {start['exception']}: {start['message']}")
    starts = {row["path"]: row["start"] for row in rows if row["type"] == "verified"}
    for log in happened["logs"]:
        path = Path(log["directory"])
        log_dir = copies[str(path.parent)]
        ours = starts[str(log_dir / path.name)]
        names = ("log_start_offset", "log_end_offset")
        if str(log_dir) not in offline and any(ours[name] != log[name] for name in names):
            lines.append(f"{path.name}: {log}, ours {ours}")
    return lines


def _of_a_start_that_fails(
    exception: str, start: dict[str, Any] | None, rows: list[dict[str, Any]]
) -> list[str]:
    """If several partitions cannot be loaded, marked for deletion or not, the order of the threads decides which one is named."""
    name = exception.rpartition(".")[2]
    if start is None:
        return [f"{name} ends the start, nothing is said"]
    failed = {each["exception"] for each in start["partitions_failed"]}
    of_directories = [row.get("start") or {} for row in rows if row["type"] == "verified"]
    reasons = (each.get(kind, ()) for each in of_directories for kind in ("unloadable", "offline"))
    failed |= {thrown for found in reasons for thrown, _ in found}
    # how another partition in the same directory fails depends on which of them is loaded first
    is_by_turns = name == "KafkaStorageException" and failed & {"IOException", "MalformedInputException"}
    if name in failed or start["exception"] == name or is_by_turns:
        return []
    if start["outcome"] == "does-not-start" and (failed or start["exception"] == "IllegalStateException"):
        return []
    return [f"{name} ends the start, ours {start['outcome']} {start['exception']}"]


@pytest.mark.evidence("broker-start")
@pytest.mark.parametrize("seed", range(FIRST_SEED, FIRST_SEED + COUNT))
def test_forecast_for_random_data_directories_matches_log_manager(
    oracle: Oracle, tmp_path: Path, capfd: pytest.CaptureFixture[str], seed: int
) -> None:
    log_dirs = random_log_dirs(seed, tmp_path)
    assert differences(oracle, log_dirs, rows_of(capfd, "verify", "--no-progress", *log_dirs)) == []


@pytest.mark.parametrize("seed", [6, 284, 1928, 2503, 2694, 5100026])
def test_forecast_for_data_directories_that_once_differed_matches_log_manager(
    oracle: Oracle, tmp_path: Path, capfd: pytest.CaptureFixture[str], seed: int
) -> None:
    """Seeds with an open transaction in an offline directory; a negative number of entries; a duplicate partition, one of which is not
    loaded; a directory marked for deletion that cannot be loaded; an empty segment named after the offset of a batch; and a directory
    marked for deletion that takes the data directory offline before another log is recovered in it."""
    test_forecast_for_random_data_directories_matches_log_manager(oracle, tmp_path, capfd, seed)


def test_batch_moves_to_the_empty_segment_with_its_offset(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """The new segment for the batch has the name of the empty one, and the plan used to write its indexes twice."""
    log_dirs = random_log_dirs(2694, tmp_path)
    rows = rows_of(capfd, "recover", "--no-progress", *log_dirs, status=1)
    assert [row["targets_failed"] for row in rows if row["type"] == "summary"] == [0]
