"""Comparing two copies of partitions: `kseg diff`."""
