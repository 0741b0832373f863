"""`recover` for Kafka 0.7: what its broker does, and what can be kept although offsets are byte positions."""
