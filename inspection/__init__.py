"""Commands that only read: dump, lookup, fetch, inventory, export."""
