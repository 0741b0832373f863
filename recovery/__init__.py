"""The room `recovery`: from evidence to a sound log."""
