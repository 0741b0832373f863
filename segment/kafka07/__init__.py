"""Logs of Kafka 0.7, whose offsets are byte positions."""
