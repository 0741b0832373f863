"""The room `segment/java`: what Kafka's files owe to Java: its text, its properties, its UUIDs."""
