"""What the broker's log cleaner would do (Kafka 4.3: Cleaner, LogCleanerManager), planned and carried out offline."""
