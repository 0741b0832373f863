"""Doctor if the log of a segment is missing: look for it before the repair removes what is left of the segment."""

from __future__ import annotations

import shlex
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.support.command_lines import Capfd
from tests.support.command_rows import of_type
from tests.support.doctor_helpers import commands, doctor, text_of

FIRST = f"{0:020d}.log"


@pytest.mark.evidence("segment-missing")
def test_missing_log_is_searched_for_before_the_repair(
    capture_small: Path, tmp_path: Path, capfd: Capfd
) -> None:
    data = Path(shutil.copytree(capture_small / "data", tmp_path / "node" / "data"))
    backup = Path(shutil.copytree(data, tmp_path / "backup"))
    (data / "metro-none-0" / FIRST).unlink()
    rows = doctor(capfd, data, status=1)
    (lost,) = [row for row in of_type(rows, "finding") if row["id"] == "segment-missing"]
    assert (lost["first_offset"], lost["last_offset"]) == (0, 71)
    costs = "metro-none-0: `recover` loses nothing; a broker loses nothing; the records of 1 missing log are lost unless it is found"
    assert f"  {costs}" in text_of(capfd, data)
    find, plan, *_ = commands(rows)
    assert plan == f"kseg recover {data}"
    words = shlex.split(find)
    assert words[:2] == ["find", "/"]
    found = subprocess.run(
        [words[0], str(tmp_path), *words[2:]], capture_output=True, text=True, check=True
    ).stdout.split()
    assert found == [str(backup / "metro-none-0" / FIRST)]
    shutil.copy2(found[0], data / "metro-none-0")
    assert "broker starts" in text_of(capfd, data)[0]
    assert not [step for step in commands(doctor(capfd, data, status=0)) if step.startswith("kseg recover")]


def test_many_missing_logs_are_counted_after_the_first_five(data: Path, capfd: Capfd) -> None:
    logs = sorted(data.glob(f"*/{FIRST}"))
    for log in (each for each in logs if "metro" in str(each) or "gates" in str(each)):
        log.unlink()
    rows = doctor(capfd, data, status=1)
    lost = [row for row in of_type(rows, "finding") if row["id"] == "segment-missing"]
    assert len(lost) > 5
    (rest,) = (row for row in of_type(rows, "step") if row["why"].startswith("Likewise for"))
    assert rest["why"] == f"Likewise for {len(lost) - 5} more segment{'s' * (len(lost) > 6)}: list them."
    assert rest["command"] == f"kseg verify --verbose {data}"
