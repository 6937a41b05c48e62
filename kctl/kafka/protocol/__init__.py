"""Kafka's protocol where kafka-python lacks a message, or is too slow for a hundred thousand rows."""
