"""The room `segment/kafka07`: Kafka 0.7: messages whose offsets are byte positions."""
