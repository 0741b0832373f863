"""What a topic would weigh with other settings: real batches, sampled evenly, compressed anew with the real codecs."""
