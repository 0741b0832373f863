"""`verify`: read-only checks of files, partitions and data directories."""
