"""`what-if`: the size of a topic with other settings, from real batches, sampled evenly and recompressed with the real codecs."""
