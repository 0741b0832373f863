"""Kafka's internal topics: their records, decoded by schemas that are data.

A sibling of recovery and compaction in the layering: code there that needs decoded internal topics receives plain values from
the command line or from Spark.
"""
