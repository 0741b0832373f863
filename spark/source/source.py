"""`kafka-log` as a data source of Spark.

from kseg.spark.source import register

register(spark)
spark.read.format("kafka-log").load("/var/lib/kafka/data")
"""

from typing import TYPE_CHECKING

import pyspark
from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
)

from kseg.segment.errors import UsageError
from kseg.spark.source.options import RECORDS, SourceOptions, read_options
from kseg.spark.source.source_schema import check_schema, default_schema

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark.sql import SparkSession
    from pyspark.sql.types import StructType

NAME = "kafka-log"


class KafkaLog(DataSource):
    """Segments of Kafka's logs, read from and written to disk without a broker."""

    @classmethod
    def name(cls) -> str:
        return NAME

    def schema(self) -> "StructType":
        options = _options_of_either(self.options)
        if options.table != RECORDS or not options.decodes_any:
            return default_schema(options)
        from kseg.spark.source.payloads import decoder_of, kinds_of

        return default_schema(options, kinds_of(options, decoder_of(options)))

    def reader(self, schema: "StructType") -> DataSourceReader:
        from kseg.spark.source.reader import LogReader

        options = read_options(self.options)
        if options.table != RECORDS or not options.decodes_any:
            check_schema(schema, options)
            return LogReader(options, schema)
        from kseg.spark.source.payloads import decoder_of, kinds_of

        decoder = decoder_of(options)
        kinds = kinds_of(options, decoder, schema)
        check_schema(schema, options, kinds)
        return LogReader(options, schema, decoder, kinds)

    def streamReader(self, schema: "StructType") -> DataSourceStreamReader:
        _need("4.2", "reading a stream of")
        from kseg.spark.source.stream import KafkaLogStreamReader

        return KafkaLogStreamReader(schema, self.options)

    def writer(self, schema: "StructType", overwrite: bool) -> DataSourceWriter:
        _need("4.1", "writing")
        from kseg.spark.source.write.writer import KafkaLogWriter

        return KafkaLogWriter(schema, self.options, overwrite)

    def streamWriter(self, schema: "StructType", overwrite: bool) -> DataSourceStreamWriter:
        _need("4.1", "writing")
        from kseg.spark.source.write.writer import KafkaLogStreamWriter

        return KafkaLogStreamWriter(schema, self.options, overwrite)


def _need(version: str, what: str) -> None:
    """Raises UsageError if this version of Spark lacks a feature: Arrow writers came with 4.1, bounded stream readers with 4.2."""
    least, here = ([int(number) for number in text.split(".")[:2]] for text in (version, pyspark.__version__))
    if here < least:
        raise UsageError(
            f"{what} kafka-log needs Spark {version} or newer, and this is {pyspark.__version__}"
        )


def _options_of_either(given: "Mapping[str, str]") -> SourceOptions:
    """The options of a batch or streaming read: when Spark asks for the schema, it does not say which one it will be."""
    try:
        return read_options(given)
    except UsageError as refused:
        try:
            return read_options(given, streaming=True)
        except UsageError:
            raise refused from None


def register(spark: "SparkSession") -> None:
    """Register `kafka-log` and its functions with a session, without changing its settings."""
    from kseg.spark.source.functions import register_functions

    spark.dataSource.register(KafkaLog)
    register_functions(spark)
