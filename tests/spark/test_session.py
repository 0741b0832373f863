"""The session that kseg creates on this machine: tasks are passed to Python through private files that are removed with the session."""

from __future__ import annotations

import json
import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from tests.spark.conftest import LOCAL, require_spark

pytestmark = pytest.mark.spark

PROGRAM = """
import json, os, sys
from kseg.spark import session
from kseg.spark.options import ClusterOptions
spark = session.get(ClusterOptions(master=sys.argv[1], conf=tuple(json.loads(sys.argv[2]).items())))
context = spark.sparkContext
settings = {name: context.getConf().get(f"spark.python.unix.domain.socket.{name}") for name in ("enabled", "dir")}
settings["sum"] = context.parallelize(range(10), 4).map(lambda number: number * number).sum()
directory = settings["dir"]
if directory and os.path.isdir(directory):
    settings["mode"] = os.stat(directory).st_mode
    settings["files"] = len(os.listdir(directory))
if sys.argv[3] == "stop":
    spark.stop()
print(json.dumps(settings))
"""


def reported(temporary: Path, conf: dict[str, str], end: str = "") -> dict[str, object]:
    require_spark()
    output = subprocess.run(
        [sys.executable, "-c", PROGRAM, LOCAL, json.dumps(conf), end],
        capture_output=True,
        text=True,
        env={**os.environ, "TMPDIR": str(temporary)},
        timeout=1200,
        check=True,
    )
    answer: dict[str, object] = json.loads(output.stdout)
    assert answer["sum"] == 285
    return answer


@pytest.mark.parametrize("end", ["leave", "stop"])
def test_worker_sockets_are_files_in_a_private_temporary_directory(end: str) -> None:
    temporary = Path("/tmp")
    answer = reported(temporary, {}, end)
    directory = Path(str(answer["dir"]))
    assert (answer["enabled"], directory.parent) == ("true", temporary)
    mode = answer["mode"]
    assert isinstance(mode, int)
    assert stat.S_IMODE(mode) == 0o700
    assert answer["files"]
    assert not directory.exists()


def test_too_long_path_is_not_used_for_worker_sockets(tmp_path: Path) -> None:
    long = tmp_path / ("long" * 20)
    long.mkdir()
    answer = reported(long, {})
    assert (answer["enabled"], answer["dir"]) == (None, None)


def test_user_setting_for_worker_sockets_is_kept() -> None:
    answer = reported(Path("/tmp"), {"spark.python.unix.domain.socket.enabled": "false"})
    assert answer["enabled"] == "false"
