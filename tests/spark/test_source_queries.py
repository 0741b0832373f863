"""Queries over one DataFrame of `kafka-log` give the same results as over the same rows in memory.

A Python source is planned once for each DataFrame, and Spark reuses that plan for every query over it. With
`spark.sql.python.filterPushdown.enabled` it would also reuse the filters of the first query, so the source accepts none. kseg does not
change the setting.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

pytest.importorskip("pyspark")
pytest.importorskip("pyarrow")

from kseg.spark.source import register
from tests.support.scan_helpers import batch

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark
PUSHDOWN = "spark.sql.python.filterPushdown.enabled"
COLUMNS = ("topic", "partition", "offset", "timestamp", "key", "value")
WIDTHS = {"a-0": (3, 5, 2), "a-1": (4, 4), "b-0": (1, 1, 1, 6), "orders-7": (9,)}
ROWS = 36

# queries over a view {t}; the rows are sorted before they are compared
QUERIES = (
    "SELECT count(*) FROM {t}",
    "SELECT count(*) FROM {t} WHERE topic = 'a'",
    "SELECT topic, partition, count(*) FROM {t} WHERE offset >= 3 GROUP BY topic, partition",
    "SELECT * FROM {t} WHERE topic = 'b' OR partition = 7",
    "SELECT * FROM {t} WHERE topic LIKE 'a%' AND offset IN (1, 4)",
    "SELECT * FROM {t} WHERE timestamp > (SELECT min(timestamp) FROM {t} WHERE topic = 'b')",
    "SELECT max(offset) FROM {t} WHERE topic = 'none'",
    "SELECT l.offset, r.topic FROM {t} l JOIN {t} r ON l.offset = r.offset WHERE l.topic = 'a' AND r.topic = 'b'",
    "SELECT l.offset FROM {t} l LEFT ANTI JOIN (SELECT * FROM {t} WHERE offset < 4) r ON l.offset = r.offset",
    "SELECT offset FROM {t} WHERE topic = 'a' UNION ALL SELECT offset FROM {t} WHERE topic = 'b'",
    "SELECT offset FROM {t} WHERE topic = 'a' INTERSECT SELECT offset FROM {t} WHERE topic = 'orders'",
    "SELECT offset FROM {t} EXCEPT SELECT offset FROM {t} WHERE partition = 0",
    "SELECT (SELECT count(*) FROM {t} WHERE topic = 'a'), (SELECT count(*) FROM {t}), count(*) FROM {t} WHERE offset > 2",
    "SELECT * FROM {t} o WHERE EXISTS (SELECT 1 FROM {t} i WHERE i.topic = 'b' AND i.offset = o.offset)",
    (
        "WITH few AS (SELECT * FROM {t} WHERE offset < 3), late AS (SELECT * FROM {t} WHERE offset >= 3) "
        "SELECT count(*) FROM few UNION ALL SELECT count(*) FROM late UNION ALL SELECT count(*) FROM {t}"
    ),
    "SELECT topic, count(*) FILTER (WHERE offset > 1) FROM {t} GROUP BY topic HAVING count(*) > 8",
)


def written(home: Path) -> Path:
    """Partitions with the numbers of records in WIDTHS, batch by batch."""
    for name, widths in WIDTHS.items():
        offset, content = 0, b""
        for width in widths:
            content += batch(offset, width)
            offset += width
        (home / name).mkdir(parents=True)
        (home / name / f"{0:020d}.log").write_bytes(content)
    return home


@pytest.fixture(params=["unset", "true"])
def spark(request: pytest.FixtureRequest, local_spark: SparkSession) -> Iterator[SparkSession]:
    """A session with the source registered: with Spark's default for filter pushdown, and with pushdown enabled."""
    local_spark.conf.unset(PUSHDOWN)
    register(local_spark)
    assert PUSHDOWN not in local_spark.conf.getAll, "kseg never sets it"
    if request.param == "true":
        local_spark.conf.set(PUSHDOWN, "true")
    yield local_spark
    local_spark.conf.unset(PUSHDOWN)
    local_spark.catalog.clearCache()


