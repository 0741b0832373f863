"""The room `segment/writing`: writers: batches of every magic, segments, partitions."""
