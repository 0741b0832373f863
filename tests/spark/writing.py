"""The writers of `kafka-log` in a session, for the tests of writing."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def register(spark: SparkSession) -> None:
    """Make the session know the data source."""
    from pyspark.sql.datasource import DataSource, DataSourceStreamWriter, DataSourceWriter
    from pyspark.sql.types import StructType

    from kseg.spark.source.options import read_options
    from kseg.spark.source.schema import default_schema
    from kseg.spark.source.stream import KafkaLogStreamReader
    from kseg.spark.source.writer import KafkaLogStreamWriter, KafkaLogWriter

    class KafkaLog(DataSource):
        @classmethod
        def name(cls) -> str:
            return "kafka-log"

        def schema(self) -> StructType:
            return default_schema(read_options(self.options, streaming=True))

        def streamReader(self, schema: StructType) -> KafkaLogStreamReader:
            return KafkaLogStreamReader(schema, self.options)

        def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
            return KafkaLogWriter(schema, self.options, overwrite)

        def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:
            return KafkaLogStreamWriter(schema, self.options, overwrite)

    spark.dataSource.register(KafkaLog)
