"""Benchmarks: kseg raced against the real Kafka tools over the same files."""
