"""Partitions and data directories: names, targets, and a read-only view of a log."""
