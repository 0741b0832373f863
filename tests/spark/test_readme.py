"""The Spark examples in docs/usage.md and docs/spark.md run as written."""

from __future__ import annotations

import re
import runpy
import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from kseg.cli.main import run
from tests.spark.conftest import LOCAL, Use
from tests.support.command_lines import Capfd
from tests.support.paths import ROOT

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tests.spark.standalone import Standalone

pytestmark = pytest.mark.spark


def example(page: str, heading: str, language: str) -> str:
    """The first block in a language below a heading."""
    text = (ROOT / page).read_text(encoding="utf-8").partition(f"\n## {heading}\n")[2]
    return text.partition(f"\n```{language}\n")[2].partition("\n```\n")[0]


@pytest.fixture
def data(capture_small: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    shutil.copytree(capture_small / "data", tmp_path / "data")
    monkeypatch.chdir(tmp_path)
    return tmp_path / "data"


def test_commands_of_the_usage_page_run_as_written(
    data: Path, standalone: Standalone, use_master: Use, capfd: Capfd
) -> None:
    lines = [line for line in example("docs/usage.md", "On a Spark cluster", "sh").splitlines() if line]
    assert len(lines) == 3
    shell = f'export SPARK_MASTER={standalone.url}; kseg() {{ "{sys.executable}" -m kseg "$@"; }}; '
    # a standalone cluster gives all of its cores to one application
    use_master(LOCAL)
    first = subprocess.run(
        ["sh", "-c", shell + lines[0]], capture_output=True, text=True, timeout=1200, check=True
    )  # in its own session, as typed; the others share one
    assert first.stdout.endswith("0 errors, 0 warnings\n") and not first.stderr
    use_master(standalone.url)
    for line in lines[1:]:
        words = line.partition("#")[0].split()[1:]
        own = [word for word in words if word not in ("--spark", "--master", '"$SPARK_MASTER"')]
        alone = run(own), capfd.readouterr()
        assert (run([*own, "--spark", "--master", standalone.url]), capfd.readouterr()) == alone
        assert alone[1].out


def test_dataframe_example_of_the_page_runs_as_written(
    data: Path, local_spark: SparkSession, capfd: Capfd
) -> None:
    log = data / "metro-zstd-0" / "00000000000000000000.log"
    log.write_bytes(log.read_bytes()[:-7])
    program = data.parent / "example.py"
    program.write_text(example("docs/spark.md", "From Python", "python"), encoding="utf-8")
    runpy.run_path(str(program))
    shown = capfd.readouterr().out
    assert re.search(r"\|\s*error\s*\|\s*torn-tail\s*\|\s*1\s*\|", shown), shown
