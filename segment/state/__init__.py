"""State from a replay of the log: producers, transactions, control records."""
