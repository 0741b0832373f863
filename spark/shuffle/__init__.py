"""Compaction of one partition whose keys are too many for one machine: the map of keys by a shuffle, the rewriting by group."""
