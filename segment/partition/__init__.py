"""The room `segment/partition`: partitions and data directories: names, inventory, and a read-only view of a log."""
