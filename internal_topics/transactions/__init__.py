"""Transactions: what the coordinator's log and the logs of partitions say together about which are open, and which hang."""
