"""Transactions: which are open and which hang, from the coordinator's log and the logs of the partitions together."""
