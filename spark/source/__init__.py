"""The data source `kafka-log`: segments as DataFrames, named and typed as Spark's own Kafka source names and types them."""
