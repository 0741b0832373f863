"""Commands that only read: dump, list, lookup, read, export, diff, what-if."""
