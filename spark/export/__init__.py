"""`export` on a cluster: reads `kafka-log` and writes files or Delta and Iceberg tables with Spark."""
