"""Kafka for every client of kctl: settings of kafka-python, its errors in plain words, TLS and SASL."""
