"""Tiered storage according to `__remote_log_metadata`: which segments of a partition are in the remote store, and which offsets they
serve."""
