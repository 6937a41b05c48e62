"""Kafka's protocol where kafka-python misses a message, or is too slow for 100,000 rows."""
