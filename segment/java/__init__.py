"""What Kafka's files inherit from Java: text encoding, properties, UUIDs."""
