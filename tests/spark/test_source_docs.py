"""The reading examples on the page about the data source run as written."""

from __future__ import annotations

import io
import re
from collections import Counter
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("pyspark")
pytest.importorskip("pyarrow")

from kseg.spark.source.options import DEFAULT_BYTES_PER_BATCH, DEFAULT_RECORDS_PER_BATCH, READ_NAMES
from kseg.spark.source.source_schema import FINDING_FIELDS, META_TYPE, RECORD_FIELDS
from tests.support.paths import ROOT

if TYPE_CHECKING:
    from pyspark.sql import Row, SparkSession

PAGE = ROOT / "docs" / "data-source.md"
READING = PAGE.read_text(encoding="utf-8").partition("## Following a directory")[0]
PATH = "/var/lib/kafka/data"


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", READING, re.DOTALL)


def test_source_page_names_every_option_and_column() -> None:
    reported = set(re.findall(r"`([A-Za-z_.]+)`", READING))
    assert set(READ_NAMES) - {"path", "paths", "kafka.isolation.level"} <= reported
    assert {each.name for each in (*RECORD_FIELDS, *META_TYPE.fields, *FINDING_FIELDS)} <= reported
    assert f"{DEFAULT_RECORDS_PER_BATCH}, {DEFAULT_BYTES_PER_BATCH >> 20} MiB" in READING


def test_default_source_module_of_the_page_is_found_by_spark(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (example,) = (block for block in blocks("python") if "DefaultSource" in block)
    (tmp_path / "pyspark_kafka_log.py").write_text(example)
    monkeypatch.syspath_prepend(str(tmp_path))
    from pyspark.sql.worker import lookup_data_sources

    answer = io.BytesIO()
    # as a Spark worker does
    lookup_data_sources._main(io.BytesIO(), answer)
    assert answer.getvalue()[:4] == (1).to_bytes(4, "big") and b"kafka-log" in answer.getvalue()


@pytest.mark.spark
def test_examples_of_the_source_page_run_as_written(local_spark: SparkSession, capture_small: Path) -> None:
    names: dict[str, Any] = {"spark": local_spark}
    for block in blocks("python"):
        exec(block.replace(PATH, str(capture_small / "data")), names)  # noqa: S102  (our own page)
    log = names["log"].select("topic", "partition", "offset", "key", "value", "_meta").collect()
    assert names["crcs"].columns == ["offset", "_meta"] and names["crcs"].count() >= len(log)
    assert names["findings"].count() == 0

    queries = [local_spark.sql(block).collect() for block in blocks("sql")]
    minutes, keys, copies, gaps, codecs = queries
    assert sum(row.messages for row in minutes) == len(log)
    _check_keys(log, keys)
    _check_copies(log, copies)
    _check_gaps(log, gaps)
    assert {row.topic for row in codecs} == {row.topic for row in log}
    assert all(min(row.bytes, row.zstd, row.lz4) > 0 for row in codecs)
    plain = {row.topic: row for row in codecs if row.codec == "none"}
    assert all(row.bytes == row.plain for row in plain.values())
    assert plain["metro-none"].zstd < plain["metro-none"].plain


def _check_keys(log: list[Row], keys: list[Row]) -> None:
    sizes: Counter[tuple[str, bytes]] = Counter()
    for row in log:
        if row.key is not None:
            sizes[row.topic, bytes(row.key)] += len(row.value or b"")
    assert keys[0].bytes == max(sizes.values()) and len(keys) == 10
    assert [row.bytes for row in keys] == sorted(sizes.values(), reverse=True)[:10]


def _check_copies(log: list[Row], copies: list[Row]) -> None:
    counts = Counter((row.topic, bytes(row.value)) for row in log if row.value is not None)
    assert [row.copies for row in copies] == sorted(
        (count for count in counts.values() if count > 1), reverse=True
    )


def _check_gaps(log: list[Row], gaps: list[Row]) -> None:
    there: dict[tuple[str, int], list[int]] = {}
    for row in log:
        there.setdefault((row.topic, row.partition), []).append(row.offset)
    missing = [
        (topic, partition, before + 1, after - 1)
        for (topic, partition), offsets in sorted(there.items())
        for before, after in pairwise(offsets)
        if after > before + 1
    ]
    assert [tuple(row) for row in gaps] == missing and missing
