"""Writes to kafka-log: runs of records by tasks, merged and committed by the driver."""
