"""A real broker's directory, loaded as a DataFrame, has what a real consumer received, in both isolation levels, from a live copy and after
a clean stop. Spark's own Kafka source has the same schema and the same rows for the same broker."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

pytest.importorskip("pyspark")
pytest.importorskip("pyarrow")
pytest.importorskip("confluent_kafka")

from kseg.spark.source import register
from tests.kafka.broker import Consumed
from tests.kafka.conftest import everything  # noqa: F401  (a fixture)
from tests.kafka.scenario import SINGLE_TOPICS, Written

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.kafka]


def consumed(frame: DataFrame) -> dict[tuple[str, int], list[Consumed]]:
    """Rows in the form of the consumer's, whose numbers for timestamp types are one above Kafka's."""
    found: dict[tuple[str, int], list[Consumed]] = {}
    millis = frame.selectExpr("*", "unix_millis(timestamp) AS ms")
    for row in millis.collect():
        headers = tuple((each.key, _bytes(each.value)) for each in row.headers or ())
        record = Consumed(
            row.offset, row.timestampType + 1, row.ms, _bytes(row.key), _bytes(row.value), headers
        )
        found.setdefault((row.topic, row.partition), []).append(record)
    return found


def _bytes(value: bytearray | None) -> bytes | None:
    return None if value is None else bytes(value)


@pytest.mark.parametrize("transactions", ["log", "index"])
@pytest.mark.parametrize("state", ["live", "stopped"])
def test_dataframe_equals_the_records_a_consumer_received(
    local_spark: SparkSession,
    everything: Written,  # noqa: F811
    state: str,
    transactions: str,
) -> None:
    register(local_spark)
    data: Path = getattr(everything, state)
    reader = local_spark.read.format("kafka-log").options(
        subscribe=",".join(SINGLE_TOPICS), includeHeaders="true", transactions=transactions
    )
    # the live copy may end with a batch that was being written
    uncommitted = consumed(reader.load(str(data)))
    committed = consumed(reader.option("kafka.isolation.level", "read_committed").load(str(data)))

    assert uncommitted == dict(everything.uncommitted)
    assert committed == {where: rows for where, rows in everything.committed.items() if rows}
    assert committed["transactions", 0] != uncommitted["transactions", 0]
