"""Appending encoded batches to a partition, as a broker would: input, batching, segments, journal."""
