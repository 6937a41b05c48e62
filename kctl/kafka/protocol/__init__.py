"""Kafka's protocol where kafka-python has no message, or is too slow for a hundred thousand rows of a response."""
