"""The same commands on a Spark cluster, and the data source kafka-log."""
