"""Every read-only command says the same with --spark as without: text, JSON lines and exit status."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from kseg.cli.main import run

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark
Unchanged = Callable[..., AbstractContextManager[None]]
NOW = "2024-06-01T00:00:00Z"


def said(words: list[str], capfd: pytest.CaptureFixture[str]) -> tuple[int, str, str]:
    status = run(words)
    out, err = capfd.readouterr()
    return status, out, err


@pytest.mark.parametrize("json", [[], ["--json"]], ids=["text", "json"])
@pytest.mark.parametrize("level", [["--quick"], [], ["--deep"]], ids=["quick", "default", "deep"])
def test_verify(
    any_spark: SparkSession,
    capture_small: Path,
    level: list[str],
    json: list[str],
    unchanged: Unchanged,
    capfd: pytest.CaptureFixture[str],
) -> None:
    words = ["verify", *level, *json, "--now", NOW, str(capture_small / "data")]
    with unchanged(capture_small):
        alone = said(words, capfd)
        assert said([*words, "--spark"], capfd) == alone
