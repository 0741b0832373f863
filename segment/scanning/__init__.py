"""From bytes to batches, damage and records."""
