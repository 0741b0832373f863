"""`spark.read.format("kafka-log")` on logs in object stores and archives: tasks find the files that the driver has planned."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

pytest.importorskip("pyspark")
pytest.importorskip("pyarrow")

from kseg.spark.source import register
from tests.support.archives import nothing_attached, tar_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark
COLUMNS = ("topic", "partition", "offset", "value")


@pytest.fixture
def spark(local_spark: SparkSession) -> Iterator[SparkSession]:
    register(local_spark)
    with nothing_attached():
        yield local_spark


def rows(spark: SparkSession, path: Path | str) -> list[tuple[object, ...]]:
    frame = spark.read.format("kafka-log").load(str(path))
    return sorted(tuple(row) for row in frame.select(*COLUMNS).collect())


@pytest.mark.parametrize("name", ["b.tar", "b.tar.zst"])
def test_source_reads_an_archive(spark: SparkSession, capture_small: Path, tmp_path: Path, name: str) -> None:
    data = Path(shutil.copytree(capture_small / "data", tmp_path / "data"))
    archive = tar_of(data, tmp_path / name)
    there = rows(spark, f"{archive}/data/metro-zstd-0")
    assert len(there) == 160
    assert there == rows(spark, data / "metro-zstd-0")
