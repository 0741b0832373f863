"""`dump`: print a file as Kafka's dump tool does, as JSON lines, or as a table."""
