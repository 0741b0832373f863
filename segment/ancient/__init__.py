"""The room `segment/ancient`: Kafka 0.7: messages whose offsets are byte positions."""
