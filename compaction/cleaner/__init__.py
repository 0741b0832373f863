"""Offline log cleaner (Kafka 4.3: Cleaner, LogCleanerManager): plan a compaction and apply it."""
