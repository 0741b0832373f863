"""The room `change/append`: writers: batches of every magic, segments, partitions."""
