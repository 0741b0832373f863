"""`export` on a cluster: `kafka-log` in, whatever Spark writes out. Files, and the tables of Delta and Iceberg."""
