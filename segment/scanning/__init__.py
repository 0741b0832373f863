"""The room `segment/scanning`: from bytes to judged batches, damage spans and records."""
