"""Kafka's internal topics: their records, decoded by schemas that are data.

Beside recovery and compaction in the order of the rooms: whoever needs decoded internal topics receives plain values from
the command line or from Spark.
"""
