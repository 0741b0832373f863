"""`dump`: what lies in a file, as Kafka's own tool prints it, as JSON lines, or as a table."""
