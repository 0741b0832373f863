"""What will change on disk, as a value: planned by recovery, compaction and retention, carried out by `apply`."""
