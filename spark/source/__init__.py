"""The data source `kafka-log`: segments as DataFrames, with the names and types of Spark's own Kafka source."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def register(spark: "SparkSession") -> None:
    """Register `kafka-log` and its functions with a session, without changing its settings."""
    # imported here, so that options can be read without Spark
    from kseg.spark.source.source import register as register_in

    register_in(spark)
