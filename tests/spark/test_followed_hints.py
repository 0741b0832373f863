"""The `next:` line of a run on a cluster works exactly as printed: on the same cluster, with the same settings, whatever characters the
path contains.

Three runs, each with its own session, take half a minute of processor time.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from fixtures import diseases, healthy
from kseg.segment.terminal import shell_quoted
from tests.cli.test_followed_hints import ODD, TypedShell
from tests.spark.conftest import LOCAL, require_spark
from tests.support.damaged_dirs import INNER

pytestmark = pytest.mark.spark
CLUSTER = f"--spark --master '{LOCAL}' --spark-conf spark.ui.enabled=false"


def test_printed_hints_repair_a_log_on_the_cluster(tmp_path: Path) -> None:
    require_spark()
    data = tmp_path / ODD / "data"
    healthy.log_dir(tmp_path / "made")
    (tmp_path / ODD).mkdir()
    shutil.move(tmp_path / "made", data)
    diseases.bad_crc(data / f"{INNER}.log")
    typed, target = TypedShell(tmp_path), shell_quoted(os.path.join(ODD, "data"))
    status, line = typed.type(f"kseg verify {CLUSTER} --topic 'metro*' {target}")
    assert (status, line) == (1, f"kseg recover --topic 'metro*' {CLUSTER} {target}")
    status, line = typed.type(line)
    assert (status, line) == (1, f"kseg recover --apply --topic 'metro*' {CLUSTER} {target}")
    status, line = typed.type(line, "undo with: ")
    assert status == 0
    assert typed.type(f"kseg verify --topic 'metro*' {target}")[0] == 0
    assert typed.type(line)[0] == 0
    assert typed.type(f"kseg verify --topic 'metro*' {target}")[0] == 1
