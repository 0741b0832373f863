"""The session that kseg creates on this machine: tasks are passed to Python through private files that are removed with the session."""

from __future__ import annotations

import json
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from tests.spark.conftest import LOCAL, require_spark

pytestmark = pytest.mark.spark

# each case is a session of its own, one after the other in one process: the setting, the directory for temporary files, whether the session
# is stopped before the process ends
PROGRAM = """
import json, os, sys, tempfile
from kseg.spark import session
from kseg.spark.options import ClusterOptions
for conf, temporary, is_stopped in json.loads(sys.argv[2]):
    os.environ["TMPDIR"], tempfile.tempdir = temporary, None
    spark = session.get(ClusterOptions(master=sys.argv[1], conf=tuple(conf.items())))
    context = spark.sparkContext
    settings = {name: context.getConf().get(f"spark.python.unix.domain.socket.{name}") for name in ("enabled", "dir")}
    settings["sum"] = context.parallelize(range(10), 4).map(lambda number: number * number).sum()
    directory = settings["dir"]
    if directory and os.path.isdir(directory):
        settings["mode"] = os.stat(directory).st_mode
        settings["files"] = len(os.listdir(directory))
    if is_stopped:
        spark.stop()
    print(json.dumps(settings), flush=True)
"""
Answers = dict[str, dict[str, object]]


@pytest.fixture(scope="module")
def answers(brief_java: None, tmp_path_factory: pytest.TempPathFactory) -> Answers:
    """What each session reported, after the end of their process."""
    require_spark()
    long = tmp_path_factory.mktemp("long") / ("long" * 20)
    long.mkdir()
    cases = {
        "too long": ({}, str(long), True),
        "user": ({"spark.python.unix.domain.socket.enabled": "false"}, "/tmp", True),
        "stop": ({}, "/tmp", True),
        "leave": ({}, "/tmp", False),
    }
    output = subprocess.run(
        [sys.executable, "-c", PROGRAM, LOCAL, json.dumps([*cases.values()])],
        capture_output=True,
        text=True,
        timeout=1200,
        check=True,
    )
    found: Answers = dict(zip(cases, map(json.loads, output.stdout.splitlines()), strict=True))
    assert all(answer["sum"] == 285 for answer in found.values())
    return found


@pytest.mark.parametrize("end", ["leave", "stop"])
def test_worker_sockets_are_files_in_a_private_temporary_directory(end: str, answers: Answers) -> None:
    answer = answers[end]
    directory = Path(str(answer["dir"]))
    assert (answer["enabled"], directory.parent) == ("true", Path("/tmp"))
    mode = answer["mode"]
    assert isinstance(mode, int)
    assert stat.S_IMODE(mode) == 0o700
    assert answer["files"]
    assert not directory.exists()


def test_too_long_path_is_not_used_for_worker_sockets(answers: Answers) -> None:
    assert (answers["too long"]["enabled"], answers["too long"]["dir"]) == (None, None)


def test_user_setting_for_worker_sockets_is_kept(answers: Answers) -> None:
    assert answers["user"]["enabled"] == "false"
