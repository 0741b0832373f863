"""Tiered storage as `__remote_log_metadata` has it: which segments of a partition are in the remote store, and which offsets they serve."""
