"""`verify`: read-only judgement of files, partitions and data directories."""
