"""`recover` for Kafka 0.7, where an offset is a byte position: what its broker does on a start, and which messages can be kept."""
