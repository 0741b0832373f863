"""The room `compaction`: what the broker's cleaner and retention would do, offline."""
