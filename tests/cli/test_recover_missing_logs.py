"""What `recover` says about records that were missing before: their log is missing or empty, and only the indexes show what it had."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

from kseg.cli.main import run
from tests.support.command_lines import Capfd, json_run

# the segments begin at offsets 0, 72 and 144
FIRST, NEXT = 0, 72


@pytest.fixture
def partition(data: Path) -> Path:
    return data / "metro-none-0"


def _result(capfd: Capfd, *words: object) -> dict[str, Any]:
    _, rows = json_run("recover", *words, capfd=capfd)
    return next(row for row in rows if row.get("partition") == "metro-none-0" and row["type"] == "result")


@pytest.mark.parametrize("policy", ["salvage", "kafka"])
@pytest.mark.parametrize("is_clean", [True, False], ids=["clean", "unclean"])
@pytest.mark.parametrize("is_empty", [True, False], ids=["empty", "gone"])
def test_repair_tells_which_records_were_missing_before(
    partition: Path, capfd: Capfd, policy: str, is_clean: bool, is_empty: bool
) -> None:
    """A broker serves what is left. A load that recovers the segment leaves nothing that shows what it had."""
    log = partition / f"{FIRST:020d}.log"
    log.write_bytes(b"") if is_empty else log.unlink()
    words: list[object] = ["--policy", policy, partition]
    if not is_clean:
        words += ["--unclean-shutdown", "--recovery-point", "0"]
    missing = {"first_offset": FIRST, "last_offset": NEXT - 1, "finding": "segment-missing"}
    for options in ((), ("--apply",)):
        result = _result(capfd, *options, *words)
        (row,) = result["missing"]
        assert Path(row.pop("file")).stem == log.stem and row == missing
        assert all(cost["records"] == 0 for cost in result["costs"].values())
    # a clean load trusts the indexes of an empty log
    is_left = policy == "kafka" and is_clean and is_empty
    assert bool(_result(capfd, *words)["missing"]) is is_left


def test_log_of_another_segment_was_missing_before(partition: Path, capfd: Capfd) -> None:
    """A repair was said to lose nothing, and consumers get nothing of these offsets."""
    log = partition / f"{NEXT:020d}.log"
    shutil.copyfile(partition / f"{FIRST:020d}.log", log)
    result = _result(capfd, "--apply", partition)
    assert [(row["first_offset"], row["last_offset"], row["file"]) for row in result["missing"]] == [
        (NEXT, 143, str(log))
    ]
    assert result["costs"]["salvage"]["records"] == 0


def test_missing_records_are_in_the_text(partition: Path, capfd: Capfd) -> None:
    for base in (FIRST, NEXT):
        (partition / f"{base:020d}.log").unlink()
    words = "the records of 2 logs were missing before"
    run(["recover", str(partition)])
    assert (
        f"  {words} (offsets 0 to 71, offsets 72 to 143), and no repair restores them"
        in capfd.readouterr().out
    )
    run(["recover", str(partition.parent)])
    text = capfd.readouterr().out
    assert text.startswith(f"DUE: 1 of 12 partitions is to be repaired, no record lost; {words}\n")
