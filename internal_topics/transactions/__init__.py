"""Transactions: which are open and which are hanging, from the coordinator's log and the logs of the partitions together."""