@pytest.fixture(scope="module")
def answers() -> dict[tuple[str, str], list[str]]:
    """Cached results of queries over rows in memory, by rows and query. The setting of `spark` affects only Python sources, so both of its
    values are compared with the same results."""
    return {}


def same(
    spark: SparkSession,
    frame: DataFrame,
    memory: DataFrame,
    count: int,
    answers: dict[tuple[str, str], list[str]],
) -> None:
    """Run `count` of the queries in a shuffled order."""
    frame.createOrReplaceTempView("log")
    memory.createOrReplaceTempView("held")
    held = repr(sorted(map(repr, memory.collect())))
    for query in random.Random(12).sample(QUERIES, count):
        found = sorted(map(repr, spark.sql(query.format(t="log")).collect()))
        if (held, query) not in answers:
            answers[held, query] = sorted(map(repr, spark.sql(query.format(t="held")).collect()))
        assert found == answers[held, query], query


def test_many_queries_over_one_dataframe_give_correct_rows(
    spark: SparkSession, tmp_path: Path, answers: dict[tuple[str, str], list[str]]
) -> None:
    load = spark.read.format("kafka-log").load
    home = str(written(tmp_path / "data"))
    rows = load(home).select(*COLUMNS).collect()
    assert len(rows) == ROWS == sum(map(sum, WIDTHS.values()))
    memory = spark.createDataFrame(rows, load(home).select(*COLUMNS).schema)
    frame = load(home).select(*COLUMNS)
    # so the first query has a filter
    assert frame.where("topic = 'a'").count() == 18
    same(spark, frame, memory, 10 if spark.conf.get(PUSHDOWN) == "true" else 6, answers)
    kept = load(home).select(*COLUMNS).where("offset < 5").cache()
    assert kept.where("topic = 'b'").count() == 5
    same(spark, kept, memory.where("offset < 5"), 4, answers)
    assert load(home).select(*COLUMNS).cache().where("topic = 'b'").count() == 9


def test_dataframe_over_a_growing_directory_reads_new_records(spark: SparkSession, tmp_path: Path) -> None:
    """Each action reads what has been appended since. A new partition needs a new frame (docs/data-source.md)."""
    home = written(tmp_path / "data")
    load = spark.read.format("kafka-log").load
    frame = load(str(home)).select(*COLUMNS)
    assert frame.count() == ROWS
    with (home / "b-0" / f"{0:020d}.log").open("ab") as log:
        log.write(batch(9, 4))
    assert frame.count() == ROWS + 4
    (home / "b-1").mkdir()
    (home / "b-1" / f"{0:020d}.log").write_bytes(batch(0, 5))
    assert load(str(home)).count() == ROWS + 9


def test_two_filters_of_one_dataframe_can_be_joined(spark: SparkSession, tmp_path: Path) -> None:
    frame = spark.read.format("kafka-log").load(str(written(tmp_path / "data")))
    a, b = frame.where("topic = 'a'"), frame.where("topic = 'b'")
    assert (frame.count(), a.count(), frame.count(), b.count()) == (ROWS, 18, ROWS, 9)
    # b has offsets 0…8, a-0 has 0…9 and a-1 has 0…7
    assert a.join(b, "offset").count() == 9 + 8
    assert a.union(b).count() == 27 and a.union(frame).count() == 18 + ROWS


def test_queries_over_the_findings_table(spark: SparkSession, tmp_path: Path) -> None:
    home = written(tmp_path / "data")
    for name in ("a-1", "b-0"):
        log = home / name / f"{0:020d}.log"
        content = bytearray(log.read_bytes())
        content[-1] ^= 1
        log.write_bytes(content)
    frame = spark.read.format("kafka-log").option("table", "findings").load(str(home))
    counts = (
        frame.where("topic = 'a'").count(),
        frame.count(),
        frame.where("partition = 0 AND first_offset >= 3").count(),
        frame.where("topic = 'orders'").count(),
        frame.where("topic = 'a'").union(frame.where("topic = 'b'")).count(),
        frame.count(),
    )
    assert counts == (1, 2, 1, 0, 2, 2)
