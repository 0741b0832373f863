"""Compaction of a partition with too many keys for one machine: a shuffle replaces the map of keys, and tasks rewrite groups of
segments."""
