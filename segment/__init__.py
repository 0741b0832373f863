"""Kafka's on-disk format: everything that reads, checks and writes its files."""
